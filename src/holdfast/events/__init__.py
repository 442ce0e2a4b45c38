"""What happens, for whoever is to know of it: the log, the live stream, and webhooks."""

from holdfast.events.log import Log, Page
from holdfast.events.public_events import CATALOGUE, TOPICS, Cursor, Event, Filter, PublicEvent, types_of

__all__ = [
    "CATALOGUE",
    "TOPICS",
    "Cursor",
    "Event",
    "Filter",
    "Log",
    "Page",
    "PublicEvent",
    "types_of",
]
