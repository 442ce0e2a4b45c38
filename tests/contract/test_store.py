"""The contract of the store, on both databases.

Most tests check all invariants after every transaction. The exceptions write rows without the store or use threads.
"""

from __future__ import annotations

import threading
from datetime import timedelta
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import insert, text
from sqlalchemy.exc import IntegrityError

from holdfast.clock import Moment, micros
from holdfast.db.migrate import find_head
from holdfast.engine.admission import Verdict
from holdfast.engine.dependencies import SlotSpec
from holdfast.engine.plan import Expire
from holdfast.engine.slot import Fault, JobId, OwnerId, Progress
from holdfast.engine.states import RESTING_STATES, Operation, Outcome, SlotState, Status
from holdfast.engine.store import statements as sql
from holdfast.engine.store import tables
from holdfast.engine.store.base import LARGEST_BATCH
from holdfast.errors import BadRequest, StaleLease, StoreTooNew, UnknownJob, UnknownOwner, UnknownSlot
from tests.contract.steps import (
    JOB_ROW,
    KINDS,
    OWNER_ROW,
    REFUSED,
    SLOT_ROW,
    alter,
    ask,
    audit,
    back,
    beat,
    build,
    differences,
    everything,
    failed,
    finished,
    put_owner,
    put_slot,
    refused,
    remove,
    ring_of,
    rows,
    side_by_side,
    states,
    take,
)
from tests.support.audit import Meanwhile
from tests.support.clock import START
from tests.support.stores import CONTENT, DOCUMENT, ONE, VECTOR, open_test_store, request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import ClauseElement

    from holdfast.db.database import Rows
    from holdfast.engine.slot import Ticket
    from holdfast.engine.store.sql_store import SqlStore
    from tests.support.clock import FakeClock

O, S, V = Operation, SlotState, Verdict  # noqa: E741 - short names keep the tables readable
SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
TICK = timedelta(microseconds=1)
LEASE = timedelta(seconds=120)


@pytest.fixture
def plain(store: SqlStore) -> SqlStore:
    """Return a store without checks, for tests that write rows without it or use many threads."""
    return store


@pytest.fixture
def books(plain: SqlStore, monkeypatch: pytest.MonkeyPatch) -> SqlStore:
    """Return the same store, with all invariants checked after every transaction."""
    write = plain.database.write
    known: dict[int, dict[str, Any]] = {}

    def audited(work: Callable[..., Any], *, durable: bool) -> Any:
        result = write(work, durable=durable)
        audit(plain)
        for row in rows(plain, tables.slots):
            check_step(known.get(row["id"]), row)
            known[row["id"]] = row
        return result

    monkeypatch.setattr(plain.database, "write", audited)
    return plain


def check_step(before: dict[str, Any] | None, after: dict[str, Any]) -> None:
    """Check that a transaction changed a slot only in allowed ways."""
    assert after["attempts"] <= 4 or after["state"] == S.DELETING
    if before is None:
        return
    for number in ("wanted", "built", "fence"):
        assert after[number] >= before[number], f"{number} never decreases"
    if before["state"] == S.DELETING:
        assert after["state"] == S.DELETING, "delete is absorbing"
    if after["wanted"] == before["wanted"]:
        assert before["state"] not in RESTING_STATES or after["state"] == before["state"], "rest is rest"
        told, seen = ((one["step"], one["done"]) for one in (after, before))
        assert told >= seen, "progress never goes back"


def moment(**duration: float) -> Moment:
    """Return a time that is this long after the start of the fake clock."""
    return Moment(START + micros(timedelta(**duration)))


def late_writes(store: SqlStore, ticket: Ticket) -> list[Callable[[], None]]:
    """Return every write that a worker may still try after it lost its slot."""
    return [
        lambda: store.extend([beat(ticket)]),
        lambda: store.complete([finished(ticket)]),
        lambda: store.fail([failed(ticket)]),
        lambda: store.fail([failed(ticket, MINUTE)]),
        lambda: store.release([back(ticket)]),
        lambda: store.forget([ticket._replace(removing=True)]),
    ]


def test_a_new_owner_gets_a_generation_a_job_and_its_slots(books: SqlStore) -> None:
    answer = ask(books, priority=3, cause="upload", requester="ann", fingerprint="abc")
    assert (answer.verdict, answer.status, answer.generation) == (V.ACCEPTED, Status.QUEUED, 1)
    owner = books.owner("shelf", "doc")
    assert (owner.generation, owner.fingerprint, owner.status) == (1, "abc", Status.QUEUED)
    assert states(books) == {"content": "queued", "vector": "blocked", "graph": "blocked"}
    for slot in owner.slots:
        assert (slot.job, slot.wanted, slot.built, slot.priority) == (answer.job, 1, 0, 3)
        assert (slot.fence, slot.attempts, slot.holder, slot.queued_at) == (0, 0, None, START)
    assert answer.job is not None
    job = books.job(answer.job)
    assert (job.operation, job.cause, job.requester, job.priority) == (O.INDEX, "upload", "ann", 3)
    assert (job.generation, job.open, job.outcome, job.created_at) == (1, 3, None, START)


def test_answers_come_in_the_order_of_the_requests(books: SqlStore) -> None:
    answers = books.admit([request("b"), request("a"), request("b"), request("c", O.RETRY), request("a", O.DELETE)])
    assert [(one.verdict, one.reason) for one in answers] == [
        (V.ACCEPTED, "not_complete"),
        (V.ACCEPTED, "not_complete"),
        (V.JOINED, "already_in_progress"),
        (V.REJECTED, "unknown_owner"),
        (V.ACCEPTED, "delete"),
    ]
    assert answers[2].job == answers[0].job
    assert [books.owner("shelf", name).status for name in "ab"] == [Status.DELETING, Status.QUEUED]


def test_more_requests_than_fit_in_one_transaction_are_all_answered(plain: SqlStore) -> None:
    answers = plain.admit([request(f"doc {n}", slots=ONE) for n in range(LARGEST_BATCH + 1)])
    assert [one.accepted for one in answers] == [True] * (LARGEST_BATCH + 1)
    assert len({one.job for one in answers}) == len(rows(plain, tables.slots)) == LARGEST_BATCH + 1
    audit(plain)


def test_an_empty_batch_of_requests_changes_nothing(books: SqlStore) -> None:
    before = everything(books)
    assert books.admit([]) == []
    assert everything(books) == before


@pytest.mark.parametrize("operation", [O.INDEX, O.RETRY, O.FORCE])
def test_a_repeat_joins_the_active_job_and_changes_nothing(books: SqlStore, operation: Operation) -> None:
    first = ask(books)
    before = everything(books)
    second = ask(books, operation=operation)
    assert (second.verdict, second.reason, second.status) == (V.JOINED, "already_in_progress", Status.QUEUED)
    assert (second.job, second.generation) == (first.job, 1)
    assert differences(before, everything(books)) == REFUSED


def test_a_refusal_is_recorded_with_requester_operation_job_and_cost(books: SqlStore, clock: FakeClock) -> None:
    job = ask(books).job
    clock.advance(MINUTE)
    ask(books, requester="bob", cost=1.25)
    ask(books, "nobody", O.CANCEL, requester="eve")
    first, second = books.refusals()
    assert (first.at, first.base, first.owner, first.operation) == (moment(minutes=1), "shelf", "doc", O.INDEX)
    assert (first.verdict, first.reason, first.job) == ("joined", "already_in_progress", job)
    assert (first.requester, first.cost) == ("bob", 1.25)
    assert (second.owner, second.verdict, second.reason) == ("nobody", "rejected", "unknown_owner")
    assert (second.job, second.requester, second.cost) == (None, "eve", 0.0)
    assert [one.id for one in books.refusals(after=first.id)] == [second.id]
    assert [one.id for one in books.refusals(limit=1)] == [first.id]


def test_accepted_requests_are_not_recorded_as_refusals(books: SqlStore) -> None:
    ask(books)
    ask(books, operation=O.CANCEL)
    ask(books, operation=O.DELETE)
    assert books.refusals() == []


@pytest.mark.parametrize("operation", [O.RETRY, O.REINDEX, O.CANCEL, O.DELETE])
def test_a_request_for_an_unknown_owner_is_rejected_and_creates_nothing(books: SqlStore, operation: Operation) -> None:
    answer = ask(books, operation=operation)
    assert (answer.verdict, answer.reason, answer.job) == (V.REJECTED, "unknown_owner", None)
    with pytest.raises(UnknownOwner):
        books.owner("shelf", "doc")


def test_an_index_request_without_slots_creates_no_owner(books: SqlStore) -> None:
    assert ask(books, slots=()).reason == "unknown_owner"
    assert rows(books, tables.owners) == []


def test_the_same_name_in_two_bases_makes_two_owners(books: SqlStore) -> None:
    here, there = books.admit([request(), request(base="attic")])
    assert here.job != there.job
    assert books.owner("shelf", "doc").id != books.owner("attic", "doc").id


def test_a_retry_starts_a_new_generation_only_for_failed_slots(books: SqlStore) -> None:
    first = ask(books)
    build(books, "content", "vector")
    books.fail([failed(take(books, "graph"), code="bad_key")])
    kept = [books.slot("shelf", "doc", kind) for kind in ("content", "vector")]
    answer = ask(books, operation=O.RETRY)
    assert (answer.verdict, answer.reason, answer.generation) == (V.ACCEPTED, "not_complete", 2)
    assert [books.slot("shelf", "doc", kind) for kind in ("content", "vector")] == kept
    graph = books.slot("shelf", "doc", "graph")
    assert (graph.state, graph.wanted, graph.built, graph.attempts, graph.error) == (S.QUEUED, 2, 0, 0, None)
    assert (graph.job, books.job(answer.job or "").open) == (answer.job, 1)
    assert books.job(first.job or "").outcome is Outcome.DEGRADED


def test_an_added_index_is_built_from_the_existing_content(books: SqlStore) -> None:
    ask(books, slots=(CONTENT, VECTOR))
    build(books, "content", "vector")
    content = books.slot("shelf", "doc", "content")
    assert ask(books, slots=DOCUMENT).reason == "not_complete"
    assert states(books) == {"content": "ready", "vector": "ready", "graph": "queued"}
    assert take(books, "graph").source == content.source


def test_a_complete_owner_is_skipped_unless_forced(books: SqlStore) -> None:
    ask(books, slots=ONE)
    build(books, "cards")
    skipped = ask(books, slots=ONE)
    assert (skipped.verdict, skipped.reason, skipped.job) == (V.SKIPPED, "already_indexed", None)
    assert skipped.status is Status.SUCCESS
    forced = ask(books, operation=O.FORCE, slots=ONE)
    assert (forced.verdict, forced.generation) == (V.ACCEPTED, 2)
    assert states(books) == {"cards": "queued"}


def test_a_reindex_is_rejected_while_the_owner_is_active(books: SqlStore) -> None:
    ask(books)
    refusal = ask(books, operation=O.REINDEX)
    assert (refusal.verdict, refusal.reason) == (V.REJECTED, "not_terminal")
    build(books, "content", "vector", "graph")
    assert ask(books, operation=O.REINDEX).accepted
    assert states(books) == {"content": "queued", "vector": "blocked", "graph": "blocked"}


def test_the_same_content_joins_an_active_job_and_is_skipped_after_it_ended(books: SqlStore) -> None:
    change: dict[str, Any] = {"operation": O.CHANGE, "slots": ONE, "fingerprint": "abc"}
    first = ask(books, **change)
    assert first.accepted
    joined = ask(books, **change)
    assert (joined.verdict, joined.reason, joined.job) == (V.JOINED, "same_content", first.job)
    build(books, "cards")
    skipped = ask(books, **change)
    assert (skipped.verdict, skipped.reason) == (V.SKIPPED, "same_content")
    changed = ask(books, **change | {"fingerprint": "def"})
    assert (changed.verdict, changed.generation) == (V.ACCEPTED, 2)
    assert books.owner("shelf", "doc").fingerprint == "def"


def test_a_request_without_a_fingerprint_keeps_the_stored_fingerprint(books: SqlStore) -> None:
    ask(books, slots=ONE, fingerprint="abc")
    build(books, "cards")
    ask(books, operation=O.FORCE, slots=ONE)
    assert books.owner("shelf", "doc").fingerprint == "abc"


def test_a_slot_without_progress_for_45_minutes_can_be_requested_again(books: SqlStore, clock: FakeClock) -> None:
    first = ask(books)
    take(books, "content")
    clock.advance(45 * MINUTE - TICK)
    assert ask(books).verdict is V.JOINED
    clock.advance(TICK)
    answer = ask(books)
    assert (answer.verdict, answer.reason, answer.generation) == (V.ACCEPTED, "stuck", 2)
    assert books.job(first.job or "").outcome is Outcome.SUPERSEDED


def test_reported_progress_restarts_the_45_minutes(books: SqlStore, clock: FakeClock) -> None:
    ask(books)
    ticket = take(books, "content")
    clock.advance(44 * MINUTE)
    books.extend([beat(ticket, moved=True, done=1)])
    clock.advance(44 * MINUTE)
    books.extend([beat(ticket, moved=False)])
    assert ask(books).verdict is V.JOINED
    clock.advance(MINUTE)
    assert ask(books).reason == "stuck"


def test_a_slot_overtaken_after_10_minutes_in_the_queue_can_be_requested_again(
    books: SqlStore, clock: FakeClock
) -> None:
    ask(books, "old")
    clock.advance(SECOND)
    ask(books, "young")
    clock.advance(10 * MINUTE - SECOND)
    assert ask(books, "old").verdict is V.JOINED
    take(books, "content", "young")
    assert ask(books, "old").reason == "stuck"


def test_two_requests_never_make_a_dependency_cycle(books: SqlStore) -> None:
    ask(books, slots=(SlotSpec("a", "c"), SlotSpec("c")))
    build(books, "c", missing=1)
    build(books, "a")
    ask(books, slots=(SlotSpec("a"), SlotSpec("c", "a")))  # from now on c needs a, and a needs nothing
    build(books, "a")
    build(books, "c")
    ask(books, operation=O.REINDEX)
    assert "queued" in states(books).values(), "somebody must be able to start"


def test_a_bad_request_refuses_the_whole_batch_before_any_write(books: SqlStore) -> None:
    before = everything(books)
    with pytest.raises(BadRequest):
        books.admit([request("good"), request("bad", priority=10)])
    assert everything(books) == before


def test_a_claim_takes_the_lease_raises_the_fence_and_counts_the_attempt(books: SqlStore, clock: FakeClock) -> None:
    answer = ask(books)
    clock.advance(MINUTE)
    ticket = take(books, "content", holder="ann")
    slot = books.slot("shelf", "doc", "content")
    assert (ticket.slot, ticket.owner, ticket.key, ticket.job) == (slot.id, slot.owner_id, slot.key, answer.job)
    assert (ticket.generation, ticket.fence, ticket.attempt, ticket.removing) == (1, 1, 1, False)
    assert (ticket.source, ticket.built) == (None, 0)
    assert (slot.state, slot.fence, slot.attempts) == (S.RUNNING, 1, 1)
    assert (slot.holder, slot.until, slot.due_at) == ("ann", moment(minutes=3), moment(minutes=3))
    assert (slot.claimed_at, slot.progress_at, slot.rung_at) == (moment(minutes=1), moment(minutes=1), None)
    assert books.owner("shelf", "doc").status is Status.INDEXING


@pytest.mark.parametrize("by", ["ring", "queue"])
def test_a_worker_claims_nothing_after_a_newer_version_has_upgraded_the_database(plain: SqlStore, by: str) -> None:
    ask(plain, slots=ONE)
    ring = ring_of(plain.slot("shelf", "doc", "cards"))

    def claim() -> list[Ticket]:
        return plain.claim([ring], "old") if by == "ring" else plain.claim_next(["cards"], "old", 10)

    plain.database.write(lambda tx: tx.run_sql("UPDATE holdfast_version SET version_num = '9999'"), durable=True)
    with pytest.raises(StoreTooNew, match=r"has upgraded the database to schema 9999\. .* Install that version"):
        claim()
    assert plain.slot("shelf", "doc", "cards").state == "queued"
    plain.database.write(
        lambda tx: tx.run_sql(f"UPDATE holdfast_version SET version_num = '{find_head()}'"),  # noqa: S608 - a constant
        durable=True,
    )
    assert len(claim()) == 1


def test_a_held_slot_is_not_claimed_again(books: SqlStore) -> None:
    ask(books)
    ring = ring_of(books.slot("shelf", "doc", "content"))
    assert len(books.claim([ring], "ann")) == 1
    assert books.claim([ring], "bob") == []
    assert books.claim_next(KINDS, "bob", 10) == []
    assert books.slot("shelf", "doc", "content").holder == "ann"


def test_a_ring_repeated_in_a_batch_makes_one_claim(books: SqlStore) -> None:
    ask(books)
    ring = ring_of(books.slot("shelf", "doc", "content"))
    (ticket,) = books.claim([ring, ring], "ann")
    assert (ticket.fence, ticket.attempt) == (1, 1)


def test_a_slot_with_an_expired_lease_is_claimed_with_a_higher_fence(books: SqlStore, clock: FakeClock) -> None:
    ask(books)
    first = take(books, "content", holder="ann")
    clock.advance(LEASE - TICK)
    assert books.claim_next(KINDS, "bob", 10) == []
    clock.advance(TICK)
    (second,) = books.claim_next(KINDS, "bob", 10)
    assert (second.slot, second.generation, second.fence, second.attempt) == (first.slot, 1, 2, 2)


@pytest.mark.parametrize("by", ["ring", "search"])
def test_a_waiting_slot_is_claimed_when_it_is_due_and_not_before(books: SqlStore, clock: FakeClock, by: str) -> None:
    ask(books)
    books.fail([failed(take(books, "content"), MINUTE)])
    ring = ring_of(books.slot("shelf", "doc", "content"))

    def claim() -> list[Any]:
        return books.claim([ring], "bob") if by == "ring" else books.claim_next(KINDS, "bob", 10)

    clock.advance(MINUTE - TICK)
    assert claim() == []
    clock.advance(TICK)
    assert [one.attempt for one in claim()] == [2]


def test_slots_are_claimed_by_priority_and_then_by_age(books: SqlStore, clock: FakeClock) -> None:
    for name, priority in (("e", 9), ("b", 5), ("a", 0), ("c", 5), ("d", 5)):
        ask(books, name, slots=ONE, priority=priority)
        clock.advance(SECOND if name != "c" else timedelta())
    claimed = [books.claim_next(["cards"], "ann", 1)[0].key.owner for _ in range(5)]
    assert claimed == ["a", "b", "c", "d", "e"]


def test_the_limit_of_a_claim_applies_to_all_kinds_together(books: SqlStore, clock: FakeClock) -> None:
    for n, kind in enumerate(("x", "y", "x", "y", "z")):
        ask(books, str(n), slots=(SlotSpec(kind),))
        clock.advance(SECOND)
    tickets = books.claim_next(["x", "y"], "ann", 3)
    assert {one.key.owner for one in tickets} == {"0", "1", "2"}
    assert [one.key.owner for one in books.claim_next(["x", "y"], "ann", 3)] == ["3"]


def test_a_slot_that_failed_before_is_claimed_alone(books: SqlStore, clock: FakeClock) -> None:
    for name in ("a", "b", "c"):
        ask(books, name, slots=ONE)
        clock.advance(SECOND)
    books.fail([failed(take(books, "cards", "a"), MINUTE)])
    clock.advance(MINUTE)
    assert [(one.key.owner, one.attempt) for one in books.claim_next(["cards"], "ann", 10)] == [("a", 2)]
    assert {one.key.owner for one in books.claim_next(["cards"], "ann", 10)} == {"b", "c"}


def test_a_slot_that_was_tried_before_is_not_claimed_together_with_new_slots(books: SqlStore, clock: FakeClock) -> None:
    ask(books, "tried", slots=ONE, priority=7)
    ask(books, "fresh", slots=ONE)
    books.release([back(take(books, "cards", "tried"))])
    assert [one.key.owner for one in books.claim_next(["cards"], "ann", 10)] == ["fresh"]
    assert [one.key.owner for one in books.claim_next(["cards"], "ann", 10)] == ["tried"]


def test_a_slot_without_attempts_left_does_not_block_other_slots(books: SqlStore, clock: FakeClock) -> None:
    ask(books, "spent", slots=ONE)
    clock.advance(SECOND)
    ask(books, "fresh", slots=ONE)
    for _ in range(4):
        books.release([back(take(books, "cards", "spent"))])
    assert [one.key.owner for one in books.claim_next(["cards"], "ann", 10)] == ["fresh"]


def test_the_source_of_a_ticket_is_the_content_that_is_served(books: SqlStore) -> None:
    ask(books)
    content = take(books, "content")
    books.complete([finished(content)])
    assert [ticket.source for ticket in books.claim_next(["vector", "graph"], "ann", 10)] == [content.fence] * 2


def test_a_heartbeat_renews_the_lease_and_writes_the_progress(books: SqlStore, clock: FakeClock) -> None:
    ask(books)
    ticket = take(books, "content")
    clock.advance(MINUTE)
    books.extend([beat(ticket, stage="parsing", step=1, steps=3, done=10, total=40)])
    slot = books.slot("shelf", "doc", "content")
    assert (slot.until, slot.due_at, slot.progress_at) == (moment(minutes=3), moment(minutes=3), moment(minutes=1))
    assert slot.progress == Progress(stage="parsing", step=1, steps=3, done=10, total=40)
    assert (slot.fence, slot.attempts, slot.claimed_at) == (1, 1, START)


def test_progress_never_decreases_within_a_generation(books: SqlStore, clock: FakeClock) -> None:
    ask(books)
    ticket = take(books, "content")
    books.extend([beat(ticket, stage="a", step=2, steps=3, done=10, total=40)])
    books.extend([beat(ticket, stage="b", step=1, steps=2, done=50, total=60)])  # an earlier step
    books.extend([beat(ticket, stage="a", step=2, steps=3, done=5, total=30)])
    expected = Progress(stage="a", step=2, steps=3, done=10, total=40)
    assert books.slot("shelf", "doc", "content").progress == expected
    clock.advance(LEASE)
    again = take(books, "content")
    assert books.slot("shelf", "doc", "content").progress == expected
    books.extend([beat(again, stage="b", step=1, steps=3, done=60, total=60)])
    assert books.slot("shelf", "doc", "content").progress == expected


def test_each_step_starts_its_progress_at_zero(books: SqlStore) -> None:
    ask(books)
    ticket = take(books, "content")
    books.extend([beat(ticket, stage="chunking", step=1, steps=2, done=500, total=500)])
    books.extend([beat(ticket, stage="embedding", step=2, steps=2, done=0, total=40)])
    expected = Progress(stage="embedding", step=2, steps=2, done=0, total=40)
    assert books.slot("shelf", "doc", "content").progress == expected
    books.extend([beat(ticket, stage="embedding", step=2, steps=2, done=8, total=40)])
    assert books.slot("shelf", "doc", "content").progress.done == 8


def test_a_new_generation_starts_without_progress(books: SqlStore) -> None:
    ask(books)
    books.extend([beat(take(books, "content"), stage="a", step=2, steps=3, done=10, total=40)])
    ask(books, operation=O.CHANGE)
    assert books.slot("shelf", "doc", "content").progress == Progress()


def test_a_heartbeat_without_progress_does_not_hide_a_stall(books: SqlStore, clock: FakeClock) -> None:
    ask(books)
    ticket = take(books, "content")
    clock.advance(44 * MINUTE)
    books.report_long_running([books.slot("shelf", "doc", "content")])
    books.extend([beat(ticket, moved=False)])
    slot = books.slot("shelf", "doc", "content")
    assert (slot.until, slot.progress_at) == (moment(minutes=46), START)
    assert slot.due_at == moment(minutes=45), "the reconciler must look when the stall is over its limit"


def test_a_heartbeat_cannot_extend_the_deadline_of_the_attempt(books: SqlStore, clock: FakeClock) -> None:
    ask(books)
    ticket = take(books, "content")
    clock.advance(6 * HOUR - MINUTE)
    books.report_long_running([books.slot("shelf", "doc", "content")])
    books.extend([beat(ticket, done=1)])
    slot = books.slot("shelf", "doc", "content")
    assert (slot.until, slot.due_at) == (moment(hours=6, minutes=1), moment(hours=6))


def test_a_completed_build_is_served_and_its_dependents_are_queued(books: SqlStore, clock: FakeClock) -> None:
    ask(books)
    clock.advance(MINUTE)
    build(books, "content")
    content = books.slot("shelf", "doc", "content")
    assert (content.state, content.built, content.source, content.missing) == (S.READY, 1, 1, 0)
    assert (content.holder, content.until, content.due_at, content.error) == (None, None, None, None)
    vector = books.slot("shelf", "doc", "vector")
    assert (vector.state, vector.queued_at) == (S.QUEUED, moment(minutes=1))
    assert books.owner("shelf", "doc").status is Status.INDEXING


def test_an_index_covers_the_content_build_it_was_made_from(books: SqlStore) -> None:
    ask(books)
    books.fail([failed(take(books, "content"), timedelta())])
    build(books, "content", "vector")
    assert books.slot("shelf", "doc", "content").source == 2, "the second claim has the second fence"
    assert books.slot("shelf", "doc", "vector").source == 2


def test_a_chain_of_dependencies_is_queued_one_slot_at_a_time(books: SqlStore) -> None:
    ask(books, slots=(SlotSpec("c", "b"), SlotSpec("a"), SlotSpec("b", "a")))
    assert states(books) == {"a": "queued", "b": "blocked", "c": "blocked"}
    build(books, "a")
    assert states(books) == {"a": "ready", "b": "queued", "c": "blocked"}
    build(books, "b")
    assert states(books) == {"a": "ready", "b": "ready", "c": "queued"}
    assert books.slot("shelf", "doc", "b").source == books.slot("shelf", "doc", "a").source == 1


def test_a_failed_slot_fails_every_slot_that_depends_on_it(books: SqlStore) -> None:
    answer = ask(books, slots=(SlotSpec("a"), SlotSpec("b", "a"), SlotSpec("c", "b"), SlotSpec("x")))
    books.fail([failed(take(books, "a"), code="bad_file")])
    assert states(books) == {"a": "failed", "b": "failed", "c": "failed", "x": "queued"}
    assert books.slot("shelf", "doc", "a").error == Fault("bad_file", {"why": "test"})
    for kind in "bc":
        assert books.slot("shelf", "doc", kind).error == Fault("needed_slot_failed", {"kind": "a"})
    assert books.job(answer.job or "").open == 1


def test_a_postponed_build_waits_and_does_not_fail_its_dependents(books: SqlStore, clock: FakeClock) -> None:
    ask(books)
    ticket = take(books, "content")
    clock.advance(SECOND)
    books.fail([failed(ticket, MINUTE, code="busy")])
    slot = books.slot("shelf", "doc", "content")
    assert (slot.state, slot.due_at, slot.attempts) == (S.WAITING, moment(seconds=61), 1)
    assert (slot.holder, slot.until, slot.error) == (None, None, Fault("busy", {"why": "test"}))
    assert states(books) == {"content": "waiting", "vector": "blocked", "graph": "blocked"}
    assert books.owner("shelf", "doc").status is Status.INDEXING


def test_a_success_clears_the_error_of_an_earlier_attempt(books: SqlStore) -> None:
    ask(books, slots=ONE)
    books.fail([failed(take(books, "cards"), timedelta())])
    build(books, "cards")
    assert books.slot("shelf", "doc", "cards").error is None


def test_a_refunded_failure_uses_no_attempt(books: SqlStore, clock: FakeClock) -> None:
    ask(books, slots=ONE)
    for expected_fence in range(1, 10):  # many more than the limit of attempts
        ticket = take(books, "cards")
        assert (ticket.attempt, ticket.fence) == (1, expected_fence)
        books.fail([failed(ticket, MINUTE, refund=True)])
        assert books.slot("shelf", "doc", "cards").attempts == 0
        clock.advance(MINUTE)


@pytest.mark.parametrize(("refund", "attempts"), [(True, 0), (False, 1)])
def test_a_released_slot_is_queued_and_its_attempt_is_refunded_on_request(
    books: SqlStore, clock: FakeClock, refund: bool, attempts: int
) -> None:
    ask(books, slots=ONE)
    ticket = take(books, "cards")
    clock.advance(MINUTE)
    books.release([back(ticket, refund=refund)])
    slot = books.slot("shelf", "doc", "cards")
    assert (slot.state, slot.attempts, slot.fence) == (S.QUEUED, attempts, 1)
    assert (slot.holder, slot.until, slot.due_at) == (None, None, None)
    assert slot.queued_at == START, "it keeps its place in the queue"


def test_a_slot_is_not_claimed_after_its_last_attempt(books: SqlStore, clock: FakeClock) -> None:
    ask(books, slots=ONE)
    for _ in range(4):
        take(books, "cards")
        clock.advance(LEASE)
    slot = books.slot("shelf", "doc", "cards")
    assert slot.attempts == 4
    assert books.claim([ring_of(slot)], "ann") == []
    assert books.claim_next(["cards"], "ann", 10) == []


@pytest.mark.parametrize(
    ("missing", "outcome"),
    [
        ({"content": 0, "vector": 0, "graph": 0}, Outcome.SUCCESS),
        ({"content": 0, "vector": 1, "graph": 0}, Outcome.DEGRADED),
        ({"content": 0, "vector": 0}, Outcome.DEGRADED),
        ({"content": 0}, Outcome.FAILED),  # no index can be searched
        ({}, Outcome.FAILED),
    ],
    ids=str,
)
def test_the_last_slot_to_settle_ends_the_job(
    books: SqlStore, clock: FakeClock, missing: dict[str, int], outcome: Outcome
) -> None:
    job = ask(books).job or ""
    for kind in ("content", "vector", "graph"):
        if states(books)[kind] == "failed":  # because the content failed
            continue
        assert books.job(job).outcome is None
        clock.advance(SECOND)
        if kind in missing:
            build(books, kind, missing=missing[kind])
        else:
            books.fail([failed(take(books, kind), code="bad")])
    ended = books.job(job)
    assert (ended.outcome, ended.open, ended.finished_at) == (outcome, 0, clock.now())
    assert str(books.owner("shelf", "doc").status) == str(outcome)
    for slot in books.owner("shelf", "doc").slots:
        result = {"state": slot.state, "missing": slot.missing}
        result |= {"error": slot.error.code} if slot.error else {}
        assert ended.results[slot.key.kind] == result | ({"attempts": slot.attempts} if slot.attempts else {})


def test_a_batch_of_results_settles_several_jobs_and_slots_at_once(books: SqlStore) -> None:
    one, two = books.admit([request("one"), request("two")])
    build(books, "content", owner="one")
    tickets = books.claim_next(KINDS, "ann", 10)
    assert {(ticket.key.owner, ticket.key.kind) for ticket in tickets} == {
        ("one", "vector"),
        ("one", "graph"),
        ("two", "content"),
    }
    books.complete([finished(ticket) for ticket in tickets])
    assert books.job(one.job or "").outcome is Outcome.SUCCESS
    assert books.job(two.job or "").open == 2
    assert states(books, "two") == {"content": "ready", "vector": "queued", "graph": "queued"}


def test_the_old_build_is_served_until_the_new_one_is_complete(books: SqlStore) -> None:
    ask(books)
    build(books, "content", "vector", "graph", missing=1)
    served = {slot.key.kind: (slot.built, slot.source, slot.missing) for slot in books.owner("shelf", "doc").slots}
    ask(books, operation=O.CHANGE)

    def now_served() -> dict[str, Any]:
        return {slot.key.kind: (slot.built, slot.source, slot.missing) for slot in books.owner("shelf", "doc").slots}

    assert now_served() == served
    ticket = take(books, "content")
    assert (ticket.built, now_served()) == (1, served)
    books.fail([failed(ticket, timedelta())])
    assert now_served() == served
    ticket = take(books, "content")
    books.complete([finished(ticket)])
    assert now_served() == served | {"content": (2, ticket.fence, 0)}
    books.fail([failed(take(books, "vector"))])
    assert now_served()["vector"] == served["vector"]
    assert books.slot("shelf", "doc", "vector").served


def test_a_failed_reindex_keeps_the_old_build(books: SqlStore) -> None:
    ask(books)
    build(books, "content", "vector", "graph")
    job = ask(books, operation=O.REINDEX).job or ""
    books.fail([failed(take(books, "content"))])
    assert [(slot.built, slot.source, slot.wanted) for slot in books.owner("shelf", "doc").slots] == [(1, 1, 2)] * 3
    assert books.job(job).outcome is Outcome.FAILED
    assert books.owner("shelf", "doc").status is Status.DEGRADED


def test_a_superseded_worker_is_refused_and_frees_the_slot_immediately(books: SqlStore) -> None:
    first = ask(books)
    old = take(books, "content", holder="ann")
    second = ask(books, operation=O.CHANGE)
    assert books.job(first.job or "").outcome is Outcome.SUPERSEDED
    slot = books.slot("shelf", "doc", "content")
    assert (slot.state, slot.wanted, slot.holder, slot.attempts) == (S.QUEUED, 2, "ann", 0)
    assert books.claim_next(KINDS, "bob", 10) == [], "not before the old worker has let go"
    with pytest.raises(StaleLease):
        books.complete([finished(old)])
    books.release([back(old)])
    (new,) = books.claim_next(KINDS, "bob", 10)
    assert (new.generation, new.fence, new.attempt, new.job) == (2, 2, 1, second.job)


def test_a_superseded_slot_is_claimed_when_the_lease_of_its_worker_expires(books: SqlStore, clock: FakeClock) -> None:
    ask(books)
    take(books, "content", holder="ann")
    ask(books, operation=O.CHANGE)
    clock.advance(LEASE - TICK)
    assert books.claim_next(KINDS, "bob", 10) == []
    clock.advance(TICK)
    assert [ticket.generation for ticket in books.claim_next(KINDS, "bob", 10)] == [2]


def test_a_refund_does_not_change_the_attempts_of_a_newer_generation(books: SqlStore) -> None:
    ask(books, slots=ONE)
    old = take(books, "cards")
    ask(books, operation=O.CHANGE, slots=ONE)
    books.release([back(old, refund=True)])
    assert books.slot("shelf", "doc", "cards").attempts == 0


def test_generations_are_numbered_per_owner_and_a_slot_may_skip_numbers(books: SqlStore) -> None:
    ask(books)
    build(books, "content", "vector")
    books.fail([failed(take(books, "graph"))])
    ask(books, operation=O.RETRY)
    build(books, "graph")
    ask(books, operation=O.FORCE)
    assert {slot.wanted for slot in books.owner("shelf", "doc").slots} == {3}
    assert [job.generation for job in books.list_jobs_of_owner(books.owner("shelf", "doc").id)] == [3, 2, 1]


def test_a_cancel_ends_the_job_raises_the_fence_and_keeps_the_served_build(books: SqlStore, clock: FakeClock) -> None:
    ask(books)
    build(books, "content", "vector", "graph")
    job = ask(books, operation=O.FORCE).job or ""
    ticket = take(books, "content")
    before = {slot.key.kind: slot for slot in books.owner("shelf", "doc").slots}
    clock.advance(SECOND)
    answer = ask(books, operation=O.CANCEL)
    assert (answer.verdict, answer.job, answer.status) == (V.ACCEPTED, job, Status.SUCCESS)
    for slot in books.owner("shelf", "doc").slots:
        old = before[slot.key.kind]
        assert (slot.state, slot.fence) == (S.CANCELLED, old.fence + 1)
        assert (slot.built, slot.source, slot.missing) == (old.built, old.source, old.missing)
        assert (slot.holder, slot.until, slot.due_at) == (None, None, None)
        assert slot.served
    ended = books.job(job)
    assert (ended.outcome, ended.open, ended.finished_at) == (Outcome.CANCELLED, 0, clock.now())
    for late in late_writes(books, ticket):
        with pytest.raises(StaleLease):
            late()


def test_a_cancel_stops_unfinished_slots_and_keeps_finished_ones(books: SqlStore) -> None:
    ask(books)
    build(books, "content", "vector")
    assert ask(books, operation=O.CANCEL).status is Status.DEGRADED
    assert states(books) == {"content": "ready", "vector": "ready", "graph": "cancelled"}


@pytest.mark.parametrize("named", [(), DOCUMENT], ids=["what it has", "by name"])
@pytest.mark.parametrize("operation", [O.INDEX, O.RETRY])
def test_a_cancelled_newer_version_can_be_requested_again(
    books: SqlStore, operation: Operation, named: tuple[SlotSpec, ...]
) -> None:
    ask(books)
    build(books, "content", "vector", "graph")
    ask(books, operation=O.CHANGE, fingerprint="newer")
    assert ask(books, operation=O.CANCEL).status is Status.SUCCESS
    answer = ask(books, operation=operation, slots=named)
    assert (answer.verdict, answer.reason, answer.generation) == (V.ACCEPTED, "not_complete", 3)
    build(books, "content", "vector", "graph")
    assert {slot.built for slot in books.owner("shelf", "doc").slots} == {3}
    assert ask(books, operation=operation, slots=named).reason == "already_indexed"


def test_a_cancel_stops_a_slot_that_waits_for_a_retry(books: SqlStore) -> None:
    ask(books)
    books.fail([failed(take(books, "content"), MINUTE)])
    assert ask(books, operation=O.CANCEL).status is Status.NOT_INDEXED
    assert set(states(books).values()) == {"cancelled"}
    assert {slot.error for slot in books.owner("shelf", "doc").slots} == {None}, "nothing is tried again"


def test_a_new_request_after_a_cancel_is_accepted_and_claimed_immediately(books: SqlStore) -> None:
    ask(books)
    old = take(books, "content")
    ask(books, operation=O.CANCEL)
    again = ask(books)
    assert (again.verdict, again.reason, again.generation) == (V.ACCEPTED, "not_complete", 2)
    (new,) = books.claim_next(KINDS, "bob", 10)
    assert (new.generation, new.fence) == (2, old.fence + 2)


def test_a_cancel_without_active_slots_is_skipped(books: SqlStore) -> None:
    ask(books, slots=ONE)
    build(books, "cards")
    before = rows(books, tables.slots)
    answer = ask(books, operation=O.CANCEL)
    assert (answer.verdict, answer.reason) == (V.SKIPPED, "nothing_active")
    assert rows(books, tables.slots) == before


def test_a_delete_while_running_waits_for_the_lease_and_refuses_the_build(books: SqlStore, clock: FakeClock) -> None:
    first = ask(books)
    ticket = take(books, "content", holder="ann")
    answer = ask(books, operation=O.DELETE)
    assert (answer.verdict, answer.status, answer.generation) == (V.ACCEPTED, Status.DELETING, 2)
    assert books.job(first.job or "").outcome is Outcome.DELETED
    assert set(states(books).values()) == {"deleting"}
    with pytest.raises(StaleLease):
        books.complete([finished(ticket)])
    cleaning = books.claim_next(KINDS, "bob", 10)
    assert {one.key.kind for one in cleaning} == {"vector", "graph"}
    assert all(one.removing for one in cleaning)
    books.release([back(ticket)])
    (last,) = books.claim_next(KINDS, "bob", 10)
    assert (last.key.kind, last.removing, last.attempt) == ("content", True, 1)
    books.forget([*cleaning, last])
    with pytest.raises(UnknownOwner):
        books.owner("shelf", "doc")
    assert books.job(answer.job or "").outcome is Outcome.SUCCESS


def test_an_owner_is_removed_with_its_last_slot(books: SqlStore) -> None:
    ask(books)
    job = ask(books, operation=O.DELETE).job or ""
    for kind, left in (("content", 2), ("vector", 1)):
        books.forget([take(books, kind)])
        assert len(books.owner("shelf", "doc").slots) == books.job(job).open == left
    books.forget([take(books, "graph")])
    assert (rows(books, tables.owners), rows(books, tables.slots)) == ([], [])
    assert [one.outcome for one in books.list_jobs_of_owner(OwnerId(1))] == [Outcome.SUCCESS, Outcome.DELETED], (
        "history stays"
    )


def test_delete_wins_over_every_other_request(books: SqlStore) -> None:
    ask(books)
    deleting = ask(books, operation=O.DELETE)
    joined = ask(books, operation=O.DELETE)
    assert (joined.verdict, joined.reason, joined.job) == (V.JOINED, "already_deleting", deleting.job)
    before = rows(books, tables.slots)
    some: dict[Operation, dict[str, Any]] = {
        O.DROP: {"kinds": ("vector",)},
        O.RENEW: {"kinds": ("content",), "slots": (SlotSpec("content"),)},
    }
    for operation in set(O) - {O.DELETE, O.RETRY}:
        answer = ask(books, operation=operation, **some.get(operation, {}))
        assert (answer.verdict, answer.reason) == (V.REJECTED, "being_deleted")
    retried = ask(books, operation=O.RETRY)
    assert (retried.verdict, retried.reason, retried.job) == (V.JOINED, "already_deleting", deleting.job)
    assert rows(books, tables.slots) == before


def test_a_retry_makes_a_waiting_clean_up_due_immediately(books: SqlStore, clock: FakeClock) -> None:
    ask(books, slots=ONE)
    first = ask(books, operation=O.DELETE)
    for _ in range(3):
        ticket = take(books, "cards")
        books.fail([failed(ticket, MINUTE, code="disk")])
        clock.advance(MINUTE)
    books.fail([failed(take(books, "cards"), timedelta(hours=1), code="disk")])
    waits = books.slot("shelf", "doc", "cards")
    assert books.claim([ring_of(waits)], "worker") == []
    for operation in set(O) - {O.DELETE, O.RETRY, O.DROP, O.RENEW}:
        assert ask(books, operation=operation).reason == "being_deleted"
    again = ask(books, operation=O.RETRY, requester="Ada")
    assert (again.verdict, again.reason, again.status) == (V.ACCEPTED, "clean_up_again", Status.DELETING)
    assert again.generation == (first.generation or 0) + 1
    assert again.job != first.job
    slot = books.slot("shelf", "doc", "cards")
    assert (slot.state, slot.wanted, slot.attempts, slot.error) == (SlotState.DELETING, again.generation, 0, None)
    assert (slot.due_at, slot.fence) == (clock.now(), waits.fence)
    told = books.job(again.job or "")
    assert (told.operation, told.requester, told.outcome) == (O.DELETE, "Ada", None), "it can no more be cancelled"
    assert books.job(first.job or "").outcome is Outcome.SUPERSEDED
    joined = ask(books, operation=O.RETRY)
    assert (joined.verdict, joined.reason, joined.job) == (V.JOINED, "already_deleting", again.job)
    ticket = take(books, "cards")
    running = ask(books, operation=O.RETRY)
    assert (running.verdict, running.reason, running.job) == (V.JOINED, "already_deleting", again.job)
    books.forget([ticket])
    assert (rows(books, tables.owners), rows(books, tables.slots)) == ([], [])
    assert books.job(again.job or "").outcome is Outcome.SUCCESS
    gone = ask(books, operation=O.RETRY)
    assert (gone.verdict, gone.reason) == (V.REJECTED, "unknown_owner")


def test_a_retried_clean_up_does_not_count_against_the_quota(books: SqlStore) -> None:
    ask(books, slots=ONE)
    ask(books, operation=O.DELETE)
    books.fail([failed(take(books, "cards"), MINUTE, code="disk")])
    books.set_quota("shelf", 1)
    assert ask(books, operation=O.RETRY).accepted
    quota = books.quota("shelf")
    assert quota is not None
    assert quota.used == 0


def test_of_many_simultaneous_retries_of_a_clean_up_one_is_accepted(plain: SqlStore) -> None:
    ask(plain, slots=ONE)
    ask(plain, operation=O.DELETE)
    plain.fail([failed(take(plain, "cards"), MINUTE, code="disk")])
    answers = side_by_side(8, lambda _: ask(plain, operation=O.RETRY))
    (accepted,) = [one for one in answers if one.accepted]
    others = {(one.verdict, one.reason, one.job) for one in answers if not one.accepted}
    assert others == {(V.JOINED, "already_deleting", accepted.job)}
    audit(plain)


def test_a_failed_clean_up_stays_deleting_with_its_error_and_is_retried_without_limit(
    books: SqlStore, clock: FakeClock
) -> None:
    ask(books, slots=ONE)
    ask(books, operation=O.DELETE)
    for attempt in range(1, 9):
        ticket = take(books, "cards")
        assert ticket.attempt == attempt
        books.fail([failed(ticket, MINUTE, code="disk")])
        slot = books.slot("shelf", "doc", "cards")
        assert (slot.state, slot.due_at, slot.error) == (
            S.DELETING,
            clock.now() + 60_000_000,
            Fault("disk", {"why": "test"}),
        )
        assert books.claim([ring_of(slot)], "ann") == []
        clock.advance(MINUTE)


def test_a_clean_up_cannot_fail_for_good(books: SqlStore) -> None:
    ask(books, slots=ONE)
    ask(books, operation=O.DELETE)
    ticket = take(books, "cards")
    with pytest.raises(BadRequest, match="A failed clean-up must be attempted again, but the failure has no delay"):
        books.fail([failed(ticket)])
    assert states(books) == {"cards": "deleting"}


def test_only_deleting_slots_can_be_forgotten(books: SqlStore) -> None:
    ask(books, slots=ONE)
    with pytest.raises(BadRequest, match="The slot 'shelf/doc/cards' is not being deleted"):
        books.forget([take(books, "cards")])
    assert states(books) == {"cards": "running"}


def test_an_owner_added_after_a_delete_is_new_and_refuses_old_tickets(books: SqlStore) -> None:
    ask(books, slots=ONE)
    old = take(books, "cards")
    old_ring = ring_of(books.slot("shelf", "doc", "cards"))
    books.release([back(old)])
    old_owner = books.owner("shelf", "doc").id
    remove(books)
    ask(books, slots=ONE)
    slot = books.slot("shelf", "doc", "cards")
    assert (slot.wanted, slot.fence) == (1, 0)
    assert slot.id > old.slot
    assert slot.owner_id > old_owner
    assert books.claim([old_ring], "ann") == []
    assert take(books, "cards").fence == old.fence, "the numbers meet, the ids do not"
    for late in late_writes(books, old):
        with pytest.raises(StaleLease):
            late()
    assert states(books) == {"cards": "running"}


@pytest.mark.parametrize("verb", ["extended", "completed", "failed", "postponed", "released", "forgotten"])
def test_stale_writes_of_a_batch_are_refused_and_counted_and_the_others_written(
    books: SqlStore, clock: FakeClock, verb: str
) -> None:
    names = ["a", "b", "c", "d"]
    for name in names:
        ask(books, name, slots=ONE)
        if verb == "forgotten":
            ask(books, name, O.DELETE)
    tickets = {name: take(books, "cards", name) for name in names}
    clock.advance(LEASE)
    for name in "bd":
        take(books, "cards", name, holder="another")  # another worker takes over
    taken = {name: books.slot("shelf", name, "cards") for name in "bd"}
    mine = list(tickets.values())
    write: dict[str, Callable[[], None]] = {
        "extended": lambda: books.extend([beat(one, done=7) for one in mine]),
        "completed": lambda: books.complete([finished(one) for one in mine]),
        "failed": lambda: books.fail([failed(one) for one in mine]),
        "postponed": lambda: books.fail([failed(one, MINUTE) for one in mine]),
        "released": lambda: books.release([back(one) for one in mine]),
        "forgotten": lambda: books.forget(mine),
    }
    with pytest.raises(StaleLease) as stale:
        write[verb]()
    assert stale.value.tickets == (tickets["b"], tickets["d"])
    assert stale.value.verb == ("failed" if verb == "postponed" else verb)
    assert "shelf/b/cards, shelf/d/cards:" in str(stale.value)
    assert refused(books) == {stale.value.verb: 2}
    assert {name: books.slot("shelf", name, "cards") for name in "bd"} == taken
    if verb == "forgotten":
        assert [row["owner"] for row in rows(books, tables.owners)] == ["b", "d"]
        return
    for name in "ac":
        slot = books.slot("shelf", name, "cards")
        expected = {"extended": "running", "completed": "ready", "released": "queued", "postponed": "waiting"}
        assert slot.state == expected.get(verb, verb)
        assert slot.progress.done == (7 if verb == "extended" else 0)


def test_a_build_is_published_once(books: SqlStore) -> None:
    ask(books, slots=ONE)
    ticket = take(books, "cards")
    books.complete([finished(ticket)])
    before = rows(books, tables.slots)
    with pytest.raises(StaleLease):
        books.complete([finished(ticket, missing=3)])
    assert rows(books, tables.slots) == before


def test_an_empty_batch_writes_nothing(books: SqlStore) -> None:
    ask(books)
    before = everything(books)
    assert books.claim([], "ann") == []
    assert books.claim_next([], "ann", 10) == []
    assert books.ring([]) == []
    assert books.expire([]) == []
    assert books.give_up([]) == []
    for verb in (books.extend, books.complete, books.fail, books.release, books.forget):
        verb([])
    assert everything(books) == before


@pytest.fixture
def notes(plain: SqlStore) -> SqlStore:
    """Return a store whose database has an extra table, as an indexer would own one."""
    with plain.database.engine.begin() as connection:
        connection.execute(text("CREATE TABLE notes (note TEXT NOT NULL)"))
    return plain


def written(store: SqlStore) -> list[str]:
    with store.database.engine.connect() as connection:
        return list(connection.execute(text("SELECT note FROM notes ORDER BY note")).scalars())


def test_a_worker_writes_its_own_rows_while_it_holds_the_slot(notes: SqlStore) -> None:
    ask(notes)
    ticket = take(notes, "content")
    for note in ("a", "b"):
        with notes.guarded(ticket) as connection:
            connection.execute(text("INSERT INTO notes VALUES (:note)"), {"note": note})
    assert written(notes) == ["a", "b"]
    assert refused(notes) == {}


@pytest.mark.parametrize("how", ["superseded", "cancelled", "deleted", "taken over", "completed"])
def test_a_worker_that_lost_its_slot_writes_no_row(notes: SqlStore, clock: FakeClock, how: str) -> None:
    ask(notes)
    ticket = take(notes, "content")
    if how == "taken over":
        clock.advance(LEASE)
        take(notes, "content", holder="another")
    elif how == "completed":
        notes.complete([finished(ticket)])
    else:
        ask(notes, operation={"superseded": O.CHANGE, "cancelled": O.CANCEL, "deleted": O.DELETE}[how])
    entered = False
    with pytest.raises(StaleLease) as stale, notes.guarded(ticket):
        entered = True
    assert not entered
    assert (stale.value.verb, stale.value.tickets) == ("guarded", (ticket,))
    assert (written(notes), refused(notes)) == ([], {"guarded": 1})


def test_rows_are_rolled_back_when_the_worker_raises(notes: SqlStore) -> None:
    ask(notes)
    ticket = take(notes, "content")

    def write_and_raise() -> None:
        with notes.guarded(ticket) as connection:
            connection.execute(text("INSERT INTO notes VALUES ('half')"))
            raise RuntimeError("the indexer")

    with pytest.raises(RuntimeError, match="the indexer"):
        write_and_raise()
    assert written(notes) == []
    assert states(notes)["content"] == "running"


def test_no_worker_takes_over_a_slot_between_the_fence_check_and_the_commit(notes: SqlStore, clock: FakeClock) -> None:
    ask(notes)
    ticket = take(notes, "content")
    clock.advance(LEASE)
    inside, done = threading.Event(), threading.Event()
    order: list[str] = []

    def take_over(_: int) -> None:
        inside.wait()
        done.set()
        notes.claim([ring_of(notes.slot("shelf", "doc", "content"))], "another")
        order.append("taken over")

    def write_slowly(_: int) -> None:
        with notes.guarded(ticket) as connection:
            inside.set()
            done.wait()
            connection.execute(text("INSERT INTO notes VALUES ('mine')"))
            order.append("written")

    side_by_side(2, lambda index: (write_slowly, take_over)[index](index))
    assert order == ["written", "taken over"]
    assert written(notes) == ["mine"]


def test_due_slots_are_found_in_order_of_their_due_time_with_the_next_due_time(
    books: SqlStore, clock: FakeClock
) -> None:
    for name, delay in (("a", 3), ("b", 1), ("c", 2), ("d", 9)):
        ask(books, name, slots=ONE)
        books.fail([failed(take(books, "cards", name), timedelta(seconds=delay))])
    clock.advance(timedelta(seconds=1) - TICK)
    work = books.find_due("cards", 10)
    assert (work.now, work.slots, work.next_due) == (clock.now(), [], moment(seconds=1))
    clock.advance(timedelta(seconds=2) + TICK)
    work = books.find_due("cards", 10)
    assert [slot.key.owner for slot in work.slots] == ["b", "c", "a"]
    assert (work.now, work.next_due) == (moment(seconds=3), moment(seconds=9))
    assert [slot.key.owner for slot in books.find_due("cards", 2).slots] == ["b", "c"]
    clock.advance(timedelta(seconds=6))
    assert books.find_due("cards", 10).next_due is None


def test_only_running_waiting_and_deleting_slots_become_due(plain: SqlStore, clock: FakeClock) -> None:
    owner = put_owner(plain)
    for state in S:
        lease = {"holder": "ann", "until": START} if state is S.RUNNING else {}
        built = {"built": 1} if state is S.READY else {}
        put_slot(plain, owner, kind=state, state=state, due_at=START, **lease, **built)
    due = {state for state in S if plain.find_due(state, 10).slots}
    assert due == {S.RUNNING, S.WAITING, S.DELETING}
    clock.jump(-SECOND)
    assert not any(plain.find_due(state, 10).slots for state in S)


def test_a_slot_found_by_its_holder_has_all_its_columns(books: SqlStore) -> None:
    ask(books)
    books.extend([beat(take(books, "content"), stage="parsing", done=3)])
    (held,) = books.find_held_by(["worker"], 10).slots
    assert held == books.slot("shelf", "doc", "content")


def test_queued_slots_are_rung_in_the_order_of_claims(books: SqlStore, clock: FakeClock) -> None:
    for name, priority in (("c", 5), ("a", 0), ("d", 5), ("e", 9), ("b", 5)):
        ask(books, name, slots=ONE, priority=priority)
        if name != "b":
            clock.advance(SECOND)
    ask(books, "other kind")
    work = books.find_unrung(["cards"], 10)
    assert (work.now, [slot.key.owner for slot in work.slots]) == (clock.now(), ["a", "c", "d", "b", "e"])
    assert [slot.key.owner for slot in books.find_unrung(["cards"], 2).slots] == ["a", "c"]


def test_the_limit_of_rings_applies_to_each_kind(books: SqlStore, clock: FakeClock) -> None:
    for n, kind in enumerate(("x", "y", "x", "y", "x", "z")):
        ask(books, str(n), slots=(SlotSpec(kind),))
        clock.advance(SECOND)
    found = books.find_unrung(["y", "x"], 2).slots
    assert sorted(slot.key.owner for slot in found) == ["0", "1", "2", "3"]


def test_only_queued_slots_that_are_free_are_rung(books: SqlStore, clock: FakeClock) -> None:
    ask(books)
    assert [slot.key.kind for kind in KINDS for slot in books.find_unrung([kind], 10).slots] == ["content"]
    take(books, "content")
    assert books.find_unrung(["content"], 10).slots == []
    ask(books, operation=O.CHANGE)
    assert books.find_unrung(["content"], 10).slots == [], "the superseded worker still holds it"
    clock.advance(LEASE)
    assert len(books.find_unrung(["content"], 10).slots) == 1


def test_a_slot_is_rung_once_a_minute_until_it_is_claimed(books: SqlStore, clock: FakeClock) -> None:
    ask(books)
    work = books.find_unrung(["content"], 10)
    (ring,) = books.ring(work.slots)
    slot = books.slot("shelf", "doc", "content")
    assert (ring, slot.rung_at) == (ring_of(slot), START)
    assert books.ring(work.slots) == [], "a second reconciler that read the same rings nobody"
    clock.advance(MINUTE - TICK)
    assert (books.find_unrung(["content"], 10).slots, books.count_outstanding_rings("content")) == ([], 1)
    clock.advance(TICK)
    assert books.count_outstanding_rings("content") == 0
    assert len(books.ring(books.find_unrung(["content"], 10).slots)) == 1
    assert (books.count_outstanding_rings("content"), books.count_outstanding_rings("vector")) == (1, 0)
    take(books, "content")
    assert (books.count_outstanding_rings("content"), books.slot("shelf", "doc", "content").rung_at) == (0, None)


def test_a_ring_changes_only_the_ring_time_of_a_slot(books: SqlStore) -> None:
    ask(books)
    before, events = books.slot("shelf", "doc", "content"), books.events()
    books.ring([before])
    assert books.slot("shelf", "doc", "content") == before._replace(rung_at=START)
    assert books.events() == events


def test_a_ring_waits_for_a_transaction_that_locked_its_owner(books: SqlStore) -> None:
    ask(books)
    slot = books.slot("shelf", "doc", "content")
    with books.database.writing(durable=False) as tx:
        tx.lock_owners([slot.owner_id])
        ringing = Meanwhile(books.database, lambda: books.ring([slot]))
        assert ringing.waits
    ringing.end()


def test_a_ring_does_not_wait_for_the_disk(postgres_url: str, clock: FakeClock) -> None:
    books = open_test_store(postgres_url, clock)
    ask(books)
    marked: list[Rows] = []
    write_single = books.database.write_single

    def write(
        statement: ClauseElement, rows: Rows | None = None, *, durable: bool, **params: Any
    ) -> list[tuple[Any, ...]]:
        with books.database.writing(durable=False) as tx:
            marked.append(tx.run(statement, rows, **params))
            assert tx.run_sql("SHOW synchronous_commit") == [("off",)]
        return write_single(statement, rows, durable=durable, **params)

    books.database.write_single = write  # type: ignore[method-assign]
    books.ring(books.find_unrung(["content"], 10).slots)
    assert len(marked[0]) == 1
    with books.database.writing(durable=False) as tx:
        assert tx.run_sql("SHOW synchronous_commit") == [("on",)], "it must not outlast its transaction"
    books.close()


def test_slots_that_changed_after_they_were_read_are_not_rung(books: SqlStore) -> None:
    for name in "abc":
        ask(books, name, slots=ONE)
    read = books.find_unrung(["cards"], 10).slots
    take(books, "cards", "b")
    assert [ring.slot for ring in books.ring(read)] == [read[0].id, read[2].id]


def test_each_holder_of_a_lease_is_listed_once(books: SqlStore) -> None:
    assert books.list_holders() == []
    for name, holder in (("a", "ann"), ("b", "bob"), ("c", "ann")):
        ask(books, name, slots=ONE)
        take(books, "cards", name, holder=holder)
    assert sorted(books.list_holders()) == ["ann", "bob"]
    assert {slot.key.owner for slot in books.find_held_by({"ann"}, 10).slots} == {"a", "c"}
    assert len(books.find_held_by({"ann", "bob"}, 2).slots) == 2
    assert books.find_held_by({"ann"}, 10).now == START
    assert books.find_held_by({"eve"}, 10).slots == []
    ask(books, "b", O.DELETE)
    assert sorted(books.list_holders()) == ["ann", "bob"], "a superseded worker holds it until it lets go"
    ask(books, "c", O.CANCEL)
    assert {slot.key.owner for slot in books.find_held_by({"ann"}, 10).slots} == {"a"}


def test_an_expired_slot_is_queued_with_a_higher_fence_and_its_attempt_counted(books: SqlStore) -> None:
    ask(books)
    ticket = take(books, "content")
    slot = books.slot("shelf", "doc", "content")
    (after,) = books.expire([(slot, Expire("holder_died"))])
    assert after == books.slot("shelf", "doc", "content")
    assert (after.state, after.fence, after.attempts) == (S.QUEUED, 2, 1)
    assert (after.holder, after.until, after.due_at) == (None, None, None)
    with pytest.raises(StaleLease):
        books.complete([finished(ticket)])
    assert [(one.event.type, one.event.parsed_data["reason"]) for one in books.events()[-1:]] == [
        ("slot.expired", "holder_died")
    ]


@pytest.mark.parametrize("state", [S.QUEUED, S.BLOCKED, S.DELETING])
def test_a_superseded_lease_of_a_dead_worker_can_be_expired(books: SqlStore, state: SlotState) -> None:
    ask(books)
    build(books, "content")
    take(books, "vector", holder="ann")
    if state is S.QUEUED:
        ask(books, operation=O.CANCEL)
        ask(books)
        take(books, "vector", holder="ann")
    ask(books, operation=O.DELETE if state is S.DELETING else O.CHANGE)
    if state is S.QUEUED:
        build(books, "content")
    slot = books.slot("shelf", "doc", "vector")
    assert (slot.state, slot.holder) == (state, "ann")
    (after,) = books.expire([(slot, Expire("holder_died"))])
    assert (after.state, after.fence, after.holder) == (state, slot.fence + 1, None)
    assert after.due_at == (START if state is S.DELETING else None)


def test_a_slot_that_changed_after_it_was_read_is_not_expired(books: SqlStore, clock: FakeClock) -> None:
    for name in "abc":
        ask(books, name, slots=ONE)
    tickets = [take(books, "cards", name) for name in "abc"]
    read = [(books.slot("shelf", name, "cards"), Expire("no_progress")) for name in "abc"]
    clock.advance(SECOND)
    books.extend([beat(tickets[1])])
    assert [slot.key.owner for slot in books.expire(read)] == ["a", "c"]
    assert books.slot("shelf", "b", "cards").state is S.RUNNING


def test_a_slot_released_after_it_was_read_is_not_expired(books: SqlStore) -> None:
    ask(books, slots=ONE)
    ticket = take(books, "cards")
    ask(books, operation=O.CHANGE, slots=ONE)
    read = books.slot("shelf", "doc", "cards")  # queued, but the superseded worker still holds the lease
    books.release([back(ticket)])
    freed = books.slot("shelf", "doc", "cards")
    assert books.expire([(read, Expire("holder_died"))]) == []
    assert books.slot("shelf", "doc", "cards") == freed


def test_giving_up_a_slot_fails_it_and_its_dependents(books: SqlStore) -> None:
    job = ask(books).job or ""
    take(books, "content")
    slot = books.slot("shelf", "doc", "content")
    gone = books.give_up([slot])
    assert {one.key.kind for one in gone} == {"content", "vector", "graph"}
    content = books.slot("shelf", "doc", "content")
    assert (content.state, content.fence, content.holder, content.due_at) == (S.FAILED, 2, None, None)
    assert content.error == Fault("attempts_spent", {"attempts": "1", "last": "worker_lost"})
    assert books.slot("shelf", "doc", "graph").error == Fault("needed_slot_failed", {"kind": "content"})
    assert books.job(job).outcome is Outcome.FAILED
    assert books.give_up([slot]) == [], "it moved"


def test_a_slot_that_is_given_up_keeps_its_last_error(books: SqlStore, clock: FakeClock) -> None:
    ask(books, slots=ONE)
    books.fail([failed(take(books, "cards"), MINUTE, code="timeout")])
    (gone,) = books.give_up([books.slot("shelf", "doc", "cards")])
    assert gone.error == Fault("attempts_spent", {"attempts": "1", "last": "timeout"})


def test_a_clean_up_under_a_superseded_lease_is_due_when_the_lease_expires(books: SqlStore, clock: FakeClock) -> None:
    ask(books, slots=ONE)
    take(books, "cards")
    ask(books, operation=O.DELETE)
    clock.advance(TICK)
    assert books.find_due("cards", 10).next_due == moment(seconds=120)


def test_history_past_its_retention_is_removed_in_batches(books: SqlStore, clock: FakeClock) -> None:
    for n in range(3):
        ask(books, str(n), slots=ONE)
        build(books, "cards", owner=str(n))
        ask(books, str(n), slots=ONE)  # refused as a duplicate
    events = len(books.events())
    assert events == 12
    clock.advance(timedelta(days=30))
    assert books.delete_old_history(timedelta(days=30), 100) == 0, "not older than the retention"
    clock.advance(TICK)
    assert books.delete_old_history(timedelta(days=30), 2) == 6
    assert [len(rows(books, table)) for table in (tables.events, tables.duplicates, tables.jobs)] == [events - 2, 1, 1]
    assert books.delete_old_history(timedelta(days=30), 100) == events - 2 + 1 + 1
    assert books.delete_old_history(timedelta(days=30), 100) == 0
    assert {states(books, str(n))["cards"] for n in range(3)} == {"ready"}, "what is served is no history"


def test_the_mark_of_removed_events_only_moves_forward(plain: SqlStore) -> None:
    def marks() -> dict[str, tuple[int, int]]:
        return {row["name"]: (row["xid"], row["id"]) for row in rows(plain, tables.event_marks)}

    with plain.database.engine.begin() as connection:
        connection.execute(insert(tables.event_marks).values(name="other", xid=0, id=0))
    before = marks()
    steps = {(5, 7): (5, 7), (5, 6): (5, 7), (4, 9): (5, 7), (5, 8): (5, 8), (6, 1): (6, 1)}
    for (xid, id_), marked in steps.items():
        plain.database.write(partial(lambda tx, **at: tx.run(sql.MARK_SWEPT, **at), xid=xid, id=id_), durable=False)
        assert marks() == before | {"swept": marked}


def test_recent_history_and_active_jobs_are_kept(books: SqlStore, clock: FakeClock) -> None:
    active = ask(books, "active", slots=ONE).job or ""
    clock.advance(timedelta(days=31))
    done = ask(books, "done", slots=ONE).job or ""
    build(books, "cards", owner="done")
    ask(books, "done", slots=ONE)
    young = [one.id for one in books.events() if one.at == clock.now()]
    assert books.delete_old_history(timedelta(days=30), 100) == 1
    assert [one.id for one in books.events()] == young
    assert (books.job(active).open, books.job(done).outcome) == (1, Outcome.SUCCESS)
    assert len(books.refusals()) == 1


def test_marking_one_ended_job_as_reported_leaves_the_others_unreported(books: SqlStore) -> None:
    for owner in ("one", "two", "three"):
        ask(books, owner, slots=ONE, notify_on_end=True)
        build(books, "cards", owner=owner)
    ended = {job.owner: job for job in books.list_unreported_jobs("shelf", 10)}  # all three ended at the same time
    assert ended.keys() == {"one", "two", "three"}
    books.mark_reported([ended["two"]])
    assert {job.owner for job in books.list_unreported_jobs("shelf", 10)} == {"one", "three"}
    assert books.list_unreported_jobs("another base", 10) == []


def told(store: SqlStore, after: int = 0) -> list[tuple[Any, ...]]:
    """Return the event log. Slots that one statement moved have no defined order, so this function sorts them."""
    log = [
        (one.event.type, one.event.kind, one.event.parsed_data.get("from"), one.event.parsed_data.get("to"))
        for one in store.events(after)
    ]
    return [one for _, together in groupby(log, key=itemgetter(0)) for one in sorted(together, key=str)]


def test_every_transition_writes_an_event_in_order(books: SqlStore, clock: FakeClock) -> None:
    kinds = (CONTENT, VECTOR)
    ask(books, slots=kinds)
    books.fail([failed(take(books, "content"), timedelta())])
    books.release([back(take(books, "content"))])
    take(books, "content")
    books.expire([(books.slot("shelf", "doc", "content"), Expire("holder_died"))])
    build(books, "content")
    books.fail([failed(take(books, "vector"))])
    assert told(books) == [
        ("slot.admitted", "content", None, "queued"),
        ("slot.admitted", "vector", None, "blocked"),
        ("slot.claimed", "content", "queued", "running"),
        ("slot.postponed", "content", "running", "waiting"),
        ("slot.claimed", "content", "waiting", "running"),
        ("slot.released", "content", "running", "queued"),
        ("slot.claimed", "content", "queued", "running"),
        ("slot.expired", "content", "running", "queued"),
        ("slot.claimed", "content", "queued", "running"),
        ("slot.completed", "content", "running", "ready"),
        ("slot.unblocked", "vector", "blocked", "queued"),
        ("slot.claimed", "vector", "queued", "running"),
        ("slot.failed", "vector", "running", "failed"),
        ("job.failed", None, None, None),
    ]
    last = books.events()[-1].id
    ask(books, operation=O.CHANGE, slots=kinds)
    ask(books, operation=O.CANCEL)
    ask(books, slots=kinds)
    take(books, "content")
    books.give_up([books.slot("shelf", "doc", "content")])
    ask(books, operation=O.DELETE)
    books.forget([take(books, "content")])
    books.forget([take(books, "vector")])
    assert told(books, last) == [
        ("slot.admitted", "content", "ready", "queued"),
        ("slot.admitted", "vector", "failed", "blocked"),
        ("job.cancelled", None, None, None),
        ("slot.cancelled", "content", "queued", "cancelled"),
        ("slot.cancelled", "vector", "blocked", "cancelled"),
        ("slot.admitted", "content", "cancelled", "queued"),
        ("slot.admitted", "vector", "cancelled", "blocked"),
        ("slot.claimed", "content", "queued", "running"),
        ("slot.given_up", "content", "running", "failed"),
        ("slot.failed", "vector", "blocked", "failed"),
        ("job.failed", None, None, None),
        ("slot.deleting", "content", "failed", "deleting"),
        ("slot.deleting", "vector", "failed", "deleting"),
        ("slot.claimed", "content", "deleting", "deleting"),
        ("slot.forgotten", "content", "deleting", None),
        ("slot.claimed", "vector", "deleting", "deleting"),
        ("slot.forgotten", "vector", "deleting", None),
        ("job.success", None, None, None),
    ]


@pytest.mark.parametrize(
    ("operation", "outcome"), [(O.CHANGE, "superseded"), (O.CANCEL, "cancelled"), (O.DELETE, "deleted")]
)
def test_an_operation_that_ends_a_job_writes_the_event_of_its_end(
    books: SqlStore, operation: Operation, outcome: str
) -> None:
    job = ask(books).job
    last = books.events()[-1].id
    ask(books, operation=operation)
    ended = [one.event for one in books.events(last) if one.event.job == job and one.event.kind is None]
    assert [(one.type, one.base, one.owner, one.generation) for one in ended] == [(f"job.{outcome}", "shelf", "doc", 1)]


def test_an_event_has_the_time_the_job_the_generation_and_the_fence(books: SqlStore, clock: FakeClock) -> None:
    job = ask(books, slots=ONE).job
    clock.advance(MINUTE)
    take(books, "cards", holder="ann")
    event = books.events()[-1]
    assert (event.at, event.event.job, event.event.generation, event.event.fence) == (moment(minutes=1), job, 1, 1)
    assert (event.event.base, event.event.owner, event.event.parsed_data["holder"]) == ("shelf", "doc", "ann")


def test_events_are_read_page_by_page_after_a_given_id(books: SqlStore) -> None:
    ask(books)
    ask(books, operation=O.CHANGE)
    all_of_them = books.events()
    numbers = [one.id for one in all_of_them]
    assert numbers == sorted(set(numbers))
    assert books.events(limit=2) == all_of_them[:2]
    assert books.events(after=numbers[1], limit=3) == all_of_them[2:5]
    assert books.events(after=numbers[-1]) == []


def test_a_refused_write_makes_no_event(books: SqlStore) -> None:
    ask(books, slots=ONE)
    ticket = take(books, "cards")
    ask(books, operation=O.CANCEL)
    events = books.events()
    with pytest.raises(StaleLease):
        books.complete([finished(ticket)])
    assert books.events() == events


def test_ids_of_removed_events_are_not_used_again(books: SqlStore, clock: FakeClock) -> None:
    ask(books, slots=ONE)
    last = books.events()[-1].id
    clock.advance(HOUR)
    books.delete_old_history(MINUTE, 100)
    assert books.events() == []
    ask(books, "other", slots=ONE)
    assert all(one.id > last for one in books.events())


def test_an_error_names_the_unknown_owner_slot_or_job(books: SqlStore) -> None:
    ask(books, slots=ONE)
    with pytest.raises(UnknownOwner, match="No 'nobody' in base 'shelf'"):
        books.owner("shelf", "nobody")
    with pytest.raises(UnknownOwner, match="No 'doc' in base 'attic'"):
        books.owner("attic", "doc")
    with pytest.raises(UnknownOwner, match="'nobody'"):
        books.slot("shelf", "nobody", "cards")
    with pytest.raises(UnknownSlot, match="'doc' in base 'shelf' has no index 'graph'"):
        books.slot("shelf", "doc", "graph")
    with pytest.raises(UnknownJob, match="No job 'job-99'"):
        books.job("job-99")
    assert books.list_jobs_of_owner(OwnerId(99)) == []


def test_an_owner_finds_its_slots_by_kind(books: SqlStore) -> None:
    ask(books)
    owner = books.owner("shelf", "doc")
    assert owner.slot("vector") == books.slot("shelf", "doc", "vector")
    assert owner.slot("cards") is None


def test_the_jobs_of_an_owner_are_listed_newest_first_up_to_the_limit(books: SqlStore) -> None:
    answers = [ask(books), *[ask(books, operation=O.CHANGE) for _ in range(3)]]
    ask(books, "other")
    owner = books.owner("shelf", "doc").id
    assert [job.id for job in books.list_jobs_of_owner(owner)] == [answer.job for answer in reversed(answers)]
    assert [job.generation for job in books.list_jobs_of_owner(owner, limit=2)] == [4, 3]


def test_the_counters_of_refused_writes_exist_from_the_start(books: SqlStore) -> None:
    verbs = ("completed", "failed", "released", "forgotten", "extended", "guarded")
    assert books.counters() == {f"stale_write_rejected.{verb}": 0 for verb in verbs}


def test_workers_are_woken_only_when_there_is_new_work(database_url: str, clock: FakeClock) -> None:
    woken: list[None] = []
    store = open_test_store(database_url, clock, wake=lambda: woken.append(None))

    def wakes() -> int:
        count = len(woken)
        woken.clear()
        return count

    ask(store, slots=(CONTENT, VECTOR))
    assert wakes() == 1
    ask(store)
    assert wakes() == 0, "a refused request makes no work"
    ticket = take(store, "content")
    assert wakes() == 0
    store.release([back(ticket)])
    assert wakes() == 1
    build(store, "content")
    assert wakes() == 1, "the index is queued now"
    build(store, "vector")
    assert wakes() == 0
    ask(store, operation=O.DELETE)
    assert wakes() == 1
    store.close()


def violate(store: SqlStore, table: Any, **columns: Any) -> None:
    with pytest.raises(IntegrityError), store.database.engine.begin() as connection:
        connection.execute(insert(table).values(**columns))


def test_the_database_refuses_a_second_active_job_for_an_owner(books: SqlStore) -> None:
    ask(books)
    owner = books.owner("shelf", "doc").id
    job = JOB_ROW | {"owner_id": owner, "generation": 99}
    violate(books, tables.jobs, id="second", **job)
    with books.database.engine.begin() as connection:
        ended = {"open": 0, "outcome": "success", "finished_at": 0}
        connection.execute(insert(tables.jobs).values(id="ended", **job | ended))
    assert len(books.list_jobs_of_owner(owner)) == 2, "a job that has ended is in nobody's way"


@pytest.mark.parametrize(
    "columns",
    [
        {"built": 2},
        {"built": -1},
        {"state": "unheard of"},
        {"priority": 10},
        {"priority": -1},
        {"attempts": -1},
        {"missing": -1},
        {"holder": "ann"},
        {"until": 1},
        {"state": S.READY, "built": 1, "holder": "ann", "until": 1},
        {"state": S.FAILED, "holder": "ann", "until": 1},
        {"state": S.CANCELLED, "holder": "ann", "until": 1},
        {"state": S.RUNNING, "due_at": 1},
        {"state": S.RUNNING, "holder": "ann", "until": 1},
        {"state": S.WAITING},
        {"state": S.READY},
        {"owner_id": 99},
        {"kind": "taken"},
    ],
    ids=str,
)
def test_the_database_refuses_an_inconsistent_slot(plain: SqlStore, columns: dict[str, Any]) -> None:
    owner = put_owner(plain)
    put_slot(plain, owner, kind="taken")
    violate(plain, tables.slots, **SLOT_ROW | {"owner_id": owner, "kind": "new"} | columns)


@pytest.mark.parametrize("state", S)
def test_the_database_accepts_every_state_of_a_slot(plain: SqlStore, state: SlotState) -> None:
    more = {"holder": "ann", "until": 1, "due_at": 1} if state is S.RUNNING else {}
    more |= {"due_at": 1} if state is S.WAITING else {}
    more |= {"built": 1} if state is S.READY else {}
    put_slot(plain, put_owner(plain), state=state, **more)
    assert [row["state"] for row in rows(plain, tables.slots)] == [state]


@pytest.mark.parametrize(
    "columns",
    [
        {"open": -1},
        {"open": 0},
        {"operation": "unheard of"},
        {"outcome": "unheard of", "open": 0, "finished_at": 1},
        {"outcome": "success", "open": 0},
        {"outcome": "success", "open": 1, "finished_at": 1},
        {"finished_at": 1},
        {"generation": 7},
        {"id": "taken"},
    ],
    ids=str,
)
def test_the_database_refuses_an_inconsistent_job(plain: SqlStore, columns: dict[str, Any]) -> None:
    ended = {"outcome": "success", "open": 0, "finished_at": 1}
    with plain.database.engine.begin() as connection:
        connection.execute(
            insert(tables.jobs).values(**JOB_ROW | ended | {"id": "taken", "owner_id": 1, "generation": 7})
        )
    violate(plain, tables.jobs, **JOB_ROW | {"id": "new", "owner_id": 1} | columns)


@pytest.mark.parametrize("columns", [{"generation": -1}, {"status": "unheard of"}, {"owner": "taken"}], ids=str)
def test_the_database_refuses_an_invalid_owner(plain: SqlStore, columns: dict[str, Any]) -> None:
    put_owner(plain, "taken")
    violate(plain, tables.owners, **OWNER_ROW | {"owner": "new"} | columns)


def test_the_database_refuses_to_delete_an_owner_that_has_slots(plain: SqlStore) -> None:
    put_slot(plain, put_owner(plain))
    with pytest.raises(IntegrityError), plain.database.engine.begin() as connection:
        connection.execute(tables.owners.delete())


def test_the_store_refuses_a_forbidden_transition_and_writes_nothing(plain: SqlStore) -> None:
    ask(plain, slots=ONE)
    ticket = take(plain, "cards")
    alter(plain, ticket.slot, state=S.DELETING)
    before = everything(plain)
    with pytest.raises(AssertionError, match="a slot may not move like this"):
        plain.give_up([plain.slot("shelf", "doc", "cards")])
    assert everything(plain) == before


@pytest.fixture
def crowd(database_url: str, clock: FakeClock) -> Iterator[SqlStore]:
    store = open_test_store(database_url, clock)
    yield store
    store.close()


def test_fifty_identical_simultaneous_requests_make_one_generation_and_one_job(crowd: SqlStore) -> None:
    answers = side_by_side(50, lambda _: ask(crowd))
    accepted = [one for one in answers if one.accepted]
    assert len(accepted) == 1
    joined = [(one.verdict, one.job, one.generation) for one in answers if not one.accepted]
    assert joined == [(V.JOINED, accepted[0].job, 1)] * 49
    assert len(crowd.list_jobs_of_owner(crowd.owner("shelf", "doc").id)) == 1
    assert [(one.verdict, one.job) for one in crowd.refusals()] == [("joined", accepted[0].job)] * 49
    assert len(rows(crowd, tables.slots)) == 3
    audit(crowd)


def test_fifty_simultaneous_requests_of_all_operations_keep_the_invariants(crowd: SqlStore) -> None:
    kinds = [O.INDEX, O.FORCE, O.CHANGE, O.CANCEL, O.DELETE]
    answers = side_by_side(50, lambda n: ask(crowd, operation=kinds[n % 5], fingerprint=str(n)))
    jobs = rows(crowd, tables.jobs)
    made = {one.job for n, one in enumerate(answers) if one.accepted and kinds[n % 5] is not O.CANCEL}
    assert {job["id"] for job in jobs} == made
    assert len([job for job in jobs if job["outcome"] is None]) <= 1
    assert len(crowd.refusals()) == len([one for one in answers if not one.accepted])
    audit(crowd)


def test_concurrent_workers_never_claim_the_same_slot(crowd: SqlStore) -> None:
    crowd.admit([request(str(n), slots=ONE) for n in range(60)])

    def work(index: int) -> list[Any]:
        mine: list[Any] = []
        while tickets := crowd.claim_next(["cards"], f"worker {index}", 3):
            mine += tickets
        return mine

    tickets = [ticket for found in side_by_side(8, work) for ticket in found]
    tickets += crowd.claim_next(["cards"], "straggler", 60)  # claims skip locked owners, so a few slots may be left
    assert sorted(ticket.slot for ticket in tickets) == sorted(row["id"] for row in rows(crowd, tables.slots))
    assert {ticket.fence for ticket in tickets} == {1}
    audit(crowd)


def test_concurrent_workers_never_claim_the_same_ring_twice(crowd: SqlStore) -> None:
    for n in range(5):
        ask(crowd, str(n), slots=ONE)
    rings = [ring_of(slot) for slot in crowd.find_unrung(["cards"], 10).slots]
    claims = side_by_side(8, lambda index: crowd.claim(rings, f"worker {index}"))
    assert sorted(ticket.slot for found in claims for ticket in found) == sorted(ring.slot for ring in rings)
    audit(crowd)


def test_concurrent_reconcilers_act_once_on_each_slot(crowd: SqlStore) -> None:
    for n in range(5):
        ask(crowd, str(n), slots=ONE)
    read = crowd.find_unrung(["cards"], 10).slots
    rung = side_by_side(8, lambda _: crowd.ring(read))
    assert sorted(ring.slot for found in rung for ring in found) == sorted(slot.id for slot in read)
    crowd.claim([ring_of(slot) for slot in read], "ann")
    held = [(slot, Expire("holder_died")) for slot in crowd.find_held_by(["ann"], 10).slots]
    expired = side_by_side(8, lambda _: crowd.expire(held))
    assert sorted(slot.id for found in expired for slot in found) == sorted(slot.id for slot in read)
    assert {row["fence"] for row in rows(crowd, tables.slots)} == {2}
    audit(crowd)


def test_a_job_ends_exactly_once_when_its_slots_settle_concurrently(crowd: SqlStore) -> None:
    kinds = tuple(SlotSpec(f"kind {n}") for n in range(8))
    job = ask(crowd, slots=kinds).job
    tickets = [take(crowd, spec.kind) for spec in kinds]
    side_by_side(8, lambda index: crowd.complete([finished(tickets[index])]))
    ended = [one.event for one in crowd.events() if one.event.type.startswith("job.")]
    assert [(one.type, one.job) for one in ended] == [("job.success", job)]
    assert crowd.job(JobId(job or "")).open == 0
    audit(crowd)
