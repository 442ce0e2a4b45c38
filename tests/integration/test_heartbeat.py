"""Heartbeats: leases are renewed, lost and released, and work stops at the next checkpoint after a loss."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.clock import SystemClock
from holdfast.engine import heartbeat as module
from holdfast.engine.heartbeat import Heartbeat
from holdfast.engine.rules import Rules
from holdfast.engine.slot import BuildResult, Progress
from holdfast.engine.states import Operation, Outcome, SlotState
from holdfast.engine.store.factory import open_store
from holdfast.errors import StaleLease, StopWork, StoreUnavailable, Transient, UnknownOwner
from tests.support.processes import until
from tests.support.scripted_workers import Meddling, raises, worker
from tests.support.stores import ONE, request
from tests.support.timeouts import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.engine.slot import Slot
    from holdfast.engine.store.sql_store import SqlStore
    from holdfast.engine.task import Task
    from tests.support.clock import FakeClock

SECOND = timedelta(seconds=1)


@pytest.fixture
def store(store: SqlStore) -> SqlStore:
    """Return a store on each database with one queued document."""
    add(store, "doc")
    return store


def add(store: SqlStore, *owners: str) -> None:
    store.admit([request(owner, slots=ONE) for owner in owners])


def cards(store: SqlStore, owner: str = "doc") -> Slot:
    return store.slot("shelf", owner, "cards")


def stopped_by(store: SqlStore | Meddling, clock: FakeClock, before: Callable[[Task, Heartbeat], None]) -> StopWork:
    """Run a build, call `before` between two checkpoints, and return the exception that stopped the second."""
    stops: list[StopWork] = []

    def build(task: Task) -> BuildResult:
        task.checkpoint()
        before(task, executor.heartbeat)
        try:
            task.checkpoint()
        except StopWork as stop:
            stops.append(stop)
            raise
        return BuildResult()

    executor = worker(store, clock, build)
    executor.run_next(1)
    assert stops, "the work was not stopped"
    return stops[0]


def test_a_heartbeat_keeps_the_lease_and_writes_the_progress(store: SqlStore, clock: FakeClock) -> None:
    def build(task: Task) -> BuildResult:
        for done in range(1, 6):
            clock.advance(100 * SECOND)  # five times, far longer than the first lease
            task.checkpoint(stage="embed", step=2, steps=3, done=done, total=5)
            executor.heartbeat.beat()
            assert worker(store, clock, holder="thief").run_next(1) == 0
        slot = cards(store)
        assert slot.progress == Progress(stage="embed", step=2, steps=3, done=5, total=5)
        assert (slot.holder, slot.until, slot.progress_at) == ("worker", clock.now() + 120_000_000, clock.now())
        return BuildResult()

    executor = worker(store, clock, build)
    executor.run_next(1)
    assert (cards(store).state, cards(store).fence) == (SlotState.READY, 1)


def test_progress_never_goes_back_within_a_generation(store: SqlStore, clock: FakeClock) -> None:
    seen: list[int] = []

    def build(task: Task) -> BuildResult:
        for done in (5, 3) if task.ticket.attempt == 1 else (1, 7):
            task.checkpoint(stage="embed", done=done, total=10)
            executor.heartbeat.beat()
            seen.append(cards(store).progress.done)
        raise Transient("timeout")

    executor = worker(store, clock, build)
    executor.run_next(1)
    clock.advance(timedelta(hours=1))
    executor.run_next(1)
    assert seen == [5, 5, 5, 7]
    store.admit([request("doc", Operation.CHANGE, slots=ONE, fingerprint="new")])
    assert cards(store).progress == Progress()


def test_progress_recorded_during_a_heartbeat_is_written_by_the_next(store: SqlStore, clock: FakeClock) -> None:
    notes = iter([1, 2])

    def extend(beats: object) -> None:
        for done in notes:  # progress arrives while the statement is being executed
            executor.heartbeat.record_progress(tasks[0].ticket, Progress(done=done))
            break
        store.extend(beats)  # type: ignore[arg-type]

    def build(task: Task) -> BuildResult:
        tasks.append(task)
        for _ in range(3):
            clock.advance(SECOND)
            executor.heartbeat.beat()
        assert (cards(store).progress.done, cards(store).progress_at) == (2, clock.now())
        return BuildResult()

    tasks: list[Task] = []
    executor = worker(Meddling(store, extend=extend), clock, build)
    executor.run_next(1)
    assert cards(store).state is SlotState.READY


def test_the_heartbeat_thread_survives_errors(database_url: str) -> None:
    rules = Rules(heartbeat=timedelta(milliseconds=5))
    real = open_store(database_url, rules=rules, clock=SystemClock())
    add(real, "doc")
    errors = [StoreUnavailable("away"), RuntimeError("a bug")]

    def extend(beats: object) -> None:
        if errors:
            raise errors.pop()
        real.extend(beats)  # type: ignore[arg-type]

    heartbeat = Heartbeat(Meddling(real, extend=extend), SystemClock(), rules)
    tickets = real.claim_next(["cards"], "worker", 1)
    heartbeat.hold(tickets, SystemClock().monotonic())
    assert heartbeat.begin(tickets[0])
    until_when = cards(real).until or 0
    heartbeat.start()
    until(lambda: (cards(real).until or 0) > until_when, "the lease is not renewed")
    heartbeat.stop()
    assert errors == []
    real.close()


def test_the_progress_of_long_work_is_written_between_renewals(store: SqlStore, clock: FakeClock) -> None:
    seen: list[tuple[int, int]] = []

    def build(task: Task) -> BuildResult:
        for done in range(1, 4):
            task.checkpoint(done=done)
            executor.heartbeat.flush_progress()
            seen.append((cards(store).done, cards(store).until or 0))
            clock.advance(SECOND)
        executor.heartbeat.flush_progress()  # no progress since the last write
        seen.append((cards(store).done, cards(store).until or 0))
        return BuildResult()

    executor = worker(store, clock, build)
    executor.run_next(1)
    done, until_when = zip(*seen, strict=True)
    assert done == (0, 2, 3, 3)  # the first value is not written within the first second
    assert until_when[0] < until_when[1] < until_when[2] == until_when[3]


def test_the_heartbeat_thread_writes_progress_long_before_it_renews(database_url: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(module, "PROGRESS_SECONDS", 0.01)
    real = open_store(database_url, rules=Rules(), clock=SystemClock())
    add(real, "doc")
    heartbeat = Heartbeat(real, SystemClock(), Rules())
    (ticket,) = real.claim_next(["cards"], "worker", 1)
    heartbeat.hold([ticket], SystemClock().monotonic())
    assert heartbeat.begin(ticket)
    heartbeat.record_progress(ticket, Progress(done=7))
    heartbeat.start()
    until(lambda: cards(real).done == 7, "the progress is not written")
    heartbeat.stop()
    real.close()


def test_a_worker_that_lost_its_lease_stops_at_the_next_checkpoint(store: SqlStore, clock: FakeClock) -> None:
    def lose(_task: Task, heartbeat: Heartbeat) -> None:
        clock.jump(121 * SECOND)  # the wall clock jumps, but the monotonic clock of the worker does not
        assert worker(store, clock, holder="other").run_next(1) == 1
        heartbeat.beat()

    assert str(stopped_by(store, clock, lose)) == "lease_lost"
    assert store.counters()["stale_write_rejected.extended"] == 1
    assert (cards(store).state, cards(store).fence, cards(store).attempts) == (SlotState.READY, 2, 2)


def test_a_worker_that_cannot_renew_stops_before_its_lease_expires(store: SqlStore, clock: FakeClock) -> None:
    away = Meddling(store, extend=raises(StoreUnavailable("the database is away")))
    patience = store.rules.renewal_timeout

    def wait(task: Task, heartbeat: Heartbeat) -> None:
        clock.advance(patience - SECOND)
        heartbeat.beat()
        task.checkpoint()  # the lease can still be renewed
        clock.advance(SECOND)
        heartbeat.beat()
        assert (cards(store).until or 0) > clock.now()

    assert patience < store.rules.lease
    assert str(stopped_by(away, clock, wait)) == "lease_not_renewed"
    assert (cards(store).state, cards(store).attempts) == (SlotState.QUEUED, 1)


def test_a_jump_of_the_wall_clock_stops_no_worker(store: SqlStore, clock: FakeClock) -> None:
    def build(task: Task) -> BuildResult:
        for jump in (timedelta(days=400), timedelta(days=-800)):
            clock.jump(jump)
            task.checkpoint()
        return BuildResult()

    worker(store, clock, build).run_next(1)
    assert cards(store).state is SlotState.READY


def test_a_superseded_worker_frees_the_slot_for_the_new_generation(store: SqlStore, clock: FakeClock) -> None:
    def supersede(_task: Task, heartbeat: Heartbeat) -> None:
        answer = store.admit([request("doc", Operation.CHANGE, slots=ONE, fingerprint="new")])[0]
        assert (answer.verdict, answer.generation) == ("accepted", 2)
        assert worker(store, clock, holder="other").run_next(1) == 0  # the old worker still holds the lease
        heartbeat.beat()

    job = cards(store).job
    assert str(stopped_by(store, clock, supersede)) == "lease_lost"
    assert store.job(job).outcome is Outcome.SUPERSEDED
    assert (cards(store).state, cards(store).holder, cards(store).attempts) == (SlotState.QUEUED, None, 0)
    assert worker(store, clock, holder="other").run_next(1) == 1  # without waiting for the lease to expire
    assert cards(store).built == 2


def test_a_superseded_worker_is_refused_at_its_next_write(store: SqlStore, clock: FakeClock) -> None:
    refused = []

    def build(task: Task) -> BuildResult:
        store.admit([request("doc", Operation.CHANGE, slots=ONE, fingerprint="new")])
        try:
            with task.guarded():
                raise AssertionError("a late write was let in")
        except StaleLease as stale:
            refused.append(stale)
            raise

    worker(store, clock, build).run_next(1)
    assert len(refused) == 1
    assert store.counters()["stale_write_rejected.guarded"] == 1
    assert worker(store, clock).run_next(1) == 1
    assert cards(store).built == 2


def test_a_cancel_by_another_caller_stops_the_work(store: SqlStore, clock: FakeClock) -> None:
    def cancel(_task: Task, heartbeat: Heartbeat) -> None:
        assert store.admit([request("doc", Operation.CANCEL)])[0].accepted
        heartbeat.beat()

    job = cards(store).job
    assert str(stopped_by(store, clock, cancel)) == "lease_lost"
    assert (cards(store).state, store.job(job).outcome) == (SlotState.CANCELLED, Outcome.CANCELLED)
    assert store.admit([request("doc", slots=ONE)])[0].accepted
    assert worker(store, clock).run_next(1) == 1
    assert cards(store).state is SlotState.READY


def test_a_delete_by_another_caller_stops_the_work_and_runs_immediately(store: SqlStore, clock: FakeClock) -> None:
    def delete(_task: Task, heartbeat: Heartbeat) -> None:
        assert store.admit([request("doc", Operation.DELETE)])[0].accepted
        assert worker(store, clock, holder="other").run_next(1) == 0  # not while the old worker can still write
        heartbeat.beat()

    assert str(stopped_by(store, clock, delete)) == "lease_lost"
    assert worker(store, clock, holder="other").run_next(1) == 1  # without waiting for the lease to expire
    with pytest.raises(UnknownOwner):
        cards(store)


def test_claims_that_wait_behind_a_slow_build_are_released(store: SqlStore, clock: FakeClock) -> None:
    add(store, "second", "third")
    others: list[str] = []

    def build(task: Task) -> BuildResult:
        assert task.ticket.key.owner == "doc"
        clock.advance(store.rules.heartbeat - SECOND)
        executor.heartbeat.beat()
        assert cards(store, "second").state is SlotState.RUNNING  # not before a full heartbeat interval
        clock.advance(SECOND)
        executor.heartbeat.beat()
        assert [(cards(store, one).state, cards(store, one).attempts) for one in ("second", "third")] == [
            ("queued", 0),
            ("queued", 0),
        ]
        assert worker(store, clock, build_too, holder="other").run_next(10) == 2
        return BuildResult()

    def build_too(task: Task) -> BuildResult:
        others.append(task.ticket.key.owner)
        return BuildResult()

    executor = worker(store, clock, build)
    executor.run_next(10)
    assert others == ["second", "third"]
    assert {cards(store, one).state for one in ("doc", "second", "third")} == {SlotState.READY}
    assert set(store.counters().values()) == {0}


def test_a_claim_that_cannot_be_released_waits_for_its_lease_to_expire(store: SqlStore, clock: FakeClock) -> None:
    add(store, "second")
    away = Meddling(store, release=raises(StoreUnavailable("the database is away")))

    def build(task: Task) -> BuildResult:
        clock.advance(store.rules.heartbeat)
        executor.heartbeat.beat()
        return BuildResult()

    executor = worker(away, clock, build)
    executor.run_next(10)
    assert [cards(store, one).state for one in ("doc", "second")] == ["ready", "running"]
    clock.advance(store.rules.lease)
    assert worker(store, clock).run_next(10) == 1
    assert cards(store, "second").state is SlotState.READY


def test_a_heartbeat_in_progress_is_not_refused_when_the_work_finishes(store: SqlStore, clock: FakeClock) -> None:
    sent, settling = threading.Event(), threading.Event()

    def extend(beats: object) -> None:
        sent.set()
        assert settling.wait(PATIENCE_SECONDS)
        store.extend(beats)  # type: ignore[arg-type]

    def build(_task: Task) -> BuildResult:
        beating.start()
        assert sent.wait(PATIENCE_SECONDS)
        return BuildResult()

    executor = worker(
        Meddling(store, extend=extend),
        clock,
        build,
        reach=lambda point: settling.set() if point == "settling" else None,
    )
    beating = threading.Thread(target=executor.heartbeat.beat)
    executor.run_next(1)
    beating.join()
    assert cards(store).state is SlotState.READY
    assert set(store.counters().values()) == {0}


def test_two_successive_claims_of_a_slot_in_one_process_keep_separate_leases(store: SqlStore, clock: FakeClock) -> None:
    heartbeat = Heartbeat(store, clock, store.rules)
    old = store.claim_next(["cards"], "worker", 1)
    heartbeat.hold(old, clock.monotonic())
    clock.advance(store.rules.lease)
    new = store.claim_next(["cards"], "worker", 1)
    assert (old[0].slot, old[0].fence + 1) == (new[0].slot, new[0].fence)
    heartbeat.hold(new, clock.monotonic())
    with pytest.raises(StopWork, match="lease_lost"):
        heartbeat.check(old[0])
    heartbeat.record_progress(old[0], Progress(done=99))
    heartbeat.stop_renewing(old)
    heartbeat.check(new[0])
    heartbeat.beat()
    assert cards(store).progress.done == 0
    assert set(store.counters().values()) == {0}
