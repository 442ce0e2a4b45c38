"""The status of an owner and the outcome of a job match a second implementation for all combinations of slots."""

from __future__ import annotations

from itertools import chain, combinations_with_replacement, permutations
from typing import TYPE_CHECKING

import pytest

from holdfast.engine.slot import JobId, SlotId
from holdfast.engine.states import RESTING_STATES, Outcome, SlotState, Status
from holdfast.engine.status import STATUS_TABLE, derive_outcome, derive_status
from tests.unit.slot_factory import make_slot

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from holdfast.engine.slot import Slot

S = SlotState


def variants(states: Sequence[SlotState], jobs: Sequence[str]) -> list[Slot]:
    """Return slots in each state and job, with and without a build and with and without missing parts.

    Each variant exists once as the content and once as an index that needs the content.
    """
    return [
        make_slot(state, kind, needs=needs, wanted=2, built=built, missing=missing, job=JobId(job))
        for kind, needs in (("content", None), ("vector", "content"))
        for state in states
        for built in ((2,) if state is S.READY else (0, 1))
        for missing in ((0, 1) if built else (0,))
        for job in jobs
    ]


def groups(kinds: Sequence[Slot], largest: int) -> Iterator[tuple[Slot, ...]]:
    return chain.from_iterable(combinations_with_replacement(kinds, size) for size in range(largest + 1))


def expected_status(slots: Sequence[Slot]) -> Status:
    """Derive the status as the design describes it, without using any helper of the code."""
    active = [slot for slot in slots if slot.state in ("blocked", "queued", "running", "waiting")]
    settled = [slot for slot in slots if slot.state in ("ready", "failed", "cancelled")]
    if slots and not active and not settled:
        return Status.DELETING
    for slot in active:
        if slot.state in ("running", "waiting"):
            return Status.INDEXING
        if any(other.job == slot.job for other in settled):  # the job has settled slots and active ones
            return Status.INDEXING
    if active:
        return Status.QUEUED
    if not slots:
        return Status.NOT_INDEXED
    if all(whole(slot) for slot in settled):
        return Status.SUCCESS
    if searchable(settled):
        return Status.DEGRADED
    return Status.FAILED if "failed" in [slot.state for slot in settled] else Status.NOT_INDEXED


def whole(slot: Slot) -> bool:
    """Return whether a slot serves a complete build: its newest, or an older one if a newer one was cancelled."""
    return slot.missing == 0 and (slot.state == "ready" or (slot.state == "cancelled" and slot.built > 0))


def searchable(slots: Sequence[Slot]) -> bool:
    """Return whether anything is served: an index, or a slot that has no index."""
    indexes = [slot for slot in slots if slot.needs == "content"]
    return any(slot.built for slot in indexes or slots)


def test_the_status_of_up_to_three_slots_matches_the_design() -> None:
    seen = set()
    for slots in groups(variants(tuple(S), ("old", "new")), 3):
        status = derive_status(slots)
        assert status is expected_status(slots), slots
        seen.add(status)
    assert seen == set(Status)


def test_the_order_of_slots_does_not_matter() -> None:
    kinds = [make_slot(state, id=SlotId(n), job=JobId(str(n % 2))) for n, state in enumerate(S)]
    for slots in combinations_with_replacement(kinds, 3):
        assert len({derive_status(order) for order in permutations(slots)}) == 1, slots


def test_an_owner_without_slots_is_not_indexed() -> None:
    assert derive_status([]) is Status.NOT_INDEXED


def test_the_status_table_has_one_row_for_every_status_in_order() -> None:
    assert [status for _, status in STATUS_TABLE] == list(Status)


def expected_outcome(slots: Sequence[Slot]) -> Outcome:
    good = [slot for slot in slots if slot.state == "ready" and slot.missing == 0]
    if len(good) == len(slots):
        return Outcome.SUCCESS
    indexes = [slot for slot in slots if slot.needs == "content"]
    ready = [slot for slot in indexes or slots if slot.state == "ready"]
    return Outcome.DEGRADED if ready else Outcome.FAILED


def test_the_outcome_of_a_job_depends_on_which_slots_became_ready() -> None:
    seen = set()
    for slots in groups(variants(sorted(RESTING_STATES), ("job",)), 3):
        outcome = derive_outcome(slots)
        assert outcome is expected_outcome(slots), slots
        seen.add(outcome)
    assert seen == {Outcome.SUCCESS, Outcome.DEGRADED, Outcome.FAILED}


@pytest.mark.parametrize("built", [0, 1])
def test_a_job_that_built_nothing_failed_even_where_an_older_build_is_served(built: int) -> None:
    failed = make_slot(S.FAILED, wanted=2, built=built)
    assert derive_outcome([failed]) is Outcome.FAILED
    assert derive_status([failed]) is (Status.DEGRADED if built else Status.FAILED)


def test_a_document_whose_indexes_all_failed_is_failed_although_its_content_was_read() -> None:
    content = make_slot(S.READY, "content")
    indexes = [make_slot(S.FAILED, kind, needs="content") for kind in ("vector", "fulltext")]
    assert (derive_status([content, *indexes]), derive_outcome([content, *indexes])) == (Status.FAILED, Outcome.FAILED)
    served = [content, indexes[0], make_slot(S.READY, "fulltext", needs="content")]
    assert (derive_status(served), derive_outcome(served)) == (Status.DEGRADED, Outcome.DEGRADED)
    stopped = [content, *(slot._replace(state=S.CANCELLED) for slot in indexes)]
    assert derive_status(stopped) is Status.NOT_INDEXED


def test_a_served_document_with_a_cancelled_newer_version_is_complete() -> None:
    stopped = [
        make_slot(S.CANCELLED, "content", wanted=2, built=1),
        make_slot(S.CANCELLED, "vector", needs="content", wanted=2, built=1),
    ]
    assert derive_status(stopped) is Status.SUCCESS
    assert derive_status([stopped[0], stopped[1]._replace(missing=1)]) is Status.DEGRADED
    assert derive_status([stopped[0], stopped[1]._replace(built=0)]) is Status.NOT_INDEXED
    new_index = make_slot(S.CANCELLED, "graph", needs="content")
    assert derive_status([*stopped, new_index]) is Status.DEGRADED


@pytest.mark.parametrize("state", sorted(frozenset(S) - {S.DELETING}))
def test_a_slot_that_is_being_dropped_does_not_affect_the_status(state: SlotState) -> None:
    stays = [make_slot(S.READY, "content"), make_slot(state, "vector", needs="content", job=JobId("other"))]
    for job in ("job", "other"):
        dropped = make_slot(S.DELETING, "graph", needs="content", built=1, missing=1, job=JobId(job))
        assert derive_status([*stays, dropped]) is derive_status(stays)


def test_a_delete_job_with_no_slots_left_has_succeeded() -> None:
    assert derive_outcome([]) is Outcome.SUCCESS
