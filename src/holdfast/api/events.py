"""`/events`: what happened and what happens, as a list and as a stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse

from holdfast.api.auth import Service, get_server_state, get_stream_limits
from holdfast.events import Cursor
from holdfast.events.feed import Heartbeat
from holdfast.events.stream import MEDIA_TYPE, format_message, format_preamble
from holdfast.service.schemas import Event, Page

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from holdfast.events.feed import Message, Subscription

router = APIRouter(prefix="/events", tags=["events"])

BaseQuery = Annotated[str | None, Query(max_length=200, description="only of this base")]
DocumentQuery = Annotated[int | None, Query(ge=1, lt=2**63, description="only about this document")]
TopicsQuery = Annotated[list[str] | None, Query(max_length=50, description="types, their first words, or `progress`")]
HEARTBEAT_SECONDS = 15  # seconds
MAX_MESSAGES_PER_WRITE = 100  # messages that are written at once, at most
STREAM_RESPONSES: dict[int | str, dict[str, Any]] = {  # how a stream is described
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
STREAM_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


@router.get("")
def list_events(
    front: Service,
    base: BaseQuery = None,
    document: DocumentQuery = None,
    topic: TopicsQuery = None,
    cursor: Annotated[str | None, Query(max_length=50)] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
) -> Page[Event]:
    """Return what happened, newest first."""
    return front.events.list(base, document=document, topics=topic, cursor=cursor, limit=limit)


@router.get("/after")
def list_events_after(
    front: Service,
    cursor: Annotated[str | None, Query(max_length=50, description="where reading ended; now, if left out")] = None,
    base: BaseQuery = None,
    document: DocumentQuery = None,
    topic: TopicsQuery = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
) -> Page[Event]:
    """Return what happened behind a place, oldest first; `next_cursor` is always told, to read on from later."""
    return front.events.after(cursor, base, document=document, topics=topic, limit=limit)


@router.get(
    "/stream",
    response_class=StreamingResponse,
    responses=STREAM_RESPONSES,
)
async def follow_events(
    front: Service,
    request: Request,
    base: BaseQuery = None,
    document: DocumentQuery = None,
    topic: TopicsQuery = None,
    after: Annotated[str | None, Query(max_length=50, description="as the header Last-Event-ID")] = None,
) -> StreamingResponse:
    """Follow what happens, from now on or from behind an event; `reset` says that it is too old, and to look anew."""
    place = request.headers.get("last-event-id") or after
    loop, woken = asyncio.get_running_loop(), asyncio.Event()
    with ExitStack() as held:
        held.enter_context(get_stream_limits(request).reserve(request.state.caller.key_id))
        seen = await run_in_threadpool(front.events.visible_base_keys, base)
        subscription = held.enter_context(
            await run_in_threadpool(
                get_server_state(request).feed.subscribe,
                None if place is None else Cursor.parse(place),
                bases=seen,
                document=document,
                topics=topic,
                wake=lambda: set_threadsafe(loop, woken),
            )
        )
        return _EventStream(subscription, woken, held.pop_all())


class _EventStream(StreamingResponse):
    """Looks on until it ends, and no longer: also if whoever asked left before its first word."""

    def __init__(self, subscription: Subscription, woken: asyncio.Event, held: ExitStack) -> None:
        super().__init__(_encode_messages(subscription, woken), media_type=MEDIA_TYPE, headers=STREAM_HEADERS)
        self._resources = held  # the subscription, and its place among the streams of the process

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._resources:
            await super().__call__(scope, receive, send)


async def _encode_messages(subscription: Subscription, woken: asyncio.Event) -> AsyncIterator[str]:
    """Write what there is, wait until there is more, and now and then say that somebody is here."""
    yield format_preamble()
    while True:
        woken.clear()
        messages = await run_in_threadpool(_take_ready_messages, subscription)
        if messages is None:
            return
        if messages:
            yield "".join(map(format_message, messages))
        else:
            try:
                await asyncio.wait_for(woken.wait(), HEARTBEAT_SECONDS)
            except TimeoutError:
                yield format_message(Heartbeat())


def _take_ready_messages(subscription: Subscription) -> list[Message] | None:
    """Take what is there, at most so much; None when it is over."""
    found: list[Message] = []
    while len(found) < MAX_MESSAGES_PER_WRITE:
        message = subscription.get(0)
        if message is None:
            return found or None
        if isinstance(message, Heartbeat):
            break
        found.append(message)
    return found


def set_threadsafe(loop: asyncio.AbstractEventLoop, woken: asyncio.Event) -> None:
    """Set an event of a loop, from whatever thread."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(woken.set)
