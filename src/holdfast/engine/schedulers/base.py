"""The contract of schedulers.

A scheduler knows neither the store nor the executor. It receives a worker and calls it in any process or thread. It may
lose or repeat rings: the worker claims a slot before it works, and the reconciler rings again.
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
    """Does the work. It can be pickled and sent to another process."""

    def run(self, ring: Ring) -> None:
        """Answer one ring, for schedulers that deliver rings. Returning acknowledges the ring."""
        ...

    def work(self) -> None:
        """Poll for slots until the process gets a signal to stop, for schedulers that only start processes."""
        ...

    def wake(self) -> None:
        """Wake all workers that are in `work`."""
        ...

    def stop(self) -> None:
        """Let all calls of `run` release their slots at the next checkpoint. Does not wait."""
        ...


class RingCarrier(Protocol):
    """Delivers rings to workers: the part of a scheduler that a reconciler uses.

    Delivery may fail. The reconciler sends a lost ring again, and the claim refuses a duplicate.
    """

    def room(self, kind: str) -> int | None:
        """Return how many rings of this kind may be outstanding. None: the workers poll and need no rings."""
        ...

    def carry(self, rings: Sequence[Ring]) -> None:
        """Deliver rings to workers. Without rings, only wake the workers."""
        ...


class Scheduler(RingCarrier, Protocol):
    """Starts workers and delivers rings to them."""

    def start(self, worker: Worker) -> None: ...

    def stop(self) -> None:
        """Stop, and wait until the workers have released their slots. `start` may be called again."""
        ...


def make_scheduler(name: str, *, workers: int, rings_per_worker: int = 2) -> Scheduler:
    """Create the scheduler with this name. Built-in schedulers use the same entry point as others."""
    installed = entry_points(group=ENTRY_POINT_GROUP)
    if name not in installed.names:
        known = ", ".join(sorted(installed.names))
        raise BadSettings("unknown_scheduler", name=name, known=known, group=ENTRY_POINT_GROUP)
    scheduler: Scheduler = installed[name].load()(workers=workers, rings_per_worker=rings_per_worker)
    return scheduler
