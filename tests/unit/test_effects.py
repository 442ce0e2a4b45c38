"""A change of slots yields the right events, settled jobs and statuses."""

from __future__ import annotations

import json
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.engine.effects import (
    Event,
    SlotChange,
    apply_changes,
    compute_settlements,
    derive_statuses,
    make_job_event,
    make_slot_event,
)
from holdfast.engine.slot import Fault, JobId, OwnerId, SlotId
from holdfast.engine.states import RESTING_STATES, TRANSITIONS, Outcome, SlotState, Status, Verb
from tests.unit.slot_factory import make_slot

if TYPE_CHECKING:
    from holdfast.engine.slot import Slot

S = SlotState
MOVES = sorted(TRANSITIONS, key=str)


def at(state: SlotState | None, **more: Any) -> Slot | None:
    return None if state is None else make_slot(state, **more)


def moved(verb: Verb, before: Slot | None, after: Slot | None, **note: object) -> SlotChange:
    return SlotChange(verb=verb, before=before, after=after, note=note)


def test_exactly_the_allowed_moves_can_be_written() -> None:
    for verb, before, after in product(Verb, (*S, None), (*S, None)):
        if (verb, before, after) in TRANSITIONS:
            assert make_slot_event(moved(verb, at(before), at(after))).type == f"slot.{verb}"
        else:
            with pytest.raises(AssertionError, match="a slot may not move like this"):
                make_slot_event(moved(verb, at(before), at(after)))


@pytest.mark.parametrize("move", MOVES, ids=lambda move: "-".join(str(one) for one in move))
def test_a_move_settles_when_an_active_slot_comes_to_rest_or_is_removed(move: tuple[Verb, S | None, S | None]) -> None:
    verb, before, after = move
    from_active = before is not None and before not in RESTING_STATES
    to_rest = after is None or after in RESTING_STATES
    ends_its_job_as_a_whole = verb is Verb.CANCEL
    assert moved(verb, at(before), at(after)).settles is (from_active and to_rest and not ends_its_job_as_a_whole)


def test_a_change_has_the_new_slot_or_after_a_removal_the_old_one() -> None:
    before, after = make_slot(S.RUNNING), make_slot(S.READY)
    assert moved(Verb.COMPLETE, before, after).slot is after
    deleting = make_slot(S.DELETING)
    assert moved(Verb.FORGET, deleting, None).slot is deleting


def test_an_event_contains_the_slot_its_old_and_new_state_and_the_reason() -> None:
    before = make_slot(S.RUNNING, "graph", wanted=3, fence=7)
    after = make_slot(S.QUEUED, "graph", wanted=3, fence=8)
    assert make_slot_event(moved(Verb.EXPIRE, before, after, reason="no_progress")) == Event(
        type="slot.expired",
        base="shelf",
        owner="doc",
        kind="graph",
        job=JobId("job"),
        generation=3,
        fence=8,
        data='{"from": "running", "to": "queued", "reason": "no_progress"}',
    )


def test_an_event_of_a_new_slot_has_no_old_state_and_that_of_a_removed_slot_no_new_state() -> None:
    born = make_slot_event(moved(Verb.ADMIT, None, make_slot(S.QUEUED)))
    assert (born.type, born.parsed_data) == ("slot.admitted", {"from": None, "to": "queued"})
    gone = make_slot_event(moved(Verb.FORGET, make_slot(S.DELETING), None))
    assert (gone.type, gone.parsed_data) == ("slot.forgotten", {"from": "deleting", "to": None})


@pytest.mark.parametrize("move", MOVES, ids=lambda move: "-".join(str(one) for one in move))
def test_only_the_event_of_a_failure_contains_the_error_code(move: tuple[Verb, S | None, S | None]) -> None:
    verb, before, after = move
    event = make_slot_event(moved(verb, at(before), at(after, error=Fault("timeout", {"message": "secret"}))))
    told = verb in (Verb.POSTPONE, Verb.FAIL, Verb.GIVE_UP)
    assert event.parsed_data.get("error") == ("timeout" if told else None)
    assert "secret" not in event.data


def test_the_event_of_a_failure_without_an_error_contains_no_error() -> None:
    assert "error" not in make_slot_event(moved(Verb.FAIL, make_slot(S.RUNNING), make_slot(S.FAILED))).data


def test_applying_changes_returns_new_moved_and_untouched_slots_without_removed_ones() -> None:
    still = make_slot(S.READY, id=SlotId(1))
    runs, done = make_slot(S.RUNNING, id=SlotId(2)), make_slot(S.READY, id=SlotId(2))
    goes = make_slot(S.DELETING, id=SlotId(3))
    new = make_slot(S.QUEUED, id=SlotId(4))
    changes = [moved(Verb.COMPLETE, runs, done), moved(Verb.FORGET, goes, None), moved(Verb.ADMIT, None, new)]
    assert apply_changes([still, runs, goes], changes) == [still, done, new]


def test_a_slot_that_moved_twice_has_the_state_of_its_last_move() -> None:
    one, two, three = (make_slot(state) for state in (S.BLOCKED, S.QUEUED, S.RUNNING))
    assert apply_changes([one], [moved(Verb.UNBLOCK, one, two), moved(Verb.CLAIM, two, three)]) == [three]


def test_a_job_is_settled_by_all_its_slots_that_came_to_rest() -> None:
    content = make_slot(S.RUNNING, "content", id=SlotId(1))
    vector = make_slot(S.BLOCKED, "vector", id=SlotId(2), needs="content")
    fault = Fault("bad_file")
    sunk = [
        moved(Verb.FAIL, content, content._replace(state=S.FAILED, holder=None, until=None, error_code=fault.code)),
        moved(Verb.FAIL, vector, vector._replace(state=S.FAILED)),
    ]
    (settlement,) = compute_settlements(sunk, apply_changes([content, vector], sunk))
    assert (settlement.job, settlement.settled, settlement.outcome) == ("job", 2, Outcome.FAILED)
    assert json.loads(settlement.results) == {
        "content": {"state": "failed", "missing": 0, "error": "bad_file", "attempts": 1},
        "vector": {"state": "failed", "missing": 0},
    }


def test_each_job_is_settled_by_its_own_slots_only() -> None:
    slots = [
        make_slot(S.RUNNING, id=SlotId(1), job=JobId("one"), key=make_slot(kind="a").key),
        make_slot(S.RUNNING, id=SlotId(2), job=JobId("two"), owner_id=OwnerId(2)),
        make_slot(S.FAILED, "b", id=SlotId(3), job=JobId("earlier")),
    ]
    changes = [
        moved(Verb.COMPLETE, slots[0], make_slot(S.READY, "a", id=SlotId(1), job=JobId("one"))),
        moved(Verb.COMPLETE, slots[1], make_slot(S.READY, id=SlotId(2), job=JobId("two"), missing=2)),
    ]
    told = {one.job: one for one in compute_settlements(changes, apply_changes(slots, changes))}
    assert {job: (one.settled, one.outcome) for job, one in told.items()} == {
        "one": (1, Outcome.SUCCESS),
        "two": (1, Outcome.DEGRADED),
    }
    assert json.loads(told[JobId("two")].results) == {"cards": {"state": "ready", "missing": 2}}


def test_a_move_that_settles_no_slot_settles_no_job() -> None:
    before = make_slot(S.QUEUED)
    changes = [moved(Verb.CLAIM, before, make_slot(S.RUNNING))]
    assert compute_settlements(changes, apply_changes([before], changes)) == []


def test_a_superseded_slot_settles_nothing() -> None:
    before = make_slot(S.RUNNING, job=JobId("old"))
    assert not moved(Verb.ADMIT, before, make_slot(S.QUEUED, job=JobId("new"), wanted=2)).settles


def test_a_delete_job_is_settled_by_the_removed_slots() -> None:
    slots = [make_slot(S.DELETING, kind, id=SlotId(n)) for n, kind in enumerate(("a", "b"))]
    changes = [moved(Verb.FORGET, slot, None) for slot in slots]
    (settlement,) = compute_settlements(changes, apply_changes(slots, changes))
    assert (settlement.settled, settlement.outcome, settlement.results) == (2, Outcome.SUCCESS, "{}")


def test_the_event_of_an_ended_job_contains_the_result_of_each_kind() -> None:
    before, after = make_slot(S.RUNNING, wanted=3), make_slot(S.READY, wanted=3, built=3, missing=1)
    changes = [moved(Verb.COMPLETE, before, after)]
    (settlement,) = compute_settlements(changes, apply_changes([before], changes))
    assert make_job_event(settlement) == Event(
        type="job.degraded",
        base="shelf",
        owner="doc",
        job=JobId("job"),
        generation=3,
        data='{"results": {"cards": {"state": "ready", "missing": 1}}}',
    )


def test_each_owner_gets_the_status_of_its_own_slots() -> None:
    slots = [
        make_slot(S.READY, owner_id=OwnerId(1)),
        make_slot(S.FAILED, owner_id=OwnerId(2)),
        make_slot(S.RUNNING, owner_id=OwnerId(9)),
    ]
    assert derive_statuses([OwnerId(1), OwnerId(2)], slots) == {1: Status.SUCCESS, 2: Status.FAILED}


def test_an_owner_without_slots_gets_no_status() -> None:
    assert derive_statuses([OwnerId(1), OwnerId(2)], [make_slot(S.READY, owner_id=OwnerId(2))]) == {2: Status.SUCCESS}
