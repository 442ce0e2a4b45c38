from .log import EventLog, LogPage
from .public_events import EVENT_TYPES, TOPICS, Cursor, Event, EventFilter, PublicEvent, resolve_topics

__all__ = [
    "EVENT_TYPES",
    "TOPICS",
    "Cursor",
    "Event",
    "EventFilter",
    "EventLog",
    "LogPage",
    "PublicEvent",
    "resolve_topics",
]
