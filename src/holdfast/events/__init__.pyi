from .feed import Feed, Heartbeat, Message, Subscription
from .log import EventLog, LogPage
from .public_events import EVENT_TYPES, TOPICS, Cursor, Event, EventFilter, PublicEvent, resolve_topics
from .stream import MEDIA_TYPE, format_message, format_preamble

__all__ = [
    "EVENT_TYPES",
    "MEDIA_TYPE",
    "TOPICS",
    "Cursor",
    "Event",
    "EventFilter",
    "EventLog",
    "Feed",
    "Heartbeat",
    "LogPage",
    "Message",
    "PublicEvent",
    "Subscription",
    "format_message",
    "format_preamble",
    "resolve_topics",
]
