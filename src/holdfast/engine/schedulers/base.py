"""The contract of schedulers.

A scheduler knows neither the store nor the executor. It receives a worker and calls it in any process or thread. It may
lose or repeat rings: the worker claims a slot before it works, and the reconciler rings again.
"""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from holdfast.errors import BadSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import timedelta

    from holdfast.engine.slot import Ring

ENTRY_POINT_GROUP = "holdfast.schedulers"


class Worker(Protocol):
    """Does the work. It can be pickled and sent to another process."""

    def run(self, ring: Ring) -> None:
        """Answer one ring, for schedulers that deliver rings. Returning acknowledges the ring.

        The worker claims the next slots in the order of the store. They may be others than the slot of the ring.
        """
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

    @property
    def needs_rings(self) -> bool:
        """False: the workers poll, and `carry` only wakes them. Then nothing calls `room`."""
        ...

    def room(self, kind: str, outstanding: Callable[[], int]) -> int:
        """Return how many more rings of this kind to send; zero or less means none.

        `outstanding` counts the rings that were sent recently and whose slots are not claimed yet, with a query. A
        scheduler that can count its messages may use that number instead.
        """
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


@runtime_checkable
class MessageCounter(Protocol):
    """A scheduler that knows how many messages wait in its queues. The metrics show them."""

    def count_messages(self) -> Mapping[str, int]:
        """Return the number of messages by kind; nothing if the broker does not answer."""
        ...


class SchedulerSettings(Protocol):
    """The settings that a scheduler may use."""

    @property
    def scheduler(self) -> str: ...
    @property
    def workers(self) -> int: ...
    @property
    def rings_per_worker(self) -> int: ...
    @property
    def broker(self) -> str: ...
    @property
    def queue_prefix(self) -> str: ...
    @property
    def lease(self) -> timedelta: ...
    @property
    def deadline(self) -> timedelta: ...


def make_scheduler(settings: SchedulerSettings) -> Scheduler:
    """Create the scheduler of the settings. Built-in schedulers use the same entry point as others.

    The entry point is a callable that gets the settings: `lambda settings: MyScheduler(settings.workers)`.
    """
    installed = entry_points(group=ENTRY_POINT_GROUP)
    name = settings.scheduler
    if name not in installed.names:
        known = ", ".join(sorted(installed.names))
        raise BadSettings("unknown_scheduler", name=name, known=known, group=ENTRY_POINT_GROUP)
    scheduler: Scheduler = installed[name].load()(settings)
    return scheduler
