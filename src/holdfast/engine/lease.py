"""Who works on a slot, until when, and why that alone proves nothing.

A worker that is stopped by its machine for five minutes does not know it. Its lease runs out, another worker
takes the slot over and builds it; then the first one wakes up and goes on where it was. No clock and no lock
can prevent this, because the pause can fall between any check and the write behind it. So:

- The **lease** (holder, until) only saves work: while it lives nobody else claims the slot.
- The **fence** keeps the truth: it rises at every claim, takeover and cancel. Every durable write of a worker
  names the generation and the fence it was given, inside the statement that writes. A late worker's statement
  matches no row; it is refused, counted, and changes nothing.
- `until` is compared with the database's clock only. A worker's own monotonic clock serves one purpose: to stop
  itself before the lease it last renewed can have ended.
- A slot at rest has no lease.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.clock import Moment


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The holder is for people; the fence is for the database."""

    holder: str
    until: Moment

    def expired(self, now: Moment) -> bool:
        """Tell whether others may claim the slot."""
        return self.until <= now
