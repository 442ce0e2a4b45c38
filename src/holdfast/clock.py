"""Time as a value.

A `Moment` is whole microseconds since 1970 UTC: it compares and travels the same way in Python, SQLite and
PostgreSQL, and no time zone can get between. Durations are `timedelta` at the edges.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NewType, Protocol, overload

if TYPE_CHECKING:
    from datetime import timedelta

Moment = NewType("Moment", int)


class Clock(Protocol):
    """Wall time for people and SQLite, monotonic time for a worker that must stop itself."""

    def now(self) -> Moment:
        """Return the wall time; it may jump."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never go back; only differences mean anything."""
        ...


class SystemClock:
    """The clock of this machine."""

    def now(self) -> Moment:
        """Return the wall time of this machine."""
        return Moment(time.time_ns() // 1000)

    def monotonic(self) -> float:
        """Return the monotonic clock of this process."""
        return time.monotonic()


def micros(duration: timedelta) -> int:
    """Return a duration in the unit of `Moment`."""
    return (duration.days * 86_400 + duration.seconds) * 1_000_000 + duration.microseconds


@overload
def as_datetime(moment: Moment) -> datetime: ...


@overload
def as_datetime(moment: Moment | None) -> datetime | None: ...


def as_datetime(moment: Moment | None) -> datetime | None:
    """Convert a moment to a datetime in UTC; None stays None."""
    return None if moment is None else datetime.fromtimestamp(moment / 1_000_000, UTC)
