"""A worker is paused past its lease, another one takes over, and the first wakes up too late."""

from __future__ import annotations

from datetime import timedelta

from holdfast.clock import Moment, micros
from holdfast.engine.admission import Request
from holdfast.engine.dependencies import SlotSpec
from holdfast.engine.rules import Rules
from holdfast.engine.slot import BuildResult
from holdfast.engine.states import Operation
from holdfast.engine.store.base import Completion
from holdfast.engine.store.factory import open_store
from holdfast.errors import StaleLease


class SlowClock:
    """A clock that we can set, so that nobody has to wait."""

    def __init__(self) -> None:
        self.moment = Moment(1_800_000_000_000_000)

    def now(self) -> Moment:
        """Return the time we set."""
        return self.moment

    def monotonic(self) -> float:
        """Return the same, in seconds."""
        return self.moment / 1_000_000


def main() -> None:
    """Play the scene on a database in memory."""
    clock = SlowClock()
    store = open_store("sqlite://", rules=Rules(), clock=clock)
    store.admit([Request(base="shelf", owner="report.pdf", operation=Operation.INDEX, slots=(SlotSpec("vector"),))])

    (alice,) = store.claim_next(["vector"], "alice", 1)
    print(f"alice claims report.pdf with fence {alice.fence}")
    print("alice's machine is paused for five minutes")
    clock.moment = Moment(clock.moment + micros(timedelta(minutes=5)))

    (bob,) = store.claim_next(["vector"], "bob", 1)
    print(f"bob claims report.pdf with fence {bob.fence}")
    store.complete([Completion(ticket=bob, built=BuildResult())])
    print(f"bob has built report.pdf: {store.owner('shelf', 'report.pdf').status}")

    try:
        store.complete([Completion(ticket=alice, built=BuildResult())])
    except StaleLease:
        print("alice wakes up: refused, the slot was taken over")

    served = store.slot("shelf", "report.pdf", "vector")
    refused = store.counters()["stale_write_rejected.completed"]
    print(f"report.pdf serves what bob built (fence {served.source}), refused writes counted: {refused}")


if __name__ == "__main__":
    main()
