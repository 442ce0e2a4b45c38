"""Each request gets the verdict of the admission table, and each owner is put into the right row of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from itertools import product
from typing import Any

import pytest

from holdfast.clock import Moment, micros
from holdfast.engine.admission import (
    ADMISSION_RULES,
    CREATE_OPERATIONS,
    QUOTA_EXHAUSTED,
    AdmissionResult,
    Request,
    Situation,
    Verdict,
    classify_situation,
    find_rule,
    may_be_overtaken,
    stalled,
)
from holdfast.engine.dependencies import SlotScope, SlotSpec
from holdfast.engine.rules import Rules
from holdfast.engine.slot import JobId, Slot, SlotId
from holdfast.engine.states import Operation, SlotState, Status
from tests.unit.slot_factory import NOW, RULES, ago, later, make_slot

O, S, V = Operation, Situation, Verdict  # noqa: E741 - short names keep the table readable
St = SlotState
PAIRS = [
    pair
    for pair in product(O, S)
    # Only the operation CHANGE has a fingerprint to compare.
    if pair[1] not in (S.SAME_ACTIVE, S.SAME_RESTING) or pair[0] is O.CHANGE
]

# A second, independent copy of the table in docs/lifecycle.md, "Admission", one entry per pair.
TABLE: dict[tuple[Operation, Situation], tuple[Verdict, str, SlotScope]] = {
    # index | not_indexed, failed, degraded, cancelled -> new generation of the incomplete slots
    (O.INDEX, S.INCOMPLETE): (V.ACCEPTED, "not_complete", SlotScope.INCOMPLETE),
    (O.RETRY, S.INCOMPLETE): (V.ACCEPTED, "not_complete", SlotScope.INCOMPLETE),
    # index | queued, indexing -> no new work
    (O.INDEX, S.ACTIVE): (V.JOINED, "already_in_progress", SlotScope.NONE),
    (O.RETRY, S.ACTIVE): (V.JOINED, "already_in_progress", SlotScope.NONE),
    (O.FORCE, S.ACTIVE): (V.JOINED, "already_in_progress", SlotScope.NONE),
    # index | stuck -> accepted
    (O.INDEX, S.STUCK): (V.ACCEPTED, "stuck", SlotScope.INCOMPLETE),
    (O.RETRY, S.STUCK): (V.ACCEPTED, "stuck", SlotScope.INCOMPLETE),
    (O.FORCE, S.STUCK): (V.ACCEPTED, "forced", SlotScope.ALL),
    # index | success -> skipped, force makes a new generation
    (O.INDEX, S.COMPLETE): (V.SKIPPED, "already_indexed", SlotScope.NONE),
    (O.RETRY, S.COMPLETE): (V.SKIPPED, "already_indexed", SlotScope.NONE),
    (O.FORCE, S.COMPLETE): (V.ACCEPTED, "forced", SlotScope.ALL),
    (O.FORCE, S.INCOMPLETE): (V.ACCEPTED, "forced", SlotScope.ALL),
    # content changed | anything but deleting -> new generation
    (O.CHANGE, S.ACTIVE): (V.ACCEPTED, "content_changed", SlotScope.ALL),
    (O.CHANGE, S.STUCK): (V.ACCEPTED, "content_changed", SlotScope.ALL),
    (O.CHANGE, S.COMPLETE): (V.ACCEPTED, "content_changed", SlotScope.ALL),
    (O.CHANGE, S.INCOMPLETE): (V.ACCEPTED, "content_changed", SlotScope.ALL),
    # same content | any -> joined or skipped
    (O.CHANGE, S.SAME_ACTIVE): (V.JOINED, "same_content", SlotScope.NONE),
    (O.CHANGE, S.SAME_RESTING): (V.SKIPPED, "same_content", SlotScope.NONE),
    # reindex by a user | not terminal -> rejected
    (O.REINDEX, S.ACTIVE): (V.REJECTED, "not_terminal", SlotScope.NONE),
    (O.REINDEX, S.STUCK): (V.REJECTED, "not_terminal", SlotScope.NONE),
    (O.REINDEX, S.COMPLETE): (V.ACCEPTED, "reindex", SlotScope.ALL),
    (O.REINDEX, S.INCOMPLETE): (V.ACCEPTED, "reindex", SlotScope.ALL),
    # some of it again, or away: only from rest
    (O.RENEW, S.ACTIVE): (V.REJECTED, "not_terminal", SlotScope.NONE),
    (O.RENEW, S.STUCK): (V.REJECTED, "not_terminal", SlotScope.NONE),
    (O.RENEW, S.COMPLETE): (V.ACCEPTED, "renew", SlotScope.NAMED),
    (O.RENEW, S.INCOMPLETE): (V.ACCEPTED, "renew", SlotScope.NAMED),
    (O.DROP, S.ACTIVE): (V.REJECTED, "not_terminal", SlotScope.NONE),
    (O.DROP, S.STUCK): (V.REJECTED, "not_terminal", SlotScope.NONE),
    (O.DROP, S.COMPLETE): (V.SKIPPED, "nothing_to_drop", SlotScope.NONE),
    (O.DROP, S.INCOMPLETE): (V.ACCEPTED, "drop", SlotScope.NAMED),
    # delete | always -> accepted
    (O.DELETE, S.ACTIVE): (V.ACCEPTED, "delete", SlotScope.ALL),
    (O.DELETE, S.STUCK): (V.ACCEPTED, "delete", SlotScope.ALL),
    (O.DELETE, S.COMPLETE): (V.ACCEPTED, "delete", SlotScope.ALL),
    (O.DELETE, S.INCOMPLETE): (V.ACCEPTED, "delete", SlotScope.ALL),
    (O.DELETE, S.DELETING): (V.JOINED, "already_deleting", SlotScope.NONE),
    # cancel | active -> ends the job
    (O.CANCEL, S.ACTIVE): (V.ACCEPTED, "cancel", SlotScope.NONE),
    (O.CANCEL, S.STUCK): (V.ACCEPTED, "cancel", SlotScope.NONE),
    (O.CANCEL, S.COMPLETE): (V.SKIPPED, "nothing_active", SlotScope.NONE),
    (O.CANCEL, S.INCOMPLETE): (V.SKIPPED, "nothing_active", SlotScope.NONE),
    (O.DELETE, S.CLEANUP_FAILED): (V.JOINED, "already_deleting", SlotScope.NONE),
    # a clean-up that failed is tried again, one that is under way is joined
    (O.RETRY, S.DELETING): (V.JOINED, "already_deleting", SlotScope.NONE),
    (O.RETRY, S.CLEANUP_FAILED): (V.ACCEPTED, "clean_up_again", SlotScope.ALL),
    # delete always wins, and an owner that never was has nothing to offer
    **{
        (operation, going): (V.REJECTED, "being_deleted", SlotScope.NONE)
        for operation in O
        for going in (S.DELETING, S.CLEANUP_FAILED)
        if operation not in (O.DELETE, O.RETRY)
    },
    **{(operation, S.UNKNOWN): (V.REJECTED, "unknown_owner", SlotScope.NONE) for operation in O},
    # whoever names a job means that job and no other
    **{(operation, S.JOB_ENDED): (V.SKIPPED, "nothing_active", SlotScope.NONE) for operation in O},
}


@pytest.mark.parametrize(("operation", "situation"), PAIRS)
def test_each_pair_of_operation_and_situation_matches_exactly_one_row(
    operation: Operation, situation: Situation
) -> None:
    rows = [row for row in ADMISSION_RULES if operation in row.operations and situation in row.situations]
    assert len(rows) == 1


@pytest.mark.parametrize(("operation", "situation"), PAIRS)
def test_each_pair_gets_the_documented_verdict(operation: Operation, situation: Situation) -> None:
    row = find_rule(operation, situation)
    assert (row.verdict, row.reason, row.scope) == TABLE[operation, situation]


@pytest.mark.parametrize("row", ADMISSION_RULES, ids=lambda row: row.reason)
def test_only_accepted_rows_start_work(row: Any) -> None:
    assert row.scope is SlotScope.NONE or row.verdict is V.ACCEPTED


def test_only_the_verdict_accepted_counts_as_accepted() -> None:
    answers = {verdict: AdmissionResult(verdict=verdict, reason="", status=Status.QUEUED) for verdict in V}
    assert [verdict for verdict in V if answers[verdict].accepted] == [V.ACCEPTED]


CARDS = (SlotSpec("cards"),)
KINDS = ("cards",)
REST = (St.READY, St.FAILED, St.CANCELLED)
ABOVE = make_slot(St.READY, "graph", needs="cards")
GOING = make_slot(St.DELETING, "graph")
STALLED = make_slot(St.RUNNING, progress_at=ago(minutes=45))
SLOW = make_slot(St.RUNNING, progress_at=ago(minutes=44, seconds=59))


HELD_UP = make_slot(St.DELETING, "graph", due_at=later(microseconds=1))
DUE = make_slot(St.DELETING, due_at=NOW)
CLEANING = make_slot(St.DELETING, holder="worker", until=later(microseconds=1), due_at=later(seconds=60))
LOST = make_slot(St.DELETING, holder="worker", until=NOW, due_at=later(seconds=60))


@dataclass(frozen=True)
class Standing:
    name: str
    operation: Operation
    expected: Situation
    slots: tuple[Slot, ...] = ()
    asked: tuple[SlotSpec, ...] = ()
    kinds: tuple[str, ...] = ()
    fingerprint: str | None = None  # in the request
    known: str | None = None  # stored with the owner
    overtaken: bool = False
    paused: bool = False
    job: JobId | None = None  # in the request; the slots belong to "job"


def standings() -> list[Standing]:
    ready, lacking = make_slot(St.READY), make_slot(St.READY, missing=1)
    stopped = make_slot(St.CANCELLED, wanted=2, built=1)
    cases = [
        *[Standing(f"nothing is known, {o}", o, S.UNKNOWN) for o in O],
        *[Standing(f"{o} makes no owner", o, S.UNKNOWN, asked=CARDS) for o in O if o not in CREATE_OPERATIONS],
        *[Standing(f"{o} may make an owner", o, S.INCOMPLETE, asked=CARDS) for o in (O.INDEX, O.FORCE, O.CHANGE)],
        *[Standing(f"deleting, {o}", o, S.DELETING, (make_slot(St.DELETING),), CARDS) for o in O],
        *[Standing(f"a clean-up that waits, {o}", o, S.CLEANUP_FAILED, (HELD_UP,), CARDS) for o in O],
        Standing("a clean-up that is due at this moment", O.RETRY, S.DELETING, (DUE,)),
        Standing("a clean-up under a live lease", O.RETRY, S.DELETING, (CLEANING,)),
        Standing("a clean-up whose lease has ended", O.RETRY, S.CLEANUP_FAILED, (LOST,)),
        Standing("one of two clean-ups waits", O.RETRY, S.CLEANUP_FAILED, (DUE, HELD_UP)),
        Standing("one of two clean-ups waits, the other is at work", O.RETRY, S.DELETING, (HELD_UP, CLEANING)),
        *[
            Standing(f"{state}, {o}", o, S.ACTIVE, (make_slot(state),))
            for state in (St.BLOCKED, St.QUEUED, St.RUNNING, St.WAITING)
            for o in O
        ],
        *[
            Standing(f"{state}, {o}", o, S.INCOMPLETE, (make_slot(state),))
            for state in (St.FAILED, St.CANCELLED)
            for o in O
            if o is not O.DROP
        ],
        *[
            Standing(
                f"served, and a newer version was cancelled, {o}, {bool(asked)}", o, S.INCOMPLETE, (stopped,), asked
            )
            for asked in ((), CARDS)
            for o in O
            if o is not O.DROP
        ],
        *[Standing(f"ready, {o}", o, S.COMPLETE, (ready,), CARDS) for o in O],
        *[
            Standing(f"{state} and dropped", O.DROP, S.INCOMPLETE, (make_slot(state),), kinds=("cards",))
            for state in REST
        ],
        Standing("what is dropped is not there", O.DROP, S.COMPLETE, (ready,), kinds=("graph",)),
        Standing("what is dropped is needed", O.DROP, S.COMPLETE, (ready, ABOVE), kinds=("cards",)),
        Standing("what is dropped and what needs it", O.DROP, S.INCOMPLETE, (ready, ABOVE), kinds=("cards", "graph")),
        Standing("dropped twice", O.DROP, S.COMPLETE, (ready, GOING), kinds=("graph",)),
        Standing("dropped, and the rest is ready", O.INDEX, S.COMPLETE, (ready, GOING), CARDS),
        Standing("dropped, and the rest lacks something", O.INDEX, S.INCOMPLETE, (lacking, GOING), CARDS),
        Standing("dropped, and the rest is at work", O.INDEX, S.ACTIVE, (make_slot(), GOING), CARDS),
        Standing("asked for while it is dropped", O.INDEX, S.COMPLETE, (ready, GOING), (*CARDS, SlotSpec("graph"))),
        Standing(
            "what needs it is asked for while it is dropped",
            O.INDEX,
            S.COMPLETE,
            (ready, GOING),
            (*CARDS, SlotSpec("graph"), SlotSpec("map", "graph")),
        ),
        Standing(
            "renewed while it is dropped", O.RENEW, S.ACTIVE, (ready, GOING), (SlotSpec("graph"),), kinds=("graph",)
        ),
        Standing("another is renewed while one is dropped", O.RENEW, S.COMPLETE, (ready, GOING), CARDS, kinds=KINDS),
        Standing("ready without naming slots", O.INDEX, S.COMPLETE, (ready,)),
        Standing("ready but chunks are missing", O.INDEX, S.INCOMPLETE, (lacking,), CARDS),
        Standing("ready but another kind is asked for", O.INDEX, S.INCOMPLETE, (ready,), (*CARDS, SlotSpec("graph"))),
        Standing(
            "ready and fewer kinds are asked for", O.INDEX, S.COMPLETE, (ready, make_slot(St.READY, "graph")), CARDS
        ),
        Standing("45 minutes without progress", O.INDEX, S.STUCK, (STALLED,)),
        Standing("a second less than 45 minutes", O.INDEX, S.ACTIVE, (SLOW,)),
        Standing("one of two slots stalled", O.INDEX, S.STUCK, (make_slot(St.QUEUED, "graph"), STALLED)),
        Standing("overtaken in the queue", O.INDEX, S.STUCK, (make_slot(St.QUEUED),), overtaken=True),
        Standing("overtaken and paused", O.INDEX, S.ACTIVE, (make_slot(St.QUEUED),), overtaken=True, paused=True),
        Standing("stalled and paused", O.INDEX, S.ACTIVE, (STALLED,), paused=True),
        *[
            Standing(f"{state} under the job named", O.CANCEL, S.ACTIVE, (make_slot(state),), job=JobId("job"))
            for state in (St.BLOCKED, St.QUEUED, St.RUNNING, St.WAITING)
        ],
        *[
            Standing(f"{state} under another job", O.CANCEL, S.JOB_ENDED, (make_slot(state),), job=JobId("old"))
            for state in St
        ],
        *[
            Standing(f"{state} and the job named is over", O.CANCEL, S.JOB_ENDED, (make_slot(state),), job=JobId("job"))
            for state in (St.READY, St.FAILED, St.CANCELLED)
        ],
        Standing("a delete is named", O.CANCEL, S.DELETING, (make_slot(St.DELETING),), job=JobId("job")),
        Standing("a job of an owner that is gone", O.CANCEL, S.JOB_ENDED, job=JobId("job")),
        Standing("same content, active", O.CHANGE, S.SAME_ACTIVE, (make_slot(),), fingerprint="a", known="a"),
        Standing("same content, stuck", O.CHANGE, S.SAME_ACTIVE, (STALLED,), fingerprint="a", known="a"),
        Standing("same content, ready", O.CHANGE, S.SAME_RESTING, (ready,), fingerprint="a", known="a"),
        Standing("same content, failed", O.CHANGE, S.SAME_RESTING, (make_slot(St.FAILED),), fingerprint="a", known="a"),
        Standing("same content, deleting", O.CHANGE, S.DELETING, (make_slot(St.DELETING),), fingerprint="a", known="a"),
        Standing("other content, active", O.CHANGE, S.ACTIVE, (make_slot(),), fingerprint="b", known="a"),
        Standing("other content, stuck", O.CHANGE, S.STUCK, (STALLED,), fingerprint="b", known="a"),
        Standing("other content, ready", O.CHANGE, S.COMPLETE, (ready,), fingerprint="b", known="a"),
        Standing("content without a hash is never the same", O.CHANGE, S.COMPLETE, (ready,)),
        Standing("a hash that was not known before", O.CHANGE, S.COMPLETE, (ready,), fingerprint="a"),
        Standing("a new owner with a hash", O.CHANGE, S.INCOMPLETE, asked=CARDS, fingerprint="a"),
        *[
            Standing(f"only a change compares content, {o}", o, S.COMPLETE, (ready,), CARDS, fingerprint="a", known="a")
            for o in O
            if o is not O.CHANGE
        ],
    ]
    assert len({case.name for case in cases}) == len(cases)
    return cases


@pytest.mark.parametrize("case", standings(), ids=lambda case: case.name)
def test_a_request_finds_its_owner_in_the_expected_situation(case: Standing) -> None:
    request = Request(
        base="shelf",
        owner="doc",
        operation=case.operation,
        slots=case.asked,
        kinds=case.kinds,
        fingerprint=case.fingerprint,
        job=case.job,
    )
    situation = classify_situation(
        request,
        case.slots,
        fingerprint=case.known,
        now=NOW,
        rules=RULES,
        overtaken=case.overtaken,
        paused=case.paused,
    )
    assert situation is case.expected


@pytest.mark.parametrize("operation", O)
def test_every_combination_of_slot_states_gets_a_verdict(operation: Operation) -> None:
    kinds = {O.DROP: ("kind0",), O.RENEW: KINDS}.get(operation, ())
    request = Request(base="shelf", owner="doc", operation=operation, slots=CARDS, kinds=kinds, fingerprint="a")
    seen = set()
    for states in product(St, repeat=2):
        slots = [make_slot(state, f"kind{n}", id=SlotId(n)) for n, state in enumerate(states)]
        for known in ("a", "b"):
            situation = classify_situation(request, slots, fingerprint=known, now=NOW, rules=RULES, overtaken=False)
            assert find_rule(operation, situation).verdict is TABLE[operation, situation][0]
            seen.add(situation)
    same = {S.SAME_ACTIVE, S.SAME_RESTING} if operation is O.CHANGE else set()
    # The request names a kind that the owner does not have. Therefore no owner is complete.
    gone = {S.COMPLETE} if operation is O.DROP else set()  # the kind to drop may be in deletion already
    assert seen == {S.ACTIVE, S.INCOMPLETE, S.DELETING} | same | gone


QUICK = Rules(stall=timedelta(seconds=5), overtaken_after=timedelta(seconds=3))


@pytest.mark.parametrize("state", St)
def test_only_a_running_slot_can_stall(state: SlotState) -> None:
    assert stalled(make_slot(state, progress_at=ago(days=1)), NOW, RULES) is (state is St.RUNNING)


def test_the_stall_timer_starts_at_the_claim() -> None:
    assert not stalled(make_slot(St.RUNNING, progress_at=None, queued_at=ago(days=1)), NOW, RULES)


@pytest.mark.parametrize(("rules", "limit"), [(RULES, timedelta(minutes=45)), (QUICK, timedelta(seconds=5))])
def test_a_slot_stalls_at_the_limit_and_not_before(rules: Rules, limit: timedelta) -> None:
    slot = make_slot(St.RUNNING, progress_at=Moment(NOW - micros(limit)))
    assert stalled(slot, NOW, rules)
    assert not stalled(slot, Moment(NOW - 1), rules)


@pytest.mark.parametrize("state", St)
def test_only_a_queued_slot_can_be_overtaken(state: SlotState) -> None:
    assert may_be_overtaken(make_slot(state, queued_at=ago(days=1)), NOW, RULES) is (state is St.QUEUED)


@pytest.mark.parametrize(("rules", "limit"), [(RULES, timedelta(minutes=10)), (QUICK, timedelta(seconds=3))])
def test_a_slot_may_count_as_overtaken_at_the_limit_and_not_before(rules: Rules, limit: timedelta) -> None:
    slot = make_slot(St.QUEUED, queued_at=Moment(NOW - micros(limit)))
    assert may_be_overtaken(slot, NOW, rules)
    assert not may_be_overtaken(slot, Moment(NOW - 1), rules)


def test_time_on_hold_does_not_count_towards_the_overtaken_limit() -> None:
    slot = make_slot(St.QUEUED, queued_at=ago(days=1))
    limit = ago(minutes=10)
    assert may_be_overtaken(slot, NOW, RULES, resumed_at=limit)
    assert not may_be_overtaken(slot, NOW, RULES, resumed_at=Moment(limit + 1))


def test_a_quota_refuses_builds_and_nothing_else() -> None:
    assert QUOTA_EXHAUSTED.operations == frozenset(O) - {O.CANCEL, O.DROP, O.DELETE}
    assert (QUOTA_EXHAUSTED.verdict, QUOTA_EXHAUSTED.scope) == (V.REJECTED, SlotScope.NONE)
