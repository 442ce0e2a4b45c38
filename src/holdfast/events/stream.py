"""The text of server-sent events: what a browser's EventSource reads.

An event has an id, and so the browser asks for what comes behind it when it connects again. Progress and comments have
none. A heartbeat that may tell a place tells it without data: the browser notes it and wakes nobody.
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
    """Return what a stream begins with: how long a browser waits before it connects again."""
    return f"retry: {RETRY_MS}\n\n"


def format_message(message: Message) -> str:
    """Return a message as a browser reads it."""
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


def _format_event(name: str, data: dict[str, Any], place: Cursor | None = None) -> str:
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))  # one line: JSON escapes line breaks
    head = f"id: {place}\n" if place is not None else ""
    return f"{head}event: {name}\ndata: {text}\n\n"
