"""`/events`: what happened and what happens, as a list and as a stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse

from holdfast.api.auth import Front, served, streams_of
from holdfast.events import Cursor
from holdfast.events.feed import Heartbeat
from holdfast.events.stream import MEDIA_TYPE, opening, text_of
from holdfast.service.schemas import Event, Page

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from holdfast.events.feed import Message, Subscription

router = APIRouter(prefix="/events", tags=["events"])

Base = Annotated[str | None, Query(max_length=200, description="only of this base")]
Document = Annotated[int | None, Query(ge=1, lt=2**63, description="only about this document")]
Topics = Annotated[list[str] | None, Query(max_length=50, description="types, their first words, or `progress`")]
HEARTBEAT = 15  # seconds
TOGETHER = 100  # messages that are written at once, at most
STREAM: dict[int | str, dict[str, Any]] = {  # how a stream is described
    200: {
        "content": {
            MEDIA_TYPE: {
                "schema": {
                    "type": "object",
                    "properties": {
                        "id": {"type": "string"},
                        "event": {"type": "string"},
                        "data": {"type": "string", "description": "JSON"},
                        "retry": {"type": "integer"},
                    },
                }
            }
        }
    }
}
UNBUFFERED = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


@router.get("")
def list_events(
    front: Front,
    base: Base = None,
    document: Document = None,
    topic: Topics = None,
    cursor: Annotated[str | None, Query(max_length=50)] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
) -> Page[Event]:
    """Return what happened, newest first."""
    return front.events.list(base, document=document, topics=topic, cursor=cursor, limit=limit)


@router.get("/after")
def read_on(
    front: Front,
    cursor: Annotated[str | None, Query(max_length=50, description="where reading ended; now, if left out")] = None,
    base: Base = None,
    document: Document = None,
    topic: Topics = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
) -> Page[Event]:
    """Return what happened behind a place, oldest first; `next_cursor` is always told, to read on from later."""
    return front.events.after(cursor, base, document=document, topics=topic, limit=limit)


@router.get(
    "/stream",
    response_class=StreamingResponse,
    responses=STREAM,
)
async def follow_events(
    front: Front,
    request: Request,
    base: Base = None,
    document: Document = None,
    topic: Topics = None,
    after: Annotated[str | None, Query(max_length=50, description="as the header Last-Event-ID")] = None,
) -> StreamingResponse:
    """Follow what happens, from now on or from behind an event; `reset` says that it is too old, and to look anew."""
    place = request.headers.get("last-event-id") or after
    loop, woken = asyncio.get_running_loop(), asyncio.Event()
    with ExitStack() as held:
        held.enter_context(streams_of(request).one(request.state.caller.key_id))
        seen = await run_in_threadpool(front.events.seen, base)
        subscription = held.enter_context(
            await run_in_threadpool(
                served(request).feed.subscribe,
                None if place is None else Cursor.parse(place),
                bases=seen,
                document=document,
                topics=topic,
                wake=lambda: wake(loop, woken),
            )
        )
        return _Stream(subscription, woken, held.pop_all())


class _Stream(StreamingResponse):
    """Looks on until it ends, and no longer: also if whoever asked left before its first word."""

    def __init__(self, subscription: Subscription, woken: asyncio.Event, held: ExitStack) -> None:
        super().__init__(_texts(subscription, woken), media_type=MEDIA_TYPE, headers=UNBUFFERED)
        self._held = held  # the subscription, and its place among the streams of the process

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._held:
            await super().__call__(scope, receive, send)


async def _texts(subscription: Subscription, woken: asyncio.Event) -> AsyncIterator[str]:
    """Write what there is, wait until there is more, and now and then say that somebody is here."""
    yield opening()
    while True:
        woken.clear()
        messages = await run_in_threadpool(_ready, subscription)
        if messages is None:
            return
        if messages:
            yield "".join(map(text_of, messages))
        else:
            try:
                await asyncio.wait_for(woken.wait(), HEARTBEAT)
            except TimeoutError:
                yield text_of(Heartbeat())


def _ready(subscription: Subscription) -> list[Message] | None:
    """Take what is there, at most so much; None when it is over."""
    found: list[Message] = []
    while len(found) < TOGETHER:
        message = subscription.get(0)
        if message is None:
            return found or None
        if isinstance(message, Heartbeat):
            break
        found.append(message)
    return found


def wake(loop: asyncio.AbstractEventLoop, woken: asyncio.Event) -> None:
    """Set an event of a loop, from whatever thread."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(woken.set)
