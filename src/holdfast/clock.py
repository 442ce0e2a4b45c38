"""Time as a value.

A `Moment` is the number of microseconds since 1970 in UTC. Python, SQLite and PostgreSQL store and compare it in the
same way, without time zones. Durations are `timedelta`; `micros` converts them.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NewType, Protocol, overload

if TYPE_CHECKING:
    from datetime import timedelta

Moment = NewType("Moment", int)


class Clock(Protocol):
    """Wall time for timestamps, monotonic time for timeouts. Tests replace it."""

    def now(self) -> Moment:
        """Return the wall time. It may jump."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never decrease. Only differences are meaningful."""
        ...


class SystemClock:
    def now(self) -> Moment:
        return Moment(time.time_ns() // 1000)

    def monotonic(self) -> float:
        return time.monotonic()


def micros(duration: timedelta) -> int:
    """Convert a duration to the unit of `Moment`."""
    return (duration.days * 86_400 + duration.seconds) * 1_000_000 + duration.microseconds


@overload
def as_datetime(moment: Moment) -> datetime: ...


@overload
def as_datetime(moment: Moment | None) -> datetime | None: ...


def as_datetime(moment: Moment | None) -> datetime | None:
    """Convert to a datetime in UTC. None stays None."""
    return None if moment is None else datetime.fromtimestamp(moment / 1_000_000, UTC)
