"""What people read, derived from slots: two tables, first match wins."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from holdfast.engine.states import ACTIVE_STATES, RESTING_STATES, Outcome, SlotState, Status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from holdfast.engine.slot import Slot


class OwnerFacts(NamedTuple):
    """What the status table asks about the slots of one owner."""

    deleting: bool
    moving: bool  # a slot is running or waiting
    active: bool
    partly_settled: bool  # some of the active job have settled, others have not
    complete: bool  # every slot serves a whole result, even where a newer one was cancelled
    served: bool  # something can be searched: a slot that is built, and not only for other slots to build upon
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

TERMINAL = frozenset({Status.SUCCESS, Status.DEGRADED, Status.FAILED, Status.NOT_INDEXED})


class SlotView(NamedTuple):
    """What the status depends on, of one slot; owners by the thousand look the same."""

    state: SlotState
    missing: bool
    built: bool
    needed: bool  # other slots are built from it, and it is not searched itself
    job: int  # which of the owner's jobs, in the order met

    @property
    def serves_complete(self) -> bool:
        """Nothing is missing in what it serves; a cancelled rebuild leaves the older result in place."""
        return not self.missing and (
            self.state is SlotState.READY or (self.state is SlotState.CANCELLED and self.built)
        )


def derive_status(slots: Iterable[Slot]) -> Status:
    """Derive the status of an owner from all of its slots."""
    known = list(slots)
    live = [slot for slot in known if slot.state is not SlotState.DELETING]
    known = live or known  # what is dropped does not count beside what stays
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
    """Derive the outcome of a job from its slots, all of them settled.

    A delete that is done has no slots left and succeeded. A job that made nothing ready failed, even where an older
    generation is still served; what was only made for slots that then failed is nothing.
    """
    own = list(slots)
    needed = {slot.needs for slot in own}
    if all(slot.complete for slot in own):
        return Outcome.SUCCESS
    if any(slot.state is SlotState.READY for slot in own if slot.kind not in needed):
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
