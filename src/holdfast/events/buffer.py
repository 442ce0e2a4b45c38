"""The newest events in memory, so that any number of subscribers cost one read of the database.

The buffer has the same events in the same order as the log, without a gap, between two cursors. A subscriber that is
behind the first cursor reads the log until it has caught up.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from holdfast.events.log import LogPage

if TYPE_CHECKING:
    from holdfast.events.public_events import Cursor, PublicEvent


class EventBuffer:
    """All events between the cursors `start` and `end`, at most `capacity` of them."""

    def __init__(self, cursor: Cursor, capacity: int) -> None:
        self.start = self.end = cursor
        self._capacity = capacity
        self._events: list[PublicEvent] = []

    def __len__(self) -> int:
        return len(self._events)

    def append(self, page: LogPage) -> None:
        """Add the page that follows `end`; drop the oldest events beyond the capacity."""
        if page.reset:  # the events in between are gone; a subscriber that needs them gets a reset from the log
            self._events.clear()
            self.start = page.cursor
        self._events += page.events
        self.end = page.cursor
        surplus = len(self._events) - self._capacity
        if surplus > 0:
            self.start = self._events[surplus - 1].cursor
            del self._events[:surplus]

    def read_after(self, cursor: Cursor, limit: int) -> LogPage | None:
        """Return the next events after a cursor; None if the buffer may lack some of them."""
        if cursor < self.start:
            return None
        first = bisect_right(self._events, cursor, key=lambda event: event.cursor)
        events = self._events[first : first + limit]
        at_end = first + limit >= len(self._events)
        return LogPage(events=events, cursor=max(cursor, self.end) if at_end else events[-1].cursor)
