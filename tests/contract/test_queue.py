"""The contract of the queue controls, on both databases: priorities, cancels, pauses, quotas, lists and overview."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from datetime import timedelta
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import select
from sqlalchemy.dialects import sqlite

from holdfast.clock import Moment, micros
from holdfast.db.batches import NOW
from holdfast.engine import waiting
from holdfast.engine.admission import Verdict
from holdfast.engine.plan import Expire
from holdfast.engine.problems import format_wait_reason
from holdfast.engine.queue import DAY, WHOLE_QUEUE
from holdfast.engine.reconciler import Reconciler
from holdfast.engine.slot import BuildResult
from holdfast.engine.states import Operation, Outcome, SlotState, Status
from holdfast.engine.store import queue_control as queueing
from holdfast.engine.store import queue_queries as listing
from holdfast.engine.store import queue_statements as statements
from holdfast.engine.store import tables
from holdfast.engine.store.base import JobFilter
from holdfast.errors import BadRequest, StaleLease, StopWork, StoreUnavailable, UnknownJob, UnknownOwner
from tests.contract.steps import (
    REFUSED,
    ask,
    audit,
    back,
    beat,
    build,
    differences,
    everything,
    failed,
    finished,
    ring_of,
    rows,
    side_by_side,
    states,
    take,
)
from tests.support.clock import START
from tests.support.scripted_workers import Carrier, Meddling, raises, worker
from tests.support.stores import ONE, open_test_store, request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from holdfast.engine.admission import AdmissionResult
    from holdfast.engine.slot import Ticket
    from holdfast.engine.store.sql_store import SqlStore
    from holdfast.engine.task import Task
    from tests.support.clock import FakeClock

O, S, V = Operation, SlotState, Verdict  # noqa: E741 - short names keep the tables readable
SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
TICK = timedelta(microseconds=1)
LEASE = timedelta(seconds=120)


@pytest.fixture
def books(store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> SqlStore:
    """Return a store that checks all invariants after every transaction."""
    write = store.database.write

    def audited(work: Callable[..., Any], *, durable: bool) -> Any:
        result = write(work, durable=durable)
        audit(store)
        return result

    monkeypatch.setattr(store.database, "write", audited)
    return store


@pytest.fixture
def several(database_url: str, clock: FakeClock) -> Iterator[list[SqlStore]]:
    """Open the same database several times, as several processes would."""
    numbers = count(1)
    with ExitStack() as stack:
        stores = [open_test_store(database_url, clock, ids=lambda: f"job-{next(numbers)}") for _ in range(4)]
        for store in stores:
            stack.callback(store.close)
        yield stores


def job_for(store: SqlStore, owner: str = "doc", **more: Any) -> str:
    """Request one slot and return the id of its job."""
    job = ask(store, owner, **{"slots": ONE, **more}).job
    assert job is not None
    return job


def told(answers: list[AdmissionResult]) -> list[tuple[str, str]]:
    return [(str(answer.verdict), answer.reason) for answer in answers]


def types(store: SqlStore, thing: str) -> list[str]:
    """Return the types of all events about `thing`: job or queue."""
    return [one.event.type for one in store.events() if one.event.type.startswith(f"{thing}.")]


def order(tickets: list[Ticket]) -> list[str]:
    return [ticket.key.owner for ticket in tickets]


def test_a_changed_priority_decides_which_slot_is_claimed_next(books: SqlStore, clock: FakeClock) -> None:
    jobs = {}
    for name in "abcd":
        jobs[name] = job_for(books, name)
        clock.advance(SECOND)
    assert told(books.reprioritise([jobs["c"], jobs["d"]], 1)) == [("accepted", "reprioritised")] * 2
    assert [slot.owner for slot in books.find_unrung(["cards"], 10).slots] == ["c", "d", "a", "b"]
    books.reprioritise([jobs["a"]], 9)
    assert order(books.claim_next(["cards"], "ann", 10)) == ["c", "d", "b", "a"]
    assert [books.job(jobs[name]).priority for name in "abcd"] == [9, 5, 1, 1]


def test_a_new_priority_of_a_job_changes_only_the_priority_of_its_unsettled_slots(
    books: SqlStore, clock: FakeClock
) -> None:
    job = ask(books).job or ""
    other = job_for(books, "other")
    build(books, "content")
    books.fail([failed(take(books, "graph"), MINUTE)])
    ticket = take(books, "vector")
    before = {row["id"]: row for row in rows(books, tables.slots)}
    clock.advance(SECOND)
    (answer,) = books.reprioritise([job], 0)
    assert (answer.verdict, answer.status, answer.job, answer.generation) == (V.ACCEPTED, Status.INDEXING, job, 1)
    unsettled = {slot.id for slot in books.owner("shelf", "doc").slots if not slot.resting}
    assert len(unsettled) == 2
    for row in rows(books, tables.slots):
        assert row == before[row["id"]] | ({"priority": 0} if row["id"] in unsettled else {})
    books.complete([finished(ticket)])
    assert (books.job(job).prioritised_at, books.job(other).prioritised_at) == (clock.now(), None)
    assert books.job(other).priority == 5


def test_a_blocked_slot_is_queued_with_the_new_priority(books: SqlStore) -> None:
    job = ask(books).job or ""
    ticket = take(books, "content")
    books.reprioritise([job], 2)
    books.complete([finished(ticket)])
    assert books.slot("shelf", "doc", "vector").priority == 2


def test_a_running_slot_that_is_retried_has_the_new_priority(books: SqlStore, clock: FakeClock) -> None:
    job = job_for(books)
    ticket = take(books, "cards")
    books.reprioritise([job], 0)
    books.fail([failed(ticket, MINUTE)])
    job_for(books, "other", priority=1)
    clock.advance(MINUTE)
    assert order(books.claim_next(["cards"], "ann", 1)) == ["doc"]


def test_a_change_of_priority_makes_one_event_with_both_priorities(books: SqlStore) -> None:
    job = ask(books).job
    books.reprioritise([job or ""], 3)
    (event,) = [one.event for one in books.events() if one.event.type == "job.reprioritised"]
    assert (event.base, event.owner, event.job, event.generation) == ("shelf", "doc", job, 1)
    assert event.parsed_data == {"from": 5, "to": 3}


def test_only_an_active_job_gets_a_new_priority(books: SqlStore) -> None:
    old, same, new = job_for(books, "old"), job_for(books, "same"), job_for(books, "new")
    build(books, "cards", owner="old")
    before = everything(books)
    answers = books.reprioritise([old, same, "nobody"], 5)
    assert told(answers) == [("skipped", "nothing_active"), ("skipped", "same_priority"), ("rejected", "unknown_job")]
    assert [answer.job for answer in answers] == [old, same, "nobody"]
    assert told(books.reprioritise([old], 1)) == [("skipped", "nothing_active")]
    assert everything(books) == before
    assert told(books.reprioritise([new, new], 1)) == [("accepted", "reprioritised")] * 2
    assert types(books, "job") == ["job.success", "job.reprioritised"]
    assert books.reprioritise([], 1) == []
    for priority in (-1, 10):
        with pytest.raises(BadRequest, match=rf"The priority is {priority}\. Choose a number from 0 \(first\)"):
            books.reprioritise([new], priority)


def test_a_new_priority_takes_effect_after_the_rings_already_sent(books: SqlStore, clock: FakeClock) -> None:
    carrier = Carrier(room=2)
    reconciler = Reconciler(books, carrier, ["cards"], books.rules, clock=clock)
    jobs = {}
    for name in "abcd":
        jobs[name] = job_for(books, name)
        clock.advance(SECOND)
    reconciler.reconcile()
    names = {slot["id"]: slot["owner_id"] for slot in rows(books, tables.slots)}
    first = [names[ring.slot] for ring in carrier.carried]
    books.reprioritise([jobs["d"]], 0)
    reconciler.reconcile()
    assert len(carrier.carried) == 2, "there is no room for another ring"
    assert len(books.claim(carrier.carried[:1], "ann")) == 1, "a message that is under way may be answered"
    reconciler.reconcile()
    third = names[carrier.carried[2].slot]
    assert [books.owner("shelf", name).id for name in "abd"] == [*first, third], "the urgent one goes before c"


def test_a_job_does_not_count_as_overtaken_before_its_priority_was_raised(books: SqlStore, clock: FakeClock) -> None:
    late = job_for(books, "late", priority=9)
    clock.advance(SECOND)
    job_for(books, "young")
    take(books, "cards", "young")
    clock.advance(10 * MINUTE)
    books.reprioritise([late], 5)
    assert ask(books, "late", slots=ONE).reason == "already_in_progress"
    job_for(books, "younger")
    clock.advance(SECOND)
    take(books, "cards", "younger")
    assert ask(books, "late", slots=ONE).reason == "stuck"


def test_a_job_whose_priority_was_lowered_later_does_not_count_as_overtaking(books: SqlStore, clock: FakeClock) -> None:
    job_for(books, "old")
    clock.advance(SECOND)
    urgent = job_for(books, "urgent", priority=0)
    take(books, "cards", "urgent")
    clock.advance(10 * MINUTE)
    books.reprioritise([urgent], 5)
    assert ask(books, "old", slots=ONE).reason == "already_in_progress"


def test_a_job_is_cancelled_by_its_id(books: SqlStore) -> None:
    queued, running = job_for(books, "queued"), job_for(books, "running")
    ticket = take(books, "cards", "running")
    answers = books.cancel_jobs([running, queued], "ann")
    assert told(answers) == [("accepted", "cancel")] * 2
    assert [answer.job for answer in answers] == [running, queued]
    assert [books.job(job).outcome for job in (queued, running)] == [Outcome.CANCELLED] * 2
    with pytest.raises(StaleLease):
        books.extend([beat(ticket)])
    with pytest.raises(StaleLease):
        books.complete([finished(ticket)])
    assert ask(books, "running", slots=ONE).accepted
    assert take(books, "cards", "running").fence > ticket.fence, "the slot was free at once"


def test_cancelling_a_job_that_is_not_active_changes_nothing(books: SqlStore) -> None:
    change: dict[str, Any] = {"operation": O.CHANGE, "slots": ONE}
    old = job_for(books, **change, fingerprint="a")
    new = job_for(books, **change, fingerprint="b")
    done = job_for(books, "done")
    build(books, "cards", owner="done")
    before = everything(books)
    answers = books.cancel_jobs([old, done, "nobody"])
    assert told(answers) == [("skipped", "nothing_active")] * 2 + [("rejected", "unknown_job")]
    assert [answer.job for answer in answers] == [new, None, "nobody"], "the answer names the job that stands there"
    assert differences(before, everything(books)) == REFUSED
    assert [(one.owner, one.reason) for one in books.refusals()] == [
        ("doc", "nothing_active"),
        ("done", "nothing_active"),
    ]


def test_an_old_job_id_cancels_neither_a_delete_nor_a_new_owner_of_the_same_name(books: SqlStore) -> None:
    old = job_for(books)
    deleting = ask(books, operation=O.DELETE).job or ""
    assert told(books.cancel_jobs([old, deleting])) == [("skipped", "nothing_active"), ("rejected", "being_deleted")]
    books.forget([take(books, "cards")])
    assert told(books.cancel_jobs([old, deleting])) == [("skipped", "nothing_active")] * 2
    new = job_for(books)
    assert told(books.cancel_jobs([old, deleting])) == [("skipped", "nothing_active")] * 2
    assert books.job(new).outcome is None


def test_a_job_named_twice_is_cancelled_once(books: SqlStore) -> None:
    job = job_for(books)
    assert told(books.cancel_jobs([job, job]))[0] == ("accepted", "cancel")
    assert types(books, "job") == ["job.cancelled"]


def test_of_many_simultaneous_cancels_of_a_job_one_is_accepted(several: list[SqlStore]) -> None:
    job = job_for(several[0])
    answers = side_by_side(12, lambda n: several[n % 4].cancel_jobs([job])[0])
    assert sorted(told(answers)) == [("accepted", "cancel")] + [("skipped", "nothing_active")] * 11
    assert types(several[0], "job") == ["job.cancelled"]
    audit(several[0])


def test_an_old_job_id_never_cancels_the_job_that_replaced_it(several: list[SqlStore]) -> None:
    old = [job_for(several[0], f"doc {n}", operation=O.CHANGE, fingerprint="a") for n in range(8)]

    def work(n: int) -> AdmissionResult:
        store, which = several[n % 4], n // 2
        if n % 2:
            return store.cancel_jobs([old[which]])[0]
        return ask(store, f"doc {which}", O.CHANGE, slots=ONE, fingerprint="b")

    side_by_side(16, work)
    for n in range(8):
        assert several[0].owner("shelf", f"doc {n}").status is Status.QUEUED, "the change is still wanted"
    audit(several[0])


def test_a_worker_stops_at_its_first_heartbeat_after_a_cancel(books: SqlStore, clock: FakeClock) -> None:
    job, stops = job_for(books), []

    def work(task: Task) -> None:
        books.cancel_jobs([job])
        task.checkpoint()  # the worker has not seen the cancel yet
        task.renew()
        with pytest.raises(StopWork) as stop:
            task.checkpoint()
        stops.append(stop.value.reason)
        raise stop.value

    worker(books, clock, work).run_next(1)
    assert stops == ["lease_lost"]
    assert (states(books), books.job(job).outcome) == ({"cards": "cancelled"}, Outcome.CANCELLED)


def test_the_result_of_a_worker_that_misses_a_cancel_is_discarded(books: SqlStore, clock: FakeClock) -> None:
    job = job_for(books)

    def work(_: Task) -> BuildResult:
        books.cancel_jobs([job])
        assert ask(books, slots=ONE).accepted
        assert take(books, "cards", holder="another").fence == 3, "nobody waits for the one that does not stop"
        return BuildResult()

    worker(books, clock, work).run_next(1)
    slot = books.slot("shelf", "doc", "cards")
    assert (slot.state, slot.holder, slot.built) == (S.RUNNING, "another", 0)


SCOPES = [None, "shelf"]


@pytest.mark.parametrize("base", SCOPES)
def test_paused_slots_are_not_claimed_until_they_are_resumed(books: SqlStore, base: str | None) -> None:
    job_for(books)
    ring = ring_of(books.slot("shelf", "doc", "cards"))
    assert books.pause(base, requester="ann")
    assert books.claim([ring], "bob") == []
    assert books.claim_next(["cards"], "bob", 10) == []
    assert books.resume(base)
    assert len(books.claim([ring], "bob")) == 1


@pytest.mark.parametrize("base", SCOPES)
def test_a_pause_also_holds_back_slots_that_wait_for_a_retry(
    books: SqlStore, clock: FakeClock, base: str | None
) -> None:
    job_for(books)
    books.fail([failed(take(books, "cards"), MINUTE)])
    slot = books.slot("shelf", "doc", "cards")
    books.pause(base)
    clock.advance(HOUR)
    assert books.claim([ring_of(slot)], "bob") == []
    assert books.claim_next(["cards"], "bob", 10) == []
    assert books.find_due("cards", 10).slots == []
    assert books.ring([slot]) == []
    books.resume(base)
    assert len(books.find_due("cards", 10).slots) == 1
    assert len(books.claim_next(["cards"], "bob", 10)) == 1


def test_a_paused_base_does_not_delay_other_bases(books: SqlStore, clock: FakeClock) -> None:
    for base, name in (("shelf", "first"), ("shelf", "second"), ("attic", "third")):
        job_for(books, name, base=base)
        clock.advance(SECOND)
    books.pause("shelf")
    assert [slot.owner for slot in books.find_unrung(["cards"], 1).slots] == ["third"]
    assert order(books.claim_next(["cards"], "ann", 1)) == ["third"]


def test_paused_due_slots_do_not_use_up_the_limit_of_find_due(books: SqlStore, clock: FakeClock) -> None:
    for base in ("shelf", "attic"):
        job_for(books, base=base)
        (ticket,) = books.claim_next(["cards"], "ann", 1)
        books.fail([failed(ticket, MINUTE)])
        clock.advance(SECOND)
    clock.advance(MINUTE)
    assert [slot.base for slot in books.find_due("cards", 1).slots] == ["shelf"]
    books.pause("shelf")
    assert [slot.base for slot in books.find_due("cards", 1).slots] == ["attic"]
    assert [ticket.key.base for ticket in books.claim_next(["cards"], "ann", 1)] == ["attic"]


@pytest.mark.parametrize("base", SCOPES)
def test_deletes_are_carried_out_during_a_pause(books: SqlStore, clock: FakeClock, base: str | None) -> None:
    job_for(books, "a")
    job_for(books, "b")
    books.pause(base, stop=True)
    ask(books, "a", O.DELETE)
    ask(books, "b", O.DELETE)
    (first,) = books.find_due("cards", 1).slots
    (ring,) = books.ring([first])
    (ticket,) = books.claim([ring], "bob")
    assert books.find_recalled([ticket]) == []
    (other,) = books.claim_next(["cards"], "bob", 10)
    books.fail([failed(other, SECOND)])
    clock.advance(SECOND)
    (other,) = books.claim_next(["cards"], "bob", 10)
    books.forget([ticket, other])
    assert rows(books, tables.owners) == []


def test_running_slots_finish_during_a_pause_and_their_dependents_wait(books: SqlStore) -> None:
    ask(books)
    ticket = take(books, "content")
    books.pause()
    books.extend([beat(ticket, done=1)])
    assert books.find_recalled([ticket]) == []
    books.complete([finished(ticket)])
    assert states(books) == {"content": "ready", "vector": "queued", "graph": "queued"}
    assert books.claim_next(["vector", "graph"], "bob", 10) == []


def test_admission_accepts_requests_during_a_pause(books: SqlStore) -> None:
    books.pause()
    assert ask(books, slots=ONE).accepted
    assert ask(books, slots=ONE).reason == "already_in_progress"
    assert ask(books, operation=O.CANCEL).accepted


def test_a_pause_applies_to_every_process_and_survives_a_restart(
    database_url: str, several: list[SqlStore], clock: FakeClock
) -> None:
    here, there, *_ = several
    job_for(here)
    here.pause("shelf", requester="ann")
    assert there.claim_next(["cards"], "bob", 10) == []
    reopened = open_test_store(database_url, clock)
    assert reopened.claim_next(["cards"], "bob", 10) == []
    (pause,) = reopened.pauses()
    assert (pause.base, pause.since, pause.stop, pause.requester) == ("shelf", START, False, "ann")
    there.resume("shelf")
    assert len(reopened.claim_next(["cards"], "bob", 10)) == 1
    reopened.close()


def test_a_repeated_pause_or_resume_makes_no_second_event(books: SqlStore, clock: FakeClock) -> None:
    assert [books.pause(), books.pause(), books.pause(requester="bob")] == [True, False, False]
    clock.advance(MINUTE)
    assert books.pause(stop=True), "from now on what runs is given back, too"
    assert [(one.since, one.stop, one.base) for one in books.pauses()] == [(START, True, WHOLE_QUEUE)]
    clock.advance(MINUTE)
    assert [books.resume(), books.resume(), books.resume("shelf")] == [True, False, False]
    resumed = rows(books, tables.pauses)[0]["resumed_at"]
    assert (resumed, books.pauses()) == (clock.now(), [])
    clock.advance(MINUTE)
    assert not books.resume()
    assert rows(books, tables.pauses)[0]["resumed_at"] == resumed
    assert books.pause()
    assert [(one.since, one.stop) for one in books.pauses()] == [(clock.now(), False)]
    assert types(books, "queue") == ["queue.paused", "queue.paused", "queue.resumed", "queue.paused"]
    for base, code in (("", "queue_base_empty"), ("a\0b", "nul_character"), ("\ud800", "lone_surrogate")):
        with pytest.raises(BadRequest) as refused:
            books.pause(base)
        assert refused.value.subcode == code


def test_a_pause_applies_to_the_named_base_only(books: SqlStore) -> None:
    books.pause("attic")
    books.resume("attic")
    assert books.pause("shelf", stop=True)
    assert [(one.base, one.stop) for one in books.pauses()] == [("shelf", True)]


def test_the_whole_queue_and_a_base_are_paused_independently(books: SqlStore) -> None:
    job_for(books)
    job_for(books, base="attic")
    books.pause()
    books.pause("shelf")
    assert [one.base for one in sorted(books.pauses(), key=lambda one: one.base)] == [WHOLE_QUEUE, "shelf"]
    books.resume("shelf")
    assert books.claim_next(["cards"], "ann", 10) == [], "the whole queue is still paused"
    books.pause("shelf")
    books.resume()
    assert [ticket.key.base for ticket in books.claim_next(["cards"], "ann", 10)] == ["attic"]


@pytest.mark.parametrize("base", SCOPES)
def test_a_resume_clears_the_ring_times_of_paused_slots(books: SqlStore, clock: FakeClock, base: str | None) -> None:
    job_for(books)
    job_for(books, base="attic")
    assert len(books.ring(books.find_unrung(["cards"], 10).slots)) == 2
    books.pause(base)
    clock.advance(SECOND)
    books.resume(base)
    again = [slot.base for slot in books.find_unrung(["cards"], 10).slots]
    assert sorted(again) == (["attic", "shelf"] if base is None else ["shelf"])


def test_slots_without_a_ring_do_not_use_up_the_batch_that_a_resume_clears(
    books: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queueing, "LARGEST_BATCH", 1)
    job_for(books, "never")
    job_for(books, "rung")
    books.ring([books.slot("shelf", "rung", "cards")])
    books.pause()
    books.resume()
    assert books.slot("shelf", "rung", "cards").rung_at is None


def test_a_resume_wakes_the_workers(database_url: str, clock: FakeClock) -> None:
    wakes: list[None] = []
    store = open_test_store(database_url, clock, wake=lambda: wakes.append(None))
    store.pause()
    assert not wakes
    store.resume()
    store.resume()
    assert len(wakes) == 1
    store.close()


@pytest.mark.parametrize("base", SCOPES)
def test_the_reconciler_does_not_ring_paused_slots(books: SqlStore, clock: FakeClock, base: str | None) -> None:
    carrier = Carrier()
    reconciler = Reconciler(books, carrier, ["cards"], books.rules, clock=clock)
    for name in ("queued", "waiting", "lost"):
        job_for(books, name)
    books.fail([failed(take(books, "cards", "waiting"), SECOND)])
    take(books, "cards", "lost")
    books.pause(base)
    clock.advance(HOUR)
    reconciler.reconcile()
    reconciler.reconcile()
    assert carrier.carried == []
    lost = books.slot("shelf", "lost", "cards")
    assert (lost.state, lost.holder, lost.attempts) == (S.QUEUED, None, 1), "a lost worker gave it back to the queue"
    books.resume(base)
    reconciler.reconcile()
    assert len(carrier.carried) == 3


def test_a_slot_read_before_a_pause_is_not_rung_during_it(books: SqlStore) -> None:
    job_for(books)
    read = books.find_unrung(["cards"], 10).slots
    books.pause("shelf")
    assert books.ring(read) == []
    books.resume("shelf")
    assert len(books.ring(read)) == 1


def test_a_slot_without_attempts_left_is_given_up_during_a_pause_too(books: SqlStore, clock: FakeClock) -> None:
    job_for(books)
    for _ in range(3):
        books.expire([(books.slot("shelf", "doc", take(books, "cards").key.kind), Expire("test"))])
    take(books, "cards")
    books.pause()
    clock.advance(LEASE)
    Reconciler(books, Carrier(), ["cards"], books.rules, clock=clock).reconcile()
    assert states(books) == {"cards": "failed"}


@pytest.mark.parametrize("base", SCOPES)
def test_a_paused_slot_never_counts_as_stuck(books: SqlStore, clock: FakeClock, base: str | None) -> None:
    job_for(books, "old")
    job_for(books, "held")
    take(books, "cards", "held")
    clock.advance(SECOND)
    job_for(books, "young", base="attic")
    (ticket,) = books.claim([ring_of(books.slot("attic", "young", "cards"))], "ann")
    books.complete([finished(ticket)])
    books.pause(base)
    clock.advance(HOUR)
    assert ask(books, "old", slots=ONE).reason == "already_in_progress"
    assert ask(books, "held", slots=ONE).reason == "already_in_progress", "although its worker has not moved"
    books.resume(base)
    clock.advance(10 * MINUTE - TICK)
    assert ask(books, "old", slots=ONE).reason == "already_in_progress", "it has had its place for nine minutes"
    clock.advance(TICK)
    assert ask(books, "old", slots=ONE).reason == "already_in_progress", "what went first did so while it was held back"
    job_for(books, "younger", base="attic")
    books.claim([ring_of(books.slot("attic", "younger", "cards"))], "ann")
    assert ask(books, "old", slots=ONE).reason == "stuck", "now somebody went first who should not have"


def test_a_pause_of_another_base_does_not_delay_the_detection_of_stuck_slots(books: SqlStore, clock: FakeClock) -> None:
    job_for(books, "old")
    clock.advance(SECOND)
    job_for(books, "young")
    take(books, "cards", "young")
    books.pause("attic")
    clock.advance(10 * MINUTE)
    assert ask(books, "old", slots=ONE).reason == "stuck"


@pytest.mark.parametrize("base", SCOPES)
def test_a_pause_with_stop_interrupts_running_slots(books: SqlStore, clock: FakeClock, base: str | None) -> None:
    job_for(books)
    seen: list[str] = []

    def work(task: Task) -> None:
        books.pause(base, stop=True)
        task.checkpoint(stage="parse")  # the worker has not seen the pause yet
        seen.append("went on")
        task.renew()
        task.checkpoint(stage="embed")
        seen.append("never")

    worker(books, clock, work).run_next(1)
    slot = books.slot("shelf", "doc", "cards")
    assert seen == ["went on"]
    assert (slot.state, slot.holder, slot.attempts) == (S.QUEUED, None, 0), "the attempt is not held against it"
    assert books.claim_next(["cards"], "bob", 10) == []
    books.resume(base)
    assert len(books.claim_next(["cards"], "bob", 10)) == 1


def test_a_worker_continues_if_a_pause_ends_before_it_notices(books: SqlStore, clock: FakeClock) -> None:
    job_for(books)

    def work(task: Task) -> BuildResult:
        books.pause(stop=True)
        books.resume()
        task.renew()
        task.checkpoint()
        books.pause(stop=True)
        task.renew()
        books.resume()
        task.renew()
        task.checkpoint()
        return BuildResult()

    worker(books, clock, work).run_next(1)
    assert states(books) == {"cards": "ready"}


def test_a_pause_with_stop_does_not_interrupt_other_bases(books: SqlStore) -> None:
    job_for(books)
    job_for(books, base="attic")
    tickets = books.claim_next(["cards"], "ann", 10)
    books.pause("attic", stop=True)
    assert [ticket.key.base for ticket in books.find_recalled(tickets)] == ["attic"]
    assert books.find_recalled([]) == []


def test_a_worker_continues_when_the_store_cannot_report_pauses(books: SqlStore, clock: FakeClock) -> None:
    job_for(books)
    meddling = Meddling(books, find_recalled=raises(StoreUnavailable("away")))

    def work(task: Task) -> BuildResult:
        task.renew()
        task.checkpoint()
        return BuildResult()

    worker(meddling, clock, work).run_next(1)
    assert states(books) == {"cards": "ready"}


def test_no_slot_is_claimed_after_a_pause_has_returned(several: list[SqlStore]) -> None:
    several[0].admit([request(str(n), slots=ONE) for n in range(200)])
    paused, late = threading.Event(), []

    def work(n: int) -> int:
        store = several[n % 4]
        if n == 0:
            store.pause()
            paused.set()
            return 0
        claimed = 0
        while True:
            after = paused.is_set()
            tickets = store.claim_next(["cards"], f"worker {n}", 2)
            claimed += len(tickets)
            if after:
                late.extend(tickets)
                return claimed

    claimed = sum(side_by_side(6, work))
    assert late == []
    running = [row for row in rows(several[0], tables.slots) if row["state"] == S.RUNNING]
    assert len(running) == claimed
    audit(several[0])


def test_simultaneous_pauses_make_one_pause(several: list[SqlStore]) -> None:
    assert sum(side_by_side(8, lambda n: several[n % 4].pause("shelf"))) == 1
    assert sum(side_by_side(8, lambda n: several[n % 4].resume("shelf"))) == 1
    assert types(several[0], "queue") == ["queue.paused", "queue.resumed"]


def test_adoption_works_during_a_pause_and_uses_no_quota(books: SqlStore) -> None:
    books.pause()
    books.set_quota("shelf", 1)
    assert books.adopt([request(name, slots=ONE) for name in "abc"]) == 3
    assert {row["state"] for row in rows(books, tables.slots)} == {"ready"}
    quota = books.quota("shelf")
    assert quota is not None
    assert quota.used == 0, "nothing was started"


def test_cancel_all_cancels_every_active_job_of_a_base_and_deletes_continue(books: SqlStore) -> None:
    for name in "abc":
        ask(books, name)
    build(books, "content", owner="a")
    elsewhere = job_for(books, base="attic")
    ask(books, "c", O.DELETE)
    assert books.cancel_all("shelf", dry_run=True).found == 2
    assert types(books, "job") == ["job.deleted"], "nothing was cancelled yet"
    summed = books.cancel_all("shelf", requester="ann")
    assert (summed.found, summed.accepted) == (2, 2)
    assert summed.answers == {(V.ACCEPTED, "cancel"): 2}
    assert states(books, "a") == {"content": "ready", "vector": "cancelled", "graph": "cancelled"}
    assert set(states(books, "c").values()) == {"deleting"}
    assert books.job(elsewhere).outcome is None
    assert books.cancel_all().accepted == 1
    assert books.cancel_all().found == 0


def moved_at_once(store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record how many slots each transaction moves."""
    write, moved = store.database.write, []

    def counting(work: Callable[..., Any], *, durable: bool) -> Any:
        before = len(rows(store, tables.events))
        result = write(work, durable=durable)
        moved.append(len([one for one in store.events(0)[before:] if one.event.type.startswith("slot.")]))
        return result

    monkeypatch.setattr(store.database, "write", counting)
    return moved


def test_bulk_cancels_and_retries_run_in_small_transactions(store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queueing, "LARGEST_BATCH", 7)
    for n in range(9):
        ask(store, str(n))
        store.fail([failed(take(store, "content", str(n)))])
    moved = moved_at_once(store, monkeypatch)
    assert store.retry_all().accepted == 9
    assert (sum(moved), max(moved)) == (27, 6), "two owners of three slots each fit"
    moved.clear()
    assert store.cancel_all().accepted == 9
    assert (sum(moved), max(moved)) == (27, 6)


def test_an_owner_larger_than_a_batch_gets_its_own_transaction() -> None:
    assert list(queueing.split_by_size([("a", 600), ("b", 1), ("c", 499), ("d", 1)])) == [["a"], ["b", "c"], ["d"]]
    assert list(queueing.split_by_size([])) == []


def test_cancel_all_does_not_cancel_requests_that_arrive_during_it(
    books: SqlStore, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_for(books, "old")
    late: list[str] = []
    cancel = books.cancel_jobs

    def meddle(jobs: Any, requester: str) -> Any:
        clock.advance(SECOND)
        late.append(job_for(books, f"late {len(late)}"))
        return cancel(jobs, requester)

    monkeypatch.setattr(books, "cancel_jobs", meddle)
    assert books.cancel_all().accepted == 1
    assert len(late) == 1
    assert books.job(late[0]).outcome is None


def test_simultaneous_calls_of_cancel_all_cancel_each_job_once(several: list[SqlStore]) -> None:
    several[0].admit([request(str(n), slots=ONE) for n in range(40)])
    summed = side_by_side(4, lambda n: several[n].cancel_all())
    assert sum(one.accepted for one in summed) == 40
    assert types(several[0], "job") == ["job.cancelled"] * 40
    assert {row["state"] for row in rows(several[0], tables.slots)} == {"cancelled"}
    audit(several[0])


def test_retry_all_retries_every_failed_job_and_counts_the_answers(books: SqlStore) -> None:
    for name in ("one", "two", "three"):
        job_for(books, name)
        books.fail([failed(take(books, "cards", name))])
    job_for(books, base="attic")
    (ticket,) = books.claim_next(["cards"], "ann", 1)
    books.fail([failed(ticket)])
    ask(books, "partly")
    build(books, "content", "vector", owner="partly")
    books.fail([failed(take(books, "graph", "partly"))])
    before = everything(books)
    assert [books.retry_all(dry_run=True).found, books.retry_all("shelf", dry_run=True).found] == [4, 3]
    assert books.retry_all("shelf", degraded=True, dry_run=True).found == 4
    assert everything(books) == before
    books.set_quota("shelf", 2)
    summed = books.retry_all("shelf", degraded=True, priority=8, requester="ann")
    assert summed.found == 4
    assert summed.answers == {(V.ACCEPTED, "not_complete"): 2, (V.REJECTED, "quota_exhausted"): 2}
    assert (summed.accepted, summed.count(V.REJECTED), summed.count(V.JOINED)) == (2, 2, 0)
    assert [states(books, name)["cards"] for name in ("one", "two", "three")] == ["queued", "queued", "failed"]
    retried = books.job(books.slot("shelf", "one", "cards").job)
    assert (retried.operation, retried.priority, retried.requester) == (O.RETRY, 8, "ann")
    books.set_quota("shelf", None)
    assert books.retry_all().accepted == 2
    assert states(books, "partly")["graph"] == "failed", "it serves something; only who asks for that retries it"
    assert books.retry_all(degraded=True).answers == {(V.ACCEPTED, "not_complete"): 1}
    assert states(books, "partly") == {"content": "ready", "vector": "ready", "graph": "queued"}


TOMORROW = Moment(START - START % DAY + DAY)


def test_a_base_over_its_daily_quota_starts_no_job_until_tomorrow(books: SqlStore, clock: FakeClock) -> None:
    books.set_quota("shelf", 2)
    assert [ask(books, name, slots=ONE).accepted for name in "ab"] == [True, True]
    refused = ask(books, "c", slots=ONE, requester="ann", cost=2.5)
    assert (refused.verdict, refused.reason, refused.retry_at) == (V.REJECTED, "quota_exhausted", TOMORROW)
    assert (refused.status, refused.job) == (Status.NOT_INDEXED, None)
    with pytest.raises(UnknownOwner):
        books.owner("shelf", "c")
    (audited,) = books.refusals()
    assert (audited.owner, audited.reason, audited.requester, audited.cost) == ("c", "quota_exhausted", "ann", 2.5)
    assert ask(books, "c", slots=ONE, base="attic").accepted, "another base has another quota, or none"
    clock.advance(timedelta(microseconds=TOMORROW - clock.now()) - TICK)
    assert ask(books, "c", slots=ONE).reason == "quota_exhausted"
    clock.advance(TICK)
    assert ask(books, "c", slots=ONE).accepted
    quota = books.quota("shelf")
    assert quota is not None
    assert (quota.per_day, quota.used, quota.day) == (2, 1, TOMORROW)


def test_only_requests_that_start_a_build_count_against_the_quota(books: SqlStore) -> None:
    books.set_quota("shelf", 4)
    ask(books, slots=ONE)
    assert ask(books, slots=ONE).reason == "already_in_progress"
    build(books, "cards")
    assert ask(books, slots=ONE).reason == "already_indexed"
    ask(books, operation=O.FORCE, slots=ONE)
    ask(books, operation=O.CANCEL)
    ask(books, operation=O.RETRY)
    ask(books, operation=O.CHANGE, slots=ONE, fingerprint="b")
    quota = books.quota("shelf")
    assert quota is not None
    assert (quota.used, quota.remaining(clock_of(books))) == (4, 0)
    refused = ask(books, operation=O.CHANGE, slots=ONE, fingerprint="c")
    assert (refused.reason, refused.job) == ("quota_exhausted", books.slot("shelf", "doc", "cards").job)
    assert ask(books, operation=O.CANCEL).accepted
    assert ask(books, operation=O.REINDEX).reason == "quota_exhausted"
    assert ask(books, operation=O.DELETE).accepted


def clock_of(store: SqlStore) -> Moment:
    with store.database.reading() as tx:
        now: Moment = tx.run(select(NOW))[0][0]
        return now


def test_a_batch_over_the_quota_is_accepted_in_order_until_the_quota_is_used_up(books: SqlStore) -> None:
    books.set_quota("shelf", 2)
    answers = books.admit([request(name, slots=ONE) for name in "abcd"] + [request("e", slots=ONE, base="attic")])
    assert [answer.accepted for answer in answers] == [True, True, False, False, True]
    assert {answer.retry_at for answer in answers if not answer.accepted} == {TOMORROW}


def test_each_base_has_its_own_quota_count(books: SqlStore) -> None:
    books.set_quota("shelf", 3)
    books.set_quota("attic", 3)
    for name in "ab":
        ask(books, name, slots=ONE)
    ask(books, slots=ONE, base="attic")
    quotas = [books.quota(base) for base in ("shelf", "attic")]
    assert [quota.used for quota in quotas if quota is not None] == [2, 1]


def test_changing_a_quota_keeps_its_count(books: SqlStore) -> None:
    assert books.quota("shelf") is None
    books.set_quota("shelf", 1)
    assert ask(books, "a", slots=ONE).accepted
    books.set_quota("shelf", 2)
    assert [ask(books, name, slots=ONE).accepted for name in "bc"] == [True, False]
    books.set_quota("shelf", 1)
    quota = books.quota("shelf")
    assert quota is not None
    assert (quota.used, quota.remaining(clock_of(books))) == (2, 0)
    books.set_quota("attic", 1)
    books.set_quota("shelf", None)
    assert ask(books, "c", slots=ONE).accepted
    assert books.quota("attic") is not None
    for number in (0, -1, 2**31):
        with pytest.raises(BadRequest, match=f"A quota of {number} jobs per day .* from 1 to {2**31 - 1}"):
            books.set_quota("shelf", number)
    with pytest.raises(BadRequest, match="The name of the base is empty"):
        books.set_quota("", 1)


def test_a_clock_that_is_set_back_does_not_reset_the_quota(books: SqlStore, clock: FakeClock) -> None:
    books.set_quota("shelf", 1)
    assert ask(books, "a", slots=ONE).accepted
    clock.jump(-timedelta(days=1))
    assert ask(books, "b", slots=ONE).retry_at == TOMORROW


def test_simultaneous_requests_never_exceed_the_quota(several: list[SqlStore]) -> None:
    several[0].set_quota("shelf", 7)
    answers = side_by_side(24, lambda n: ask(several[n % 4], f"doc {n}", slots=ONE))
    assert sorted(told(answers)) == [("accepted", "not_complete")] * 7 + [("rejected", "quota_exhausted")] * 17
    assert len(rows(several[0], tables.jobs)) == 7
    quota = several[0].quota("shelf")
    assert quota is not None
    assert quota.used == 7
    audit(several[0])


def test_simultaneous_batches_for_several_bases_neither_exceed_a_quota_nor_deadlock(several: list[SqlStore]) -> None:
    bases = [f"base {n}" for n in range(4)]
    for base in bases:
        several[0].set_quota(base, 5)

    def work(n: int) -> list[AdmissionResult]:
        around = bases if n % 2 else bases[::-1]
        return several[n % 4].admit([request(f"doc {n}", slots=ONE, base=base) for base in around])

    answers = [one for found in side_by_side(12, work) for one in found]
    assert len([one for one in answers if one.accepted]) == 20
    audit(several[0])


def test_simultaneous_changes_of_a_quota_leave_one_row(several: list[SqlStore]) -> None:
    side_by_side(8, lambda n: several[n % 4].set_quota("shelf", n + 1))
    assert len(rows(several[0], tables.quotas)) == 1


def why(store: SqlStore, owner: str = "doc") -> dict[str, str]:
    return {reason.key.kind: reason.code for reason in store.explain("shelf", owner)}


def test_every_unsettled_slot_has_a_reason_why_it_waits(books: SqlStore, clock: FakeClock) -> None:
    job = ask(books).job or ""
    assert why(books) == {"content": "next", "vector": "blocked", "graph": "blocked"}
    ticket = take(books, "content", holder="ann")
    books.extend([beat(ticket, stage="parse")])
    (running, *_) = books.explain("shelf", "doc")
    assert (running.code, running.params) == ("running", {"holder": "ann", "since": START, "stage": "parse"})
    books.complete([finished(ticket)])
    books.fail([failed(take(books, "vector"), MINUTE, code="timeout")])
    (retry, _) = books.explain_job(job)
    assert retry.params == {"error": "timeout", "at": START + micros(MINUTE)}
    assert format_wait_reason(retry, "shelf") == (
        "The last attempt failed (timeout). The next is at 2027-01-15 08:01:00 UTC."
    )
    assert why(books) == {"vector": "retry", "graph": "next"}
    books.pause("shelf")
    assert why(books) == {"vector": "paused_base", "graph": "paused_base"}
    books.pause()
    assert why(books) == {"vector": "paused_queue", "graph": "paused_queue"}
    ask(books, operation=O.DELETE)
    assert why(books) == {"content": "deleting", "vector": "deleting", "graph": "deleting"}
    books.fail([failed(take(books, "graph"), MINUTE, code="disk")])
    assert books.explain("shelf", "doc")[2].params == {"error": "disk", "at": START + micros(MINUTE)}
    assert books.explain_job(job) == [], "it ended with the delete"
    with pytest.raises(UnknownOwner):
        books.explain("shelf", "nobody")
    with pytest.raises(UnknownJob):
        books.explain_job("nobody")


def test_a_settled_owner_has_no_reasons_to_wait(books: SqlStore) -> None:
    job = job_for(books)
    build(books, "cards")
    assert (books.explain("shelf", "doc"), books.explain_job(job)) == ([], [])


def test_the_position_in_the_queue_counts_the_slots_of_the_same_kind_ahead(books: SqlStore, clock: FakeClock) -> None:
    for name in ("first", "second", "third"):
        job_for(books, name)
        clock.advance(SECOND)
    job_for(books, "less", priority=6)
    ask(books, "other kind")
    job_for(books, "elsewhere", base="attic", priority=4)
    assert [books.explain("shelf", name)[0].params for name in ("first", "second", "third", "less")] == [
        {"ahead": 1},
        {"ahead": 2},
        {"ahead": 3},
        {"ahead": 4},
    ]
    assert books.explain("attic", "elsewhere")[0].code == "next"
    books.reprioritise([books.slot("shelf", "third", "cards").job], 0)
    assert why(books, "third") == {"cards": "next"}
    same = [job_for(books, name, priority=9) for name in "xy"]
    assert [books.explain_job(job)[0].params["ahead"] for job in same] == [5, 6], "of equal age the older number"


def test_a_missing_worker_is_reported_after_a_minute_without_claims(books: SqlStore, clock: FakeClock) -> None:
    job_for(books)
    ask(books, "other")
    assert why(books) == {"cards": "next"}
    clock.advance(MINUTE)
    assert why(books) == {"cards": "no_worker"}
    assert format_wait_reason(books.explain("shelf", "doc")[0], "shelf") == (
        "No worker has claimed anything since 2027-01-15 08:00:00 UTC. Start a worker."
    )
    content = take(books, "content", "other", holder="ann")
    assert why(books) == {"cards": "kind_unclaimed"}, "somebody is there, but takes other work"
    job_for(books, "another")
    books.complete([finished(take(books, "cards", "another"))])
    assert why(books) == {"cards": "next"}, "somebody took one of its kind just now"
    books.release([back(content)])
    clock.advance(MINUTE)
    assert why(books) == {"cards": "no_worker"}
    take(books, "cards", "doc")
    clock.advance(LEASE)
    assert why(books) == {"cards": "worker_lost"}


def test_a_superseded_slot_waits_for_the_worker_that_still_holds_it(books: SqlStore) -> None:
    job_for(books, operation=O.CHANGE, fingerprint="a")
    take(books, "cards", holder="ann")
    job_for(books, operation=O.CHANGE, fingerprint="b")
    (reason,) = books.explain("shelf", "doc")
    assert (reason.code, reason.params) == ("leaving", {"holder": "ann", "at": START + micros(LEASE)})


def names(page: Any) -> list[str]:
    return [one.job.owner for one in page.jobs]


@pytest.fixture
def shelf(books: SqlStore, clock: FakeClock) -> SqlStore:
    """Write nine jobs in all states, in two bases, from two requesters."""
    for name, base in (("done", "shelf"), ("broken", "shelf"), ("gone", "attic"), ("done too", "attic")):
        job_for(books, name, base=base, requester="ann")
        clock.advance(SECOND)
    for ticket in books.claim_next(["cards"], "worker", 10):
        if ticket.key.owner == "broken":
            books.fail([failed(ticket)])
        else:
            books.complete([finished(ticket)])
        clock.advance(SECOND)
    for name, priority in (("late", 7), ("normal", 5), ("soon", 1), ("running", 5)):
        job_for(books, name, priority=priority, requester="bob", base="attic" if name == "soon" else "shelf")
        clock.advance(SECOND)
    take(books, "cards", "running")
    ask(books, "gone", O.DELETE, base="attic", priority=9)
    return books


ORDER = ["soon", "normal", "running", "late", "gone", "done too", "gone", "broken", "done"]


def test_active_jobs_are_listed_first_in_queue_order_and_then_ended_jobs_newest_first(shelf: SqlStore) -> None:
    page = shelf.list_jobs()
    assert names(page) == ORDER
    assert [one.state for one in page.jobs] == [
        "queued", "queued", "indexing", "queued", "deleting", "success", "success", "failed", "success",
    ]  # fmt: skip
    assert (page.total, page.total_is_exact, page.cursor) == (9, True, None)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 8])
def test_pages_by_cursor_and_by_number_show_each_job_once(shelf: SqlStore, size: int) -> None:
    by_number = [name for page in range(1, 10 // size + 2) for name in names(shelf.list_jobs(page=page, size=size))]
    assert by_number == ORDER
    by_cursor, cursor = [], None
    while True:
        page = shelf.list_jobs(cursor=cursor, size=size)
        by_cursor += names(page)
        assert page.total == 9
        cursor = page.cursor
        if cursor is None:
            break
        assert len(page.jobs) == size
    assert by_cursor == ORDER
    assert names(shelf.list_jobs(page=50, size=size)) == []


@pytest.mark.parametrize(
    ("filter_", "expected"),
    [
        (JobFilter(base="attic"), ["soon", "gone", "done too", "gone"]),
        (JobFilter(requester="ann"), ["done too", "gone", "broken", "done"]),
        (JobFilter(requester="bob"), ["soon", "normal", "running", "late"]),
        (JobFilter(states=frozenset({"failed"})), ["broken"]),
        (JobFilter(states=frozenset({"indexing", "failed"})), ["running", "broken"]),
        (JobFilter(states=frozenset({"queued"})), ["soon", "normal", "late"]),
        (JobFilter(base="shelf", states=frozenset({"queued", "success"})), ["normal", "late", "done"]),
        (JobFilter(base="shelf", requester="ann", states=frozenset({"success"})), ["done"]),
        (JobFilter(states=frozenset()), []),
        (JobFilter(base="nowhere"), []),
        (JobFilter(base="a\0b"), []),
    ],
)
def test_jobs_are_filtered_by_base_requester_and_state(
    shelf: SqlStore, filter_: JobFilter, expected: list[str]
) -> None:
    page = shelf.list_jobs(filter_)
    assert (names(page), page.total) == (expected, len(expected))
    found, cursor = [], None
    while True:
        page = shelf.list_jobs(filter_, cursor=cursor, size=1)
        found += names(page)
        if (cursor := page.cursor) is None:
            break
    assert found == expected


def test_jobs_with_the_same_time_are_all_listed(books: SqlStore) -> None:
    books.admit([request(str(n), slots=ONE) for n in range(7)])
    tickets = books.claim_next(["cards"], "ann", 4)
    books.complete([finished(ticket) for ticket in tickets])
    found, cursor = [], None
    while True:
        page = books.list_jobs(cursor=cursor, size=2)
        found += names(page)
        if (cursor := page.cursor) is None:
            break
    assert sorted(found) == [str(n) for n in range(7)]


def test_the_total_of_a_list_is_counted_only_up_to_a_limit(shelf: SqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "MAX_COUNT", 4)
    page = shelf.list_jobs(size=3)
    assert (page.total, page.total_is_exact) == (8, False)
    with pytest.raises(BadRequest, match=r"Page 3 .* end at row 4.*Use the cursor"):
        shelf.list_jobs(page=3, size=3)


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"size": 0}, "bad_page"),
        ({"size": 501}, "bad_page"),
        ({"page": 0}, "bad_page"),
        ({"page": 2**70}, "bad_page"),
        ({"cursor": "nonsense"}, "bad_cursor"),
        ({"cursor": "active/1/2"}, "bad_cursor"),
        ({"cursor": f"ended/{2**70}/x"}, "bad_cursor"),
        ({"cursor": "ended/-1/x"}, "bad_cursor"),
        ({"filter_": JobFilter(states=frozenset({"ready", "failed"}))}, "job_state_unknown"),
    ],
)
def test_an_invalid_page_size_cursor_or_filter_is_refused(books: SqlStore, asked: dict[str, Any], code: str) -> None:
    with pytest.raises(BadRequest) as refused:
        books.list_jobs(**asked)
    assert refused.value.subcode == code
    if code == "job_state_unknown":
        assert str(refused.value) == (
            "No job has the state 'ready'. Choose from: cancelled, degraded, deleted, deleting, failed, indexing, "
            "queued, success, superseded."
        )


def test_a_dropped_index_is_shown_as_deleting_and_cannot_be_cancelled(books: SqlStore) -> None:
    ask(books)
    build(books, "content", "vector", "graph")
    dropped = ask(books, operation=O.DROP, kinds=("graph",)).job
    (listed, _) = books.list_jobs().jobs
    assert (listed.job.id, listed.state) == (dropped, "deleting")
    assert books.list_jobs(JobFilter(states=frozenset({"deleting"}))).total == 1
    assert books.overview().active == {"deleting": 1}
    assert why(books) == {"graph": "deleting"}
    books.pause(stop=True)
    assert books.cancel_all().found == 0
    assert told(books.cancel_jobs([dropped or ""])) == [("skipped", "nothing_active")]
    books.forget([take(books, "graph")])
    assert books.job(dropped or "").outcome is Outcome.SUCCESS


def test_the_overview_of_a_long_queue_has_lower_limits(shelf: SqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    assert shelf.overview().active_is_exact
    monkeypatch.setattr(listing, "MAX_COUNT", 5)
    told = shelf.overview()
    assert (told.active, told.active_is_exact) == ({"queued": 3, "indexing": 1, "deleting": 1}, False)
    monkeypatch.setattr(listing, "MAX_COUNT", 2)
    told = shelf.overview()
    assert (told.active, told.active_is_exact) == ({"queued": 2, "indexing": 1, "deleting": 1}, False)
    monkeypatch.setattr(listing, "OLDEST_JOBS", 1)  # of each priority
    assert shelf.overview().oldest_queued == shelf.slot("shelf", "late", "cards").queued_at


def test_slots_ahead_are_counted_up_to_a_limit(books: SqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    books.admit([request(str(n), slots=ONE) for n in range(7)])
    (reason,) = books.explain("shelf", "6")
    assert (reason.code, reason.params) == ("behind", {"ahead": 6})
    for module in (listing, waiting):
        monkeypatch.setattr(module, "MAX_COUNT", 4)
    (reason,) = books.explain("shelf", "6")
    assert (reason.code, reason.params) == ("far_behind", {"ahead": 4})


def test_an_overview_with_an_empty_time_window_is_refused(books: SqlStore) -> None:
    with pytest.raises(BadRequest, match=r"The time window is 0:00:00\. Choose a window longer than 0"):
        books.overview(window=timedelta())


def test_the_overview_counts_active_jobs_and_jobs_that_ended_in_the_window(shelf: SqlStore, clock: FakeClock) -> None:
    shelf.pause("attic")
    told = shelf.overview()
    assert told.active == {"queued": 3, "indexing": 1, "deleting": 1}
    assert told.ended == {"success": 3, "failed": 1}
    assert (told.failure_rate, told.per_hour) == (0.25, 4 / 24)
    assert told.oldest_queued == shelf.slot("shelf", "late", "cards").queued_at
    assert [pause.base for pause in told.pauses] == ["attic"]
    attic = shelf.overview("attic")
    assert (attic.active, attic.ended) == ({"queued": 1, "deleting": 1}, {"success": 2})
    assert (attic.failure_rate, attic.oldest_queued) == (0.0, shelf.slot("attic", "soon", "cards").queued_at)
    clock.advance(HOUR)
    later = shelf.overview(window=HOUR)
    assert (later.ended, later.failure_rate, later.per_hour) == ({}, None, 0.0)
    shelf.cancel_all()
    assert shelf.overview().oldest_queued is None
    assert shelf.overview(window=HOUR).ended == {"cancelled": 4}
    assert shelf.overview(window=HOUR).per_hour == 0.0, "what people stopped did not come to its own end"


SCOPE = statements.StatementFilters(base=True)
FAILED = statements.StatementFilters(states=frozenset({"failed"}))


@pytest.mark.parametrize(
    ("statement", "index"),
    [
        (statements.select_active_jobs(statements.StatementFilters(), after=True), "jobs_queue"),
        (statements.select_cancellable_jobs(statements.StatementFilters()), "jobs_active"),
        (statements.select_ended_jobs(statements.StatementFilters(), after=True), "jobs_finished"),
        (statements.select_ended_jobs(SCOPE, after=True), "jobs_ended"),
        (statements.count_ended_by_outcome(SCOPE), "jobs_ended"),
        (statements.count_ended_by_outcome(statements.StatementFilters()), "jobs_finished"),
        (statements.select_retryable_owners(statements.StatementFilters()), "owners_broken"),
        (statements.count_retryable_owners(statements.StatementFilters()), "owners_broken"),
        (statements.select_active_jobs(SCOPE, after=True), "jobs_queue_of_base"),
        (statements.count_active(SCOPE), "jobs_queue_of_base"),
        (statements.count_active(SCOPE), "owners_active"),
        (statements.count_active(statements.StatementFilters()), "owners_active"),
        (statements.count_active(statements.StatementFilters()), "jobs_queue"),
        (statements.select_oldest_queued(SCOPE), "jobs_queue_of_base"),
        (statements.select_oldest_queued(statements.StatementFilters()), "jobs_queue"),
        (statements.select_ended_jobs(FAILED, after=False), "jobs_unsuccessful"),
        (statements.count_jobs(FAILED, active=False), "jobs_unsuccessful"),
        (statements.COUNT_SLOTS_AHEAD, "slots_queued"),
        (statements.COUNT_HOLDERS_BY_KIND, "slots_held"),
    ],
)
def test_every_statement_of_a_page_uses_an_index(sqlite_url: str, clock: FakeClock, statement: Any, index: str) -> None:
    store = open_test_store(sqlite_url, clock)
    compiled = statement.compile(dialect=sqlite.dialect())
    values = dict.fromkeys(compiled.positiontup or (), 1)
    with store.database.reading() as tx:
        plan = tx.run_sql(f"EXPLAIN QUERY PLAN {compiled}", [values[name] for name in compiled.positiontup or ()])
    assert any(index in str(line[3]) for line in plan), plan
    store.close()


def test_unregistering_a_worker_keeps_the_others_registered(store: SqlStore) -> None:
    for holder in ("one", "two", "three"):
        store.register_worker(holder)
    store.unregister_worker("two")
    assert {row["holder"] for row in rows(store, tables.workers)} == {"one", "three"}
    assert store.count_workers() == 2


def test_workers_are_removed_after_ten_leases_without_registration(store: SqlStore, clock: FakeClock) -> None:
    store.register_worker("killed")
    clock.advance(store.rules.lease * 9)
    store.register_worker("slow")
    clock.advance(store.rules.lease)
    store.register_worker("new")
    assert {row["holder"] for row in rows(store, tables.workers)} == {"slow", "new"}
