"""Formats messages of the feed as server-sent events.

Events carry an id, which a browser sends as Last-Event-ID when it reconnects. Progress has none. A heartbeat with a
cursor is an id without data: the browser stores the id and calls no handler.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, assert_never

from holdfast.events.feed import Heartbeat, Reset
from holdfast.events.progress import ProgressMessage
from holdfast.events.public_events import PROGRESS, Cursor, PublicEvent

if TYPE_CHECKING:
    from holdfast.events.feed import Message

RETRY_MS = 2000
RESET = "reset"
MEDIA_TYPE = "text/event-stream"


def format_preamble() -> str:
    """Return the start of a stream: the reconnection delay."""
    return f"retry: {RETRY_MS}\n\n"


def format_message(message: Message) -> str:
    match message:
        case PublicEvent():
            return _format_event(message.type, message.to_dict(), message.cursor)
        case ProgressMessage():
            return _format_event(PROGRESS, message.to_dict())
        case Reset():
            return _format_event(RESET, {"id": str(message.cursor)}, message.cursor)
        case Heartbeat():
            return f"id: {message.cursor}\n\n" if message.cursor else ": still here\n\n"
        case _:
            assert_never(message)


def _format_event(name: str, data: dict[str, Any], cursor: Cursor | None = None) -> str:
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))  # one line, because JSON escapes line breaks
    head = f"id: {cursor}\n" if cursor is not None else ""
    return f"{head}event: {name}\ndata: {text}\n\n"
