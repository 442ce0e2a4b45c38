"""Executor: every way in which an attempt can end, and the state of the database afterwards."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from holdfast.engine.slot import BuildResult, Fault, Ring
from holdfast.engine.states import Operation, Outcome, SlotState, Status
from holdfast.errors import Outage, Permanent, StoreUnavailable, Transient, UnknownOwner
from tests.support.scripted_workers import Meddling, raises, worker
from tests.support.stores import ONE, request

if TYPE_CHECKING:
    from holdfast.engine.slot import Slot
    from holdfast.engine.store.sql_store import SqlStore
    from holdfast.engine.task import Task
    from tests.support.clock import FakeClock

MINUTE = timedelta(minutes=1)
LATER = timedelta(days=1)


def add(store: SqlStore, *owners: str) -> None:
    store.admit([request(owner, slots=ONE) for owner in owners])


def cards(store: SqlStore, owner: str = "doc") -> Slot:
    return store.slot("shelf", owner, "cards")


def outcome(store: SqlStore, owner: str = "doc") -> Outcome | None:
    return store.job(cards(store, owner).job).outcome


def events(store: SqlStore) -> list[str]:
    return [one.event.type for one in store.events()]


def test_a_build_that_returns_a_result_is_published(store: SqlStore, clock: FakeClock) -> None:
    store.admit([request()])
    executor = worker(store, clock)
    assert (executor.run_next(10), executor.run_next(10), executor.run_next(10)) == (1, 2, 0)
    owner = store.owner("shelf", "doc")
    assert owner.status is Status.SUCCESS
    assert {(slot.state, slot.built, slot.attempts, slot.holder) for slot in owner.slots} == {("ready", 1, 1, None)}
    assert store.job(owner.slots[0].job).outcome is Outcome.SUCCESS


def test_a_build_with_missing_chunks_is_published_as_degraded(store: SqlStore, clock: FakeClock) -> None:
    add(store, "doc")
    worker(store, clock, lambda _: BuildResult(missing=2)).run_next(1)
    assert (cards(store).state, cards(store).missing, outcome(store)) == ("ready", 2, Outcome.DEGRADED)


def test_a_build_that_returns_no_result_has_failed(store: SqlStore, clock: FakeClock) -> None:
    store.admit([request()])
    worker(store, clock, lambda _: None).run_next(1)
    owner = store.owner("shelf", "doc")
    content, *waiting = owner.slots
    assert (content.state, content.error) == (SlotState.FAILED, Fault("no_result"))
    assert {(slot.state, slot.error and slot.error.code) for slot in waiting} == {("failed", "needed_slot_failed")}
    assert (owner.status, store.job(content.job).outcome) == (Status.FAILED, Outcome.FAILED)


def test_an_outdated_or_duplicate_ring_does_nothing(store: SqlStore, clock: FakeClock) -> None:
    add(store, "doc")
    ring = store.ring(store.find_unrung(["cards"], 1).slots)[0]
    store.admit([request("doc", Operation.CHANGE, slots=ONE, fingerprint="new")])
    executor = worker(store, clock)
    assert not executor.run(ring)
    fresh = Ring(slot=ring.slot, owner=ring.owner, key=ring.key, generation=2)
    assert executor.run(fresh)
    assert not executor.run(fresh)
    assert events(store).count("slot.claimed") == 1


def test_quick_results_are_committed_together_and_slow_ones_do_not_wait(store: SqlStore, clock: FakeClock) -> None:
    add(store, "quick", "slow", "last")
    seen = []

    def build(task: Task) -> BuildResult:
        seen.append({owner: str(cards(store, owner).state) for owner in ("quick", "slow")})
        if task.ticket.key.owner == "slow":
            clock.advance(timedelta(seconds=1))
        return BuildResult()

    assert worker(store, clock, build).run_next(10) == 3
    assert seen == [
        {"quick": "running", "slow": "running"},
        {"quick": "running", "slow": "running"},
        {"quick": "ready", "slow": "ready"},
    ]
    assert cards(store, "last").state is SlotState.READY


def test_a_transient_failure_is_retried_after_a_delay(store: SqlStore, clock: FakeClock) -> None:
    add(store, "doc")
    executor = worker(store, clock, raises(Transient("rate_limited", "slow down", params={"limit": "60"})))
    executor.run_next(1)
    slot = cards(store)
    assert (slot.state, slot.attempts, slot.holder) == (SlotState.WAITING, 1, None)
    assert slot.error == Fault("rate_limited", {"limit": "60", "message": "slow down"})
    assert slot.due_at == clock.now() + 60_000_000
    assert store.owner("shelf", "doc").status is Status.INDEXING
    assert executor.run_next(1) == 0
    clock.advance(MINUTE)
    assert worker(store, clock).run_next(1) == 1
    assert (cards(store).state, cards(store).attempts, cards(store).error) == (SlotState.READY, 2, None)


def test_retry_delays_double_and_a_provider_can_request_longer_ones(store: SqlStore, clock: FakeClock) -> None:
    add(store, "doc")
    waits = []
    for error in (
        Transient("timeout"),
        Transient("timeout"),
        Transient("rate_limited", retry_after=timedelta(minutes=30)),
    ):
        worker(store, clock, raises(error)).run_next(1)
        due = cards(store).due_at
        assert due is not None
        waits.append((due - clock.now()) // 60_000_000)
        clock.advance(timedelta(minutes=30))
    assert waits == [1, 2, 30]


def test_the_last_attempt_fails_with_its_own_error(store: SqlStore, clock: FakeClock) -> None:
    store.admit([request()])
    executor = worker(store, clock, lambda task: raises(Transient(f"failure_{task.ticket.attempt}"))())
    for _ in range(3):
        executor.run_next(1)
        assert store.slot("shelf", "doc", "content").state is SlotState.WAITING
        clock.advance(LATER)
    executor.run_next(1)
    content = store.slot("shelf", "doc", "content")
    assert (content.state, content.attempts, content.error) == (SlotState.FAILED, 4, Fault("failure_4"))
    assert store.slot("shelf", "doc", "vector").error == Fault("needed_slot_failed", {"kind": "content"})
    clock.advance(LATER)
    assert executor.run_next(1) == 0


def test_a_permanent_failure_fails_at_once(store: SqlStore, clock: FakeClock) -> None:
    add(store, "doc")
    worker(store, clock, raises(Permanent("bad_file", "not a PDF"))).run_next(1)
    assert (cards(store).state, cards(store).attempts) == (SlotState.FAILED, 1)
    assert cards(store).error == Fault("bad_file", {"message": "not a PDF"})
    assert outcome(store) is Outcome.FAILED


def test_an_outage_never_counts_as_an_attempt(store: SqlStore, clock: FakeClock) -> None:
    add(store, "doc")
    executor = worker(store, clock, raises(Outage("provider_down")))
    for _ in range(10):
        assert executor.run_next(1) == 1
        assert (cards(store).state, cards(store).attempts) == (SlotState.WAITING, 0)
        clock.advance(LATER)
    worker(store, clock).run_next(1)
    assert cards(store).state is SlotState.READY


def test_an_unexpected_error_is_retried(store: SqlStore, clock: FakeClock) -> None:
    add(store, "doc")
    worker(store, clock, raises(ZeroDivisionError("x" * 1000))).run_next(1)
    error = cards(store).error
    assert cards(store).state is SlotState.WAITING
    assert error == Fault("unexpected", {"type": "ZeroDivisionError", "detail": "x" * 500})


def test_one_failure_in_a_batch_does_not_affect_the_others(store: SqlStore, clock: FakeClock) -> None:
    add(store, "bad", "good", "empty")

    def build(task: Task) -> BuildResult | None:
        if task.ticket.key.owner == "bad":
            raise Permanent("bad_file")
        return BuildResult() if task.ticket.key.owner == "good" else None

    assert worker(store, clock, build).run_next(10) == 3
    assert [cards(store, owner).state for owner in ("bad", "good", "empty")] == ["failed", "ready", "failed"]


def test_a_worker_that_shuts_down_releases_its_claims(store: SqlStore, clock: FakeClock) -> None:
    add(store, "done", "begun", "untouched")
    built = []

    def build(task: Task) -> BuildResult:
        built.append(task.ticket.key.owner)
        if task.ticket.key.owner == "begun":
            executor.stop()
            task.checkpoint()
        return BuildResult()

    executor = worker(store, clock, build)
    executor.run_next(10)
    assert built == ["done", "begun"]
    assert [(cards(store, owner).state, cards(store, owner).attempts) for owner in ("done", "begun", "untouched")] == [
        ("ready", 1),
        ("queued", 0),
        ("queued", 0),
    ]
    assert worker(store, clock).run_next(10) == 2
    assert events(store).count("job.success") == 3


def test_a_system_exit_inside_a_build_is_not_caught(store: SqlStore, clock: FakeClock) -> None:
    add(store, "doc")
    executor = worker(store, clock, raises(SystemExit(3)))
    with pytest.raises(SystemExit):
        executor.run_next(1)
    clock.advance(store.rules.lease)
    assert worker(store, clock).run_next(1) == 1
    assert cards(store).state is SlotState.READY


def test_only_the_late_result_of_a_batch_is_refused(store: SqlStore, clock: FakeClock) -> None:
    add(store, "early", "changed", "late")

    def build(task: Task) -> BuildResult:
        if task.ticket.key.owner == "changed":
            store.admit([request("changed", Operation.CHANGE, slots=ONE, fingerprint="new")])
        return BuildResult()

    worker(store, clock, build).run_next(10)
    assert store.counters()["stale_write_rejected.completed"] == 1
    assert [cards(store, owner).state for owner in ("early", "changed", "late")] == ["ready", "queued", "ready"]
    # The executor released it, so that the new generation does not wait for the lease to expire.
    assert (cards(store, "changed").holder, cards(store, "changed").built) == (None, 0)
    assert worker(store, clock).run_next(10) == 1
    assert cards(store, "changed").built == 2


def test_a_slot_whose_commit_failed_is_claimed_again_after_the_lease_expires(store: SqlStore, clock: FakeClock) -> None:
    add(store, "doc")
    away = Meddling(store, complete=raises(StoreUnavailable("the database is away")))
    assert worker(away, clock).run_next(1) == 1
    assert cards(store).state is SlotState.RUNNING
    assert worker(store, clock).run_next(1) == 0
    clock.advance(store.rules.lease)
    assert worker(store, clock).run_next(1) == 1
    assert (cards(store).state, cards(store).attempts, cards(store).fence) == (SlotState.READY, 2, 2)


def test_the_last_completed_removal_deletes_the_owner(store: SqlStore, clock: FakeClock) -> None:
    store.admit([request()])
    worker(store, clock).run_next(10)
    answer = store.admit([request("doc", Operation.DELETE)])[0]
    removed = []
    worker(store, clock, remove=lambda task: removed.append(task.ticket.key.kind)).run_next(10)
    assert sorted(removed) == ["content", "graph", "vector"]
    with pytest.raises(UnknownOwner):
        store.owner("shelf", "doc")
    assert store.job(str(answer.job)).outcome is Outcome.SUCCESS


def test_a_failed_removal_is_retried_until_it_succeeds(store: SqlStore, clock: FakeClock) -> None:
    add(store, "doc")
    worker(store, clock).run_next(1)
    store.admit([request("doc", Operation.DELETE)])
    errors = [Transient("timeout"), Permanent("refused"), ValueError("odd"), Outage("down")] * 3
    for error in errors:
        assert worker(store, clock, remove=raises(error)).run_next(1) == 1
        slot = cards(store)
        assert (slot.state, slot.holder) == (SlotState.DELETING, None)
        assert slot.error is not None
        assert slot.error.code == getattr(error, "code", "unexpected")
        assert worker(store, clock).run_next(1) == 0  # the next attempt is not due yet
        clock.advance(LATER)
    assert store.owner("shelf", "doc").status is Status.DELETING
    assert worker(store, clock).run_next(1) == 1
    with pytest.raises(UnknownOwner):
        store.owner("shelf", "doc")


def levels(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the levels of the log lines about refused writes, without debug lines."""
    records = [one for one in caplog.records if one.name == "holdfast" and one.levelno > logging.DEBUG]
    assert {one.getMessage().partition(" ")[0] for one in records} <= {"stale_write.rejected"}
    return [one.levelname for one in records]


@pytest.mark.parametrize("writes", [False, True], ids=["when it publishes", "when it writes"])
@pytest.mark.parametrize("operation", [Operation.DELETE, Operation.CANCEL])
def test_a_worker_stops_at_the_next_checkpoint_after_its_batch_was_deleted_or_cancelled(
    store: SqlStore, clock: FakeClock, caplog: pytest.LogCaptureFixture, operation: Operation, *, writes: bool
) -> None:
    caplog.set_level(logging.DEBUG, "holdfast")
    names = [f"doc {n}" for n in range(22)]
    add(store, *names, "kept")
    begun: list[str] = []

    def build(task: Task) -> BuildResult:
        begun.append(task.ticket.key.owner)
        if len(begun) == 1:
            store.admit([request(name, operation, slots=()) for name in names])
            clock.advance(timedelta(seconds=1))  # makes the executor write this result before the next build begins
        if writes:
            with task.guarded():
                pass
        return BuildResult()

    executor = worker(store, clock, build)
    executor.run_next(100)
    assert begun == ["doc 0", "kept"]
    assert levels(caplog) == ["INFO"] * 2, "one line for what was late, one for all others that stopped"
    assert cards(store, "kept").state is SlotState.READY
    if operation is Operation.DELETE:
        executor.run_next(100)
        assert events(store).count("slot.forgotten") == len(names)


def test_a_refused_write_after_a_takeover_is_logged_as_a_warning(
    store: SqlStore, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    add(store, "doc")

    def build(_: Task) -> BuildResult:
        clock.advance(timedelta(hours=1))
        assert store.claim_next(("cards",), "other", 1)
        return BuildResult()

    worker(store, clock, build).run_next(1)
    assert levels(caplog) == ["WARNING"]
