"""Long polls: the response waits until no work on a document or a job is active."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, TypeVar

from fastapi import Query
from fastapi.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect

from holdfast.api.auth import get_server_state
from holdfast.api.events import set_threadsafe

if TYPE_CHECKING:
    from collections.abc import Callable

    from fastapi import Request

T = TypeVar("T")

WaitSeconds = Annotated[float, Query(ge=0, le=60, description="Seconds to wait until the work has ended, at most.")]


async def wait_until_settled(
    request: Request, read: Callable[[], T], resting: Callable[[T], bool], seconds: float
) -> T:
    """Read a value again after each event, until it is settled, the time is over, or the client disconnects."""
    found = await run_in_threadpool(read)
    if resting(found) or not seconds:
        return found
    state = get_server_state(request)
    loop, woken = asyncio.get_running_loop(), asyncio.Event()
    ends = loop.time() + seconds
    subscription = await run_in_threadpool(state.feed.subscribe, wake=lambda: set_threadsafe(loop, woken))
    leaving = asyncio.create_task(_wait_for_disconnect(request))
    leaving.add_done_callback(lambda _: woken.set())
    try:
        while True:
            woken.clear()
            found = await run_in_threadpool(read)
            left = ends - loop.time()
            if resting(found) or left <= 0 or state.draining.is_set():
                return found
            if leaving.done():
                raise leaving.exception() or ClientDisconnect
            try:
                await asyncio.wait_for(woken.wait(), left)
            except TimeoutError:
                ends = loop.time()
    finally:
        leaving.cancel()
        subscription.close()


async def _wait_for_disconnect(request: Request) -> None:
    """Return when the client has disconnected."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
