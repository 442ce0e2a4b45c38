"""Derives the status of an owner and the outcome of a job from slots."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from holdfast.engine.states import ACTIVE_STATES, RESTING_STATES, Outcome, SlotState, Status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from holdfast.engine.slot import Slot


class OwnerFacts(NamedTuple):
    """The facts that the status table uses."""

    deleting: bool
    moving: bool  # a slot is running or waiting
    active: bool
    partly_settled: bool  # some slots of the active job are at rest, others are not
    complete: bool  # every slot serves a complete result, even if a newer one was cancelled
    served: bool  # a searchable slot is built; a slot that others only read does not count
    failed: bool


STATUS_TABLE: tuple[tuple[Callable[[OwnerFacts], bool], Status], ...] = (
    (lambda facts: facts.deleting, Status.DELETING),
    (lambda facts: facts.moving or facts.partly_settled, Status.INDEXING),
    (lambda facts: facts.active, Status.QUEUED),
    (lambda facts: facts.complete, Status.SUCCESS),
    (lambda facts: facts.served, Status.DEGRADED),
    (lambda facts: facts.failed, Status.FAILED),
    (lambda _: True, Status.NOT_INDEXED),
)


class SlotView(NamedTuple):
    """The properties of a slot that determine the status.

    Thousands of owners share the same values, so results are cached.
    """

    state: SlotState
    missing: bool
    built: bool
    needed: bool  # other slots are built from it; it is not searched itself
    job: int  # number of the job within this owner

    @property
    def serves_complete(self) -> bool:
        """Whether the served result is complete. A cancelled rebuild keeps the older result."""
        return not self.missing and (
            self.state is SlotState.READY or (self.state is SlotState.CANCELLED and self.built)
        )


def derive_status(slots: Iterable[Slot]) -> Status:
    known = list(slots)
    live = [slot for slot in known if slot.state is not SlotState.DELETING]
    known = live or known  # dropped slots do not count while others exist
    jobs: dict[str, int] = {}
    needed = {slot.needs for slot in known}
    views = [
        SlotView(
            slot.state, slot.missing > 0, slot.built > 0, slot.kind in needed, jobs.setdefault(slot.job, len(jobs))
        )
        for slot in known
    ]
    return _status(tuple(views))


@lru_cache(maxsize=4096)
def _status(slots: Sequence[SlotView]) -> Status:
    facts = _facts(slots)
    for matches, status in STATUS_TABLE:
        if matches(facts):
            return status
    raise AssertionError("unreachable: the last row matches everything")


def derive_outcome(slots: Iterable[Slot]) -> Outcome:
    """Derive the outcome of a job whose slots are all at rest.

    A finished delete has no slots and is a success. A job that made no searchable slot ready has failed, even if an
    older generation is still served.
    """
    job_slots = list(slots)
    needed = {slot.needs for slot in job_slots}
    if all(slot.complete for slot in job_slots):
        return Outcome.SUCCESS
    if any(slot.state is SlotState.READY for slot in job_slots if slot.kind not in needed):
        return Outcome.DEGRADED
    return Outcome.FAILED


def _facts(slots: Sequence[SlotView]) -> OwnerFacts:
    states = {slot.state for slot in slots}
    jobs = {slot.job for slot in slots if slot.state in ACTIVE_STATES}
    return OwnerFacts(
        deleting=SlotState.DELETING in states,
        moving=SlotState.RUNNING in states or SlotState.WAITING in states,
        active=bool(jobs),
        partly_settled=bool(jobs) and any(slot.job in jobs for slot in slots if slot.state in RESTING_STATES),
        complete=bool(slots) and all(slot.serves_complete for slot in slots),
        served=any(slot.built for slot in slots if not slot.needed),
        failed=SlotState.FAILED in states,
    )
