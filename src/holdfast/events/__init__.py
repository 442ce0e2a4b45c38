"""Events: the log, the live feed, and the public form of each event."""

from holdfast.events.log import EventLog, LogPage
from holdfast.events.public_events import EVENT_TYPES, TOPICS, Cursor, Event, EventFilter, PublicEvent, resolve_topics

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
