"""Leases and fences: why a lease alone does not protect a result.

A machine can suspend a worker for five minutes without the worker noticing. Its lease ends, another worker claims the
slot and builds it. Then the first worker resumes. No clock and no lock can prevent this, because the suspension can
happen between any check and the write after it. Therefore:

- The **lease** (holder, until) only saves work: while it is alive, no other worker claims the slot.
- The **fence** protects the result. It rises at every claim, takeover and cancel. Every durable write of a worker
  contains the generation and the fence of its claim, inside the statement that writes. The statement of a late worker
  matches no row: it changes nothing, and is counted.
- `until` is compared only with the clock of the database. A worker uses its own monotonic clock for one purpose: to
  stop itself before the lease that it last renewed can end.
- A slot at rest has no lease.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.clock import Moment


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """`holder` is informative; writes are protected by the fence."""

    holder: str
    until: Moment

    def expired(self, now: Moment) -> bool:
        """Return whether other workers may claim the slot."""
        return self.until <= now
