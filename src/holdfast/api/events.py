"""The route of `/events/stream`: server-sent events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse

from holdfast.api.auth import Service, get_server_state, get_stream_limits
from holdfast.events import MEDIA_TYPE, Cursor, Heartbeat, format_message, format_preamble
from holdfast.service.routes import TOPICS

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from holdfast.events import Message, Subscription

router = APIRouter(prefix="/events", tags=["events"])

BaseQuery = Annotated[str | None, Query(max_length=200, description="Only of this base.")]
DocumentQuery = Annotated[int | None, Query(ge=1, lt=2**63, description="Only about this document.")]
TopicsQuery = Annotated[list[str] | None, Query(max_length=50, description=TOPICS)]
HEARTBEAT_SECONDS = 15
MAX_MESSAGES_PER_WRITE = 100
STREAM_RESPONSES: dict[int | str, dict[str, Any]] = {  # for OpenAPI
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


@router.get(
    "/stream",
    response_class=StreamingResponse,
    responses=STREAM_RESPONSES,
)
async def follow_events(
    service: Service,
    request: Request,
    base: BaseQuery = None,
    document: DocumentQuery = None,
    topic: TopicsQuery = None,
    after: Annotated[
        str | None, Query(max_length=50, description="Id of the last event, like the header `Last-Event-ID`.")
    ] = None,
) -> StreamingResponse:
    """Stream events from now on, or after an event. `reset` means that this event is too old: reload your state."""
    cursor = request.headers.get("last-event-id") or after
    loop, woken = asyncio.get_running_loop(), asyncio.Event()
    with ExitStack() as stack:
        stack.enter_context(get_stream_limits(request).reserve(request.state.caller.key_id))
        visible = await run_in_threadpool(service.events.visible_base_keys, base)
        subscription = stack.enter_context(
            await run_in_threadpool(
                get_server_state(request).feed.subscribe,
                None if cursor is None else Cursor.parse(cursor),
                bases=visible,
                document=document,
                topics=topic,
                wake=lambda: set_threadsafe(loop, woken),
            )
        )
        return _EventStream(subscription, woken, stack.pop_all())


class _EventStream(StreamingResponse):
    """Closes the subscription when the response ends, even if the client disconnects before the first byte."""

    def __init__(self, subscription: Subscription, woken: asyncio.Event, resources: ExitStack) -> None:
        super().__init__(_encode_messages(subscription, woken), media_type=MEDIA_TYPE, headers=STREAM_HEADERS)
        self._resources = resources  # the subscription, and its place in the stream limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._resources:
            await super().__call__(scope, receive, send)


async def _encode_messages(subscription: Subscription, woken: asyncio.Event) -> AsyncIterator[str]:
    """Yield the available messages, then wait for more; after `HEARTBEAT_SECONDS` without one, yield a heartbeat."""
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
    """Return the available messages, up to a limit; None when the subscription has ended."""
    messages: list[Message] = []
    while len(messages) < MAX_MESSAGES_PER_WRITE:
        message = subscription.get(0)
        if message is None:
            return messages or None
        if isinstance(message, Heartbeat):
            break
        messages.append(message)
    return messages


def set_threadsafe(loop: asyncio.AbstractEventLoop, woken: asyncio.Event) -> None:
    """Set an event of a loop from any thread."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(woken.set)
