"""The scheduler's contract: it carries rings to workers and may lose them.

A scheduler never meets the store or the executor. It is handed a crew and calls it, in whatever process and
thread it likes; everything that keeps work from being lost or done twice is behind that call.
"""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Protocol

from holdfast.errors import BadSettings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.engine.slot import Ring

ENTRY_POINT_GROUP = "holdfast.schedulers"


class Worker(Protocol):
    """Those who work. Can be pickled, to be handed to another process."""

    def run(self, ring: Ring) -> None:
        """Answer one ring, for schedulers that push; returning is the acknowledgement."""
        ...

    def work(self) -> None:
        """Look for work until told to stop, for schedulers that only start processes."""
        ...

    def wake(self) -> None:
        """Wake everybody who is in `work`."""
        ...

    def stop(self) -> None:
        """Let everybody who is in `run` give back what they hold, at their next checkpoint; does not wait."""
        ...


class RingCarrier(Protocol):
    """Delivers rings to workers: the part of a scheduler that a reconciler uses.

    Delivery may fail. The reconciler sends a lost ring again, and the claim refuses a duplicate.
    """

    def room(self, kind: str) -> int | None:
        """Say how many rings of this kind may be under way; None: the workers look for themselves."""
        ...

    def carry(self, rings: Sequence[Ring]) -> None:
        """Bring rings to workers; with no rings, just wake them."""
        ...


class Scheduler(RingCarrier, Protocol):
    """Starts workers and delivers rings to them."""

    def start(self, crew: Worker) -> None:
        """Begin to carry."""
        ...

    def stop(self) -> None:
        """Carry no more and wait for what is at work to be given back; `start` begins again, with another crew."""
        ...


def make_scheduler(name: str, *, workers: int, rings_per_worker: int = 2) -> Scheduler:
    """Make the scheduler of this name; built-in ones come by the same door as others."""
    found = entry_points(group=ENTRY_POINT_GROUP)
    if name not in found.names:
        names = ", ".join(sorted(found.names))
        raise BadSettings(
            f"There is no scheduler {name!r}; known are {names}. Choose one of these, or install the package that "
            f"brings it (entry point {ENTRY_POINT_GROUP})."
        )
    made: Scheduler = found[name].load()(workers=workers, rings_per_worker=rings_per_worker)
    return made
