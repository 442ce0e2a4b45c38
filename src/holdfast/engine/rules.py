"""The numbers that decide: leases, stalls, retries. Plain values, made from Settings at the edge."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from holdfast.engine.retry import RetryPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Everything that core, store and runtime decide with."""

    lease: timedelta = timedelta(seconds=120)
    heartbeat: timedelta = timedelta(seconds=30)
    stall: timedelta = timedelta(minutes=45)
    overtaken_after: timedelta = timedelta(minutes=10)
    deadline: timedelta = timedelta(hours=6)
    ring_again: timedelta = timedelta(seconds=60)
    retry: RetryPolicy = field(default_factory=RetryPolicy)

    @property
    def renewal_timeout(self) -> timedelta:
        """How long after its last renewal a worker may still work: it stops before the lease can end."""
        return self.lease - self.heartbeat / 2
