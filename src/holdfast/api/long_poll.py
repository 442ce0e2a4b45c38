"""Answers that wait until something has come to rest, so that nobody has to ask again and again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, TypeVar

from fastapi import Query
from fastapi.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect

from holdfast.api.auth import served
from holdfast.api.events import wake

if TYPE_CHECKING:
    from collections.abc import Callable

    from fastapi import Request

T = TypeVar("T")

Wait = Annotated[float, Query(ge=0, le=60, description="seconds to wait until it has come to rest")]


async def rested(request: Request, read: Callable[[], T], resting: Callable[[T], bool], seconds: float) -> T:
    """Read something, and again whenever something happened, until it rests, the time is over, or nobody waits."""
    found = await run_in_threadpool(read)
    if resting(found) or not seconds:
        return found
    here = served(request)
    loop, woken = asyncio.get_running_loop(), asyncio.Event()
    ends = loop.time() + seconds
    subscription = await run_in_threadpool(here.feed.subscribe, wake=lambda: wake(loop, woken))
    leaving = asyncio.create_task(_left(request))
    leaving.add_done_callback(lambda _: woken.set())
    try:
        while True:
            woken.clear()
            found = await run_in_threadpool(read)
            left = ends - loop.time()
            if resting(found) or left <= 0 or here.draining.is_set():
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


async def _left(request: Request) -> None:
    """Return when whoever asked has left."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
