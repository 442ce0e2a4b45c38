"""A clock that moves only when a test moves it. Both databases can use it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.clock import Moment, micros

if TYPE_CHECKING:
    from datetime import timedelta

START = Moment(1_800_000_000_000_000)


class FakeClock:
    """Wall clock and monotonic clock, which advance together. The wall clock can also jump."""

    def __init__(self) -> None:
        self._now = START
        self._monotonic = 1000.0

    def now(self) -> Moment:
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, duration: timedelta) -> None:
        self._now = Moment(self._now + micros(duration))
        self._monotonic += duration.total_seconds()

    def jump(self, duration: timedelta) -> None:
        """Set the wall clock forward or back without the monotonic clock, as an administrator does."""
        self._now = Moment(self._now + micros(duration))
