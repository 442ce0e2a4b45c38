"""One pass of the reconciler rings, expires and gives up slots; its writes are guarded, and it never claims."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from holdfast.db.notify import MemoryNotifier
from holdfast.engine import reconciler as module
from holdfast.engine.executor import no_failpoint
from holdfast.engine.reconciler import Reconciler
from holdfast.engine.slot import BuildResult, Fault, Progress
from holdfast.engine.states import Operation, Outcome, SlotState
from holdfast.engine.store.base import LeaseRenewal
from holdfast.engine.worker import _WakingScheduler
from holdfast.errors import Transient
from tests.support.scripted_workers import KINDS, Carrier, raises, worker
from tests.support.stores import ONE, request

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.engine.schedulers.base import RingCarrier
    from holdfast.engine.slot import Slot, Ticket
    from holdfast.engine.store.sql_store import SqlStore
    from holdfast.engine.task import Task
    from tests.support.clock import FakeClock

MINUTE = timedelta(minutes=1)


def add(store: SqlStore, *owners: str, priority: int = 5) -> None:
    store.admit([request(owner, slots=ONE, priority=priority) for owner in owners])


def cards(store: SqlStore, owner: str = "doc") -> Slot:
    return store.slot("shelf", owner, "cards")


def tender(
    store: SqlStore,
    carrier: RingCarrier | None = None,
    *,
    dead: Callable[[str], bool] = lambda _: False,
    reach: Callable[[str], None] = no_failpoint,
) -> Reconciler:
    return Reconciler(store, carrier or Carrier(), KINDS, store.rules, dead=dead, reach=reach)


def claim(store: SqlStore, holder: str = "worker") -> Ticket:
    """Claim a slot like a worker that sends no further heartbeat."""
    (ticket,) = store.claim_next(KINDS, holder, 1)
    return ticket


def events(store: SqlStore, verb: str) -> list[dict[str, object]]:
    return [dict(one.event.parsed_data) for one in store.events() if one.event.type == f"slot.{verb}"]


def test_work_without_progress_expires_although_its_heartbeat_continues(store: SqlStore, clock: FakeClock) -> None:
    add(store, "doc")

    def build(task: Task) -> BuildResult:
        task.checkpoint(done=7)
        for _ in range(45):
            executor.heartbeat.beat()
            tender(store).reconcile()
            assert cards(store).state is SlotState.RUNNING
            clock.advance(MINUTE)
        executor.heartbeat.beat()
        assert (cards(store).until or 0) > clock.now()
        tender(store).reconcile()
        assert cards(store).state is SlotState.QUEUED
        executor.heartbeat.beat()
        task.checkpoint(done=8)
        raise AssertionError("the work was not stopped")

    executor = worker(store, clock, build)
    executor.run_next(1)
    (expired,) = events(store, "expired")
    assert expired == {"from": "running", "to": "queued", "reason": "no_progress", "status": "queued"}
    assert (cards(store).state, cards(store).fence, cards(store).attempts) == (SlotState.QUEUED, 2, 1)
    assert worker(store, clock).run_next(1) == 1
    assert cards(store).state is SlotState.READY


def test_work_with_progress_does_not_expire(store: SqlStore, clock: FakeClock) -> None:
    add(store, "doc")
    ticket = claim(store)
    for minute in range(1, 101):
        clock.advance(MINUTE)
        store.extend([LeaseRenewal(ticket=ticket, progress=Progress(done=minute // 40), progressed=minute % 40 == 0)])
        tender(store).reconcile()
    assert (cards(store).state, cards(store).fence) == (SlotState.RUNNING, 1)


def test_work_past_its_deadline_expires_despite_its_progress(store: SqlStore, clock: FakeClock) -> None:
    add(store, "doc")
    ticket = claim(store)
    for hour in range(1, 7):
        for minute in range(60):
            clock.advance(MINUTE)
            store.extend([LeaseRenewal(ticket=ticket, progress=Progress(done=hour * 60 + minute), progressed=True)])
        assert events(store, "expired") == []
        tender(store).reconcile()
    assert [event["reason"] for event in events(store, "expired")] == ["past_deadline"]


def test_the_slot_of_a_dead_worker_expires_immediately(store: SqlStore, clock: FakeClock) -> None:
    add(store, "doc", "other")
    claim(store, "dead")
    claim(store, "alive")
    tender(store, dead="dead".__eq__).reconcile()
    assert [event["reason"] for event in events(store, "expired")] == ["holder_died"]
    assert (cards(store, "doc").state, cards(store, "doc").attempts) == (SlotState.QUEUED, 1)
    assert (cards(store, "other").state, cards(store, "other").holder) == (SlotState.RUNNING, "alive")
    assert worker(store, clock).run_next(1) == 1  # without any delay


def test_superseded_and_deleted_slots_of_a_dead_worker_expire_too(store: SqlStore, clock: FakeClock) -> None:
    store.admit([request("changed"), request("doomed")])
    executor = worker(store, clock)
    executor.run_next(10)
    for _ in range(4):
        claim(store, "dead")
    store.admit([request("changed", Operation.CHANGE, fingerprint="new"), request("doomed", Operation.DELETE)])
    assert executor.run_next(10) == 2  # the content of each; the dead worker holds the other slots
    tender(store, dead="dead".__eq__).reconcile()
    assert [event["reason"] for event in events(store, "expired")] == ["holder_died"] * 4
    assert executor.run_next(10) == 4
    assert [one.event.type for one in store.events(limit=10_000)].count("slot.forgotten") == 3
    assert store.owner("shelf", "changed").status == "success"


def test_a_silent_worker_keeps_its_slot_until_its_lease_ends(store: SqlStore, clock: FakeClock) -> None:
    add(store, "doc")
    claim(store)
    carrier = Carrier()
    assert tender(store, carrier).reconcile() == store.rules.lease  # the next check is due at the end of the lease
    clock.advance(store.rules.lease - timedelta(microseconds=1))
    tender(store, carrier).reconcile()
    assert (carrier.carried, cards(store).fence) == ([], 1)
    clock.advance(timedelta(microseconds=1))
    tender(store, carrier).reconcile()
    assert [ring.slot for ring in carrier.carried] == [cards(store).id]
    assert worker(store, clock).run(carrier.carried[0])
    assert (cards(store).state, cards(store).attempts) == (SlotState.READY, 2)


def test_losing_the_last_attempt_fails_the_slot_and_its_dependents(store: SqlStore, clock: FakeClock) -> None:
    store.admit([request()])
    for attempt in range(1, 5):
        assert claim(store).attempt == attempt
        tender(store).reconcile()
        assert store.slot("shelf", "doc", "content").state is SlotState.RUNNING
        clock.advance(store.rules.lease)
    tender(store).reconcile()
    content, vector, graph = store.owner("shelf", "doc").slots
    assert (content.state, content.attempts) == (SlotState.FAILED, 4)
    assert content.error == Fault("attempts_spent", {"attempts": "4", "last": "worker_lost"})
    assert vector.error == graph.error == Fault("needed_slot_failed", {"kind": "content"})
    assert store.job(content.job).outcome is Outcome.FAILED
    assert worker(store, clock).run_next(10) == 0


def test_the_death_of_a_worker_in_its_last_attempt_fails_the_slot_immediately(
    store: SqlStore, clock: FakeClock
) -> None:
    add(store, "doc")
    for _ in range(3):
        claim(store, "dead")
        tender(store, dead="dead".__eq__).reconcile()
        assert cards(store).state is SlotState.QUEUED
    claim(store, "dead")
    tender(store, dead="dead".__eq__).reconcile()
    assert (cards(store).state, cards(store).attempts) == (SlotState.FAILED, 4)
    assert [event["reason"] for event in events(store, "expired")] == ["holder_died"] * 3


def test_a_slot_released_after_its_last_attempt_fails(store: SqlStore, clock: FakeClock) -> None:
    add(store, "doc", "next")

    def build(task: Task) -> BuildResult:
        clock.advance(store.rules.renewal_timeout)
        task.checkpoint()
        return BuildResult()

    for _ in range(4):
        worker(store, clock, build).run_next(1)
        assert cards(store).state is SlotState.QUEUED
    tender(store, Carrier(room=None)).reconcile()
    assert (cards(store).state, cards(store).attempts) == (SlotState.FAILED, 4)
    assert worker(store, clock).run_next(10) == 1
    assert cards(store, "next").state is SlotState.READY


def test_a_removal_is_never_given_up(store: SqlStore, clock: FakeClock) -> None:
    add(store, "doc")
    store.admit([request("doc", Operation.DELETE)])
    for attempt in range(1, 9):
        assert claim(store, "dead").attempt == attempt
        tender(store, dead="dead".__eq__).reconcile()
    assert (cards(store).state, cards(store).holder) == (SlotState.DELETING, None)
    assert worker(store, clock).run_next(1) == 1


def test_queued_slots_are_rung_in_order_while_the_scheduler_has_room(store: SqlStore, clock: FakeClock) -> None:
    add(store, "old", priority=5)
    clock.advance(MINUTE)
    add(store, "low", priority=9)
    add(store, "young", priority=5)
    add(store, "urgent", priority=0)
    carrier = Carrier(room=2)
    names = {cards(store, owner).id: owner for owner in ("old", "low", "young", "urgent")}
    tender(store, carrier).reconcile()
    tender(store, carrier).reconcile()
    assert [names[ring.slot] for ring in carrier.carried] == ["urgent", "old"]
    assert worker(store, clock).run(carrier.carried[0])
    tender(store, carrier).reconcile()
    assert [names[ring.slot] for ring in carrier.carried] == ["urgent", "old", "young"]


def test_an_unanswered_ring_is_repeated_after_a_delay(store: SqlStore, clock: FakeClock) -> None:
    add(store, "doc")
    carrier = Carrier()
    tender(store, carrier).reconcile()
    clock.advance(store.rules.ring_again - timedelta(microseconds=1))
    tender(store, carrier).reconcile()
    assert len(carrier.carried) == 1
    clock.advance(timedelta(microseconds=1))
    tender(store, carrier).reconcile()
    assert carrier.carried[0] == carrier.carried[1]
    executor = worker(store, clock)
    assert [executor.run(ring) for ring in carrier.carried] == [True, False]


def test_a_waiting_slot_is_rung_when_it_is_due(store: SqlStore, clock: FakeClock) -> None:
    add(store, "doc")
    worker(store, clock, raises(Transient("timeout"))).run_next(1)
    carrier = Carrier()
    assert tender(store, carrier).reconcile() == MINUTE
    assert carrier.carried == []
    clock.advance(MINUTE)
    assert tender(store, carrier).reconcile() is None
    assert worker(store, clock).run(carrier.carried[0])


def test_a_failed_attempt_wakes_the_reconcilers_to_schedule_the_next_one(
    store: SqlStore, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    bell = MemoryNotifier()
    asleep = bell.listen()
    monkeypatch.setattr(store, "wake", bell.notify)
    add(store, "doc")
    asleep.wait(0)
    assert tender(store).reconcile() is None, "nothing is due, so it sleeps for its whole period"
    clock.advance(timedelta(seconds=7))
    worker(store, clock, raises(Transient("timeout"))).run_next(1)
    assert asleep.wait(0)
    assert tender(store).reconcile() == MINUTE
    asleep.close()


def test_a_ring_of_a_worker_process_wakes_only_its_own_worker(store: SqlStore) -> None:
    bell = MemoryNotifier()
    beside, elsewhere = bell.listen(), bell.listen()
    add(store, "doc")
    tender(store, _WakingScheduler(beside)).reconcile()
    assert (beside.wait(0), elsewhere.wait(0)) == (True, False)
    assert cards(store).rung_at is None
    beside.close()
    elsewhere.close()


@pytest.mark.parametrize("act", ["expired", "given_up", "rung"])
def test_two_reconcilers_that_read_the_same_state_act_once(store: SqlStore, clock: FakeClock, act: str) -> None:
    add(store, "doc")
    for _ in range({"expired": 1, "given_up": 4, "rung": 0}[act]):
        clock.advance(store.rules.lease)
        claim(store, "dead")
    carriers = Carrier(), Carrier()
    met: list[str] = []

    def meanwhile(point: str) -> None:
        if not met:
            met.append(point)
            tender(store, carriers[1], dead="dead".__eq__).reconcile()

    before = cards(store)
    tender(store, carriers[0], dead="dead".__eq__, reach=meanwhile).reconcile()
    assert met == ["decided"]
    assert len(carriers[0].carried) + len(carriers[1].carried) == {"expired": 1, "given_up": 0, "rung": 1}[act]
    if act == "rung":
        assert cards(store).fence == before.fence
    else:
        assert len(events(store, act)) == 1
        assert cards(store).fence == before.fence + 1


def test_a_worker_that_renews_its_lease_before_the_reconciler_acts_keeps_its_slot(
    store: SqlStore, clock: FakeClock
) -> None:
    add(store, "doc")
    ticket = claim(store, "slow")
    met: list[str] = []

    def renew(point: str) -> None:
        if not met:
            met.append(point)
            clock.advance(timedelta(seconds=1))
            store.extend([LeaseRenewal(ticket=ticket, progress=Progress(done=1), progressed=True)])

    tender(store, dead="slow".__eq__, reach=renew).reconcile()
    assert met == ["decided"]
    assert (cards(store).state, cards(store).fence, cards(store).holder) == (SlotState.RUNNING, 1, "slow")


def test_a_result_published_before_the_reconciler_acts_is_kept(store: SqlStore, clock: FakeClock) -> None:
    add(store, "doc")
    met: list[str] = []

    def finish(point: str) -> None:
        if not met:
            met.append(point)
            assert worker(store, clock).run_next(1) == 1

    carrier = Carrier()
    tender(store, carrier, reach=finish).reconcile()
    assert met == ["decided"]
    assert cards(store).state is SlotState.READY
    assert carrier.carried == []


def test_a_full_pass_requests_another_one_immediately(
    store: SqlStore, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LARGEST_BATCH", 2)
    add(store, "one", "two", "three")
    for _ in range(3):
        claim(store, "dead")
    reconciler = tender(store, dead="dead".__eq__)
    assert reconciler.reconcile() == timedelta()
    assert len(events(store, "expired")) == 2
    assert reconciler.reconcile() is None
    assert len(events(store, "expired")) == 3


def test_a_reconciler_never_claims_and_never_writes_a_result(store: SqlStore, clock: FakeClock) -> None:
    add(store, "waiting", "lost", "deleted", "queued")
    worker(store, clock, raises(Transient("timeout"))).run_next(1)
    claim(store)
    store.admit([request("deleted", Operation.DELETE)])
    carrier = Carrier()
    for _ in range(10):
        clock.advance(MINUTE)
        tender(store, carrier).reconcile()
    owners = ("waiting", "lost", "deleted", "queued")
    assert {ring.slot for ring in carrier.carried} == {cards(store, owner).id for owner in owners}
    assert [cards(store, owner).state for owner in owners] == ["waiting", "running", "deleting", "queued"]
    assert len(events(store, "claimed")) == 2
