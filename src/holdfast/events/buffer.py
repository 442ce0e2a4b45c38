"""The newest events in memory, so that many who look on cost one reading of the database.

They are the same events in the same order as in the log, from one place to another without a gap. Whoever is behind
the first of these places reads the log itself, and comes here when it has caught up.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.events.log import LogPage
    from holdfast.events.public_events import Cursor, PublicEvent


class EventBatch(NamedTuple):
    """Some events, and the place behind them."""

    events: Sequence[PublicEvent]
    cursor: Cursor


class EventBuffer:
    """All events between two places of the log, at most `room` of them."""

    def __init__(self, place: Cursor, room: int) -> None:
        self.start = self.end = place
        self._capacity = room
        self._events: list[PublicEvent] = []

    def __len__(self) -> int:
        return len(self._events)

    def append(self, page: LogPage) -> None:
        """Add what was read behind the end; what is too much goes at the start."""
        if page.reset:  # what was in between is gone: those who wait for it find that out themselves
            self._events.clear()
            self.start = page.cursor
        self._events += page.events
        self.end = page.cursor
        surplus = len(self._events) - self._capacity
        if surplus > 0:
            self.start = self._events[surplus - 1].cursor
            del self._events[:surplus]

    def read_after(self, place: Cursor, limit: int) -> EventBatch | None:
        """Return the first events behind a place; None if some of them may be in the log alone."""
        if place < self.start:
            return None
        first = bisect_right(self._events, place, key=lambda event: event.cursor)
        found = self._events[first : first + limit]
        whole = first + limit >= len(self._events)
        return EventBatch(found, max(place, self.end) if whole else found[-1].cursor)
