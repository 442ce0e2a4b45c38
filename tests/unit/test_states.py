"""The allowed transitions of a slot, checked as a graph."""

from __future__ import annotations

import pytest

from holdfast.engine.states import ACTIVE_STATES, RESTING_STATES, TRANSITIONS, SlotState, Verb

S = SlotState
LIVE = frozenset(S) - {S.DELETING}
GONE = None

# A second, independent copy of the transitions in the design.
MOVES: dict[Verb, set[tuple[S | None, S | None]]] = {
    Verb.ADMIT: {(before, after) for before in (*LIVE, None) for after in (S.QUEUED, S.BLOCKED)},
    Verb.UNBLOCK: {(S.BLOCKED, S.QUEUED)},
    Verb.CLAIM: {
        (S.QUEUED, S.RUNNING),
        (S.WAITING, S.RUNNING),
        (S.RUNNING, S.RUNNING),
        (S.DELETING, S.DELETING),
    },
    Verb.COMPLETE: {(S.RUNNING, S.READY)},
    Verb.POSTPONE: {(S.RUNNING, S.WAITING), (S.DELETING, S.DELETING)},
    Verb.FAIL: {(S.RUNNING, S.FAILED), (S.BLOCKED, S.FAILED)},
    Verb.RELEASE: {
        (S.RUNNING, S.QUEUED),
        (S.QUEUED, S.QUEUED),
        (S.BLOCKED, S.BLOCKED),
        (S.DELETING, S.DELETING),
    },
    Verb.EXPIRE: {
        (S.RUNNING, S.QUEUED),
        (S.QUEUED, S.QUEUED),
        (S.BLOCKED, S.BLOCKED),
        (S.DELETING, S.DELETING),
    },
    Verb.GIVE_UP: {(S.QUEUED, S.FAILED), (S.WAITING, S.FAILED), (S.RUNNING, S.FAILED)},
    Verb.CANCEL: {
        (S.BLOCKED, S.CANCELLED),
        (S.QUEUED, S.CANCELLED),
        (S.RUNNING, S.CANCELLED),
        (S.WAITING, S.CANCELLED),
    },
    Verb.DELETE: {(before, S.DELETING) for before in S},
    Verb.FORGET: {(S.DELETING, GONE)},
}


def reachable(start: S | None, verbs: frozenset[Verb] = frozenset(Verb)) -> set[S | None]:
    found: set[S | None] = set()
    edge: set[S | None] = {start}
    while edge:
        found |= edge
        edge = {after for verb, before, after in TRANSITIONS if verb in verbs and before in edge} - found
        edge -= {GONE}  # a slot that is created later under the same name is another slot
    return found


def by(verb: Verb) -> set[tuple[S | None, S | None]]:
    return {(before, after) for one, before, after in TRANSITIONS if one is verb}


@pytest.mark.parametrize("verb", Verb)
def test_a_verb_makes_exactly_the_documented_transitions(verb: Verb) -> None:
    assert by(verb) == MOVES[verb]


def test_a_deleting_slot_can_only_be_removed() -> None:
    assert reachable(S.DELETING) == {S.DELETING}
    assert (Verb.FORGET, S.DELETING, GONE) in TRANSITIONS


def test_any_live_slot_can_be_deleted() -> None:
    assert {before for before, _ in by(Verb.DELETE)} == set(S)  # including a slot that is being dropped


@pytest.mark.parametrize("state", sorted(RESTING_STATES))
def test_a_slot_at_rest_is_moved_only_by_a_request(state: S) -> None:
    assert {verb for verb, before, _ in TRANSITIONS if before is state} == {Verb.ADMIT, Verb.DELETE}


def test_every_state_can_be_reached_by_a_new_slot() -> None:
    assert reachable(None) == {None, *S}


@pytest.mark.parametrize("state", sorted(ACTIVE_STATES - {S.DELETING}))
def test_every_active_slot_can_come_to_rest_without_a_request(state: S) -> None:
    workers = frozenset(Verb) - {Verb.ADMIT, Verb.CANCEL, Verb.DELETE}
    assert {S.READY, S.FAILED} <= reachable(state, workers)


@pytest.mark.parametrize("state", sorted(LIVE))
def test_only_a_deleting_slot_can_be_forgotten(state: S) -> None:
    assert GONE not in {after for _, before, after in TRANSITIONS if before is state}


def test_only_a_completed_build_is_ready() -> None:
    assert {(verb, before) for verb, before, after in TRANSITIONS if after is S.READY} == {(Verb.COMPLETE, S.RUNNING)}


def test_only_a_claim_makes_a_slot_run() -> None:
    assert {verb for verb, _, after in TRANSITIONS if after is S.RUNNING} == {Verb.CLAIM}


def test_a_blocked_slot_is_never_claimed() -> None:
    assert S.BLOCKED not in {before for before, _ in by(Verb.CLAIM)}


def test_a_clean_up_is_never_given_up_failed_or_cancelled() -> None:
    ending = {Verb.GIVE_UP, Verb.FAIL, Verb.CANCEL}
    assert not {move for move in TRANSITIONS if move[0] in ending and move[1] is S.DELETING}


def test_only_an_admission_makes_a_slot() -> None:
    assert {verb for verb, before, _ in TRANSITIONS if before is None} == {Verb.ADMIT}


def test_a_state_is_either_at_rest_or_active() -> None:
    assert {S.READY, S.FAILED, S.CANCELLED} == RESTING_STATES
    assert {S.BLOCKED, S.QUEUED, S.RUNNING, S.WAITING, S.DELETING} == ACTIVE_STATES
