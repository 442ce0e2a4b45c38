"""Timeouts and retry limits of the engine, as plain values."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Exponential backoff with jitter, within one generation."""

    max_attempts: int = 4  # the first attempt and three retries
    first_delay: timedelta = timedelta(seconds=60)
    max_delay: timedelta = timedelta(minutes=15)
    jitter: float = 0.2

    def exhausted(self, attempts: int) -> bool:
        return attempts >= self.max_attempts

    def delay(self, attempt: int, chance: float, retry_after: timedelta | None = None) -> timedelta:
        """Return the delay after this attempt. `chance` in [0, 1) determines the jitter; `retry_after` is a minimum."""
        doubled = self.first_delay * 2 ** min(attempt - 1, 30) if attempt > 0 else self.first_delay
        base = min(doubled, self.max_delay)
        spread = base * (1 + self.jitter * (2 * chance - 1))
        return max(spread, retry_after) if retry_after else spread


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    lease: timedelta = timedelta(seconds=120)
    heartbeat: timedelta = timedelta(seconds=30)
    stall: timedelta = timedelta(minutes=45)
    overtaken_after: timedelta = timedelta(minutes=10)
    deadline: timedelta = timedelta(hours=6)
    ring_again: timedelta = timedelta(seconds=60)
    long_running: timedelta = timedelta(minutes=30)  # zero: never report a long attempt
    retry: RetryPolicy = field(default_factory=RetryPolicy)

    @property
    def renewal_timeout(self) -> timedelta:
        """How long a worker may work after its last renewal. It stops before the lease can end."""
        return self.lease - self.heartbeat / 2

    @property
    def report_after(self) -> timedelta:
        """How long after a claim the reconciler must check whether to report it; at the latest at the deadline."""
        return min(self.long_running, self.deadline) if self.long_running else self.deadline
