"""What follows from moving slots: events, settled jobs, statuses. Pure, so the store only has to write it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from holdfast.core.states import ACTIVE, TRANSITIONS, Outcome, Status, Verb
from holdfast.core.status import outcome_of, status_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from holdfast.core.slot import JobId, OwnerId, Slot, SlotId


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One slot moved; `before` is None for a new slot, `after` for a forgotten one."""

    verb: Verb
    before: Slot | None
    after: Slot | None
    note: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        move = (self.verb, self.before and self.before.state, self.after and self.after.state)
        if move not in TRANSITIONS:
            raise AssertionError(f"a slot may not move like this: {move}")

    @property
    def slot(self) -> Slot:
        """The slot as it stands now, or as it last stood."""
        slot = self.after or self.before
        assert slot is not None  # noqa: S101 - checked by TRANSITIONS
        return slot

    @property
    def settles(self) -> bool:
        """The slot came to rest, or went, within its own job; a cancel ends its job as a whole."""
        if self.verb is Verb.CANCEL or self.before is None or self.before.state not in ACTIVE:
            return False
        return self.after is None or (self.after.resting and self.after.job == self.before.job)


NOTHING: dict[str, object] = {}


class Event(NamedTuple):
    """One line of the durable event log."""

    type: str
    base: str
    owner: str
    kind: str | None = None
    job: JobId | None = None
    generation: int | None = None
    fence: int | None = None
    data: Mapping[str, object] = NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """How many slots of a job came to rest, and its outcome if these were the last."""

    job: JobId
    settled: int
    outcome: Outcome
    results: Mapping[str, Mapping[str, object]]
    slot: Slot  # one of them, for the names in the job's event


def slot_event(change: Change) -> Event:
    """Tell a move as an event."""
    slot = change.slot
    data: dict[str, object] = {
        "from": change.before.state if change.before else None,
        "to": change.after.state if change.after else None,
        **change.note,
    }
    if change.after and change.after.error and change.verb in (Verb.POSTPONE, Verb.FAIL, Verb.GIVE_UP):
        data["error"] = change.after.error.code
    return Event(
        type=f"slot.{change.verb}",
        base=slot.base,
        owner=slot.owner,
        kind=slot.kind,
        job=slot.job,
        generation=slot.wanted,
        fence=slot.fence,
        data=data,
    )


def job_event(settlement: Settlement) -> Event:
    """Tell the end of a job as an event."""
    slot = settlement.slot
    return Event(
        type=f"job.{settlement.outcome}",
        base=slot.base,
        owner=slot.owner,
        job=settlement.job,
        generation=slot.wanted,
        data={"results": settlement.results},
    )


def overlay(slots: Iterable[Slot], changes: Iterable[Change]) -> list[Slot]:
    """Return the slots as they stand after the changes."""
    now: dict[SlotId, Slot] = {slot.id: slot for slot in slots}
    for change in changes:
        now.pop(change.slot.id, None)
        if change.after is not None:
            now[change.after.id] = change.after
    return list(now.values())


def settlements(changes: Sequence[Change], after: Iterable[Slot]) -> list[Settlement]:
    """Return, for each job touched, what its slots' coming to rest means for it."""
    settled: dict[JobId, list[Change]] = {}
    for change in changes:
        if change.settles:
            settled.setdefault(change.slot.job, []).append(change)
    own: dict[JobId, list[Slot]] = {job: [] for job in settled}
    for slot in after:
        if slot.job in own:
            own[slot.job].append(slot)
    return [
        Settlement(
            job=job,
            settled=len(moved),
            outcome=outcome_of(own[job]),
            results={slot.kind: _result(slot) for slot in own[job]},
            slot=moved[0].slot,
        )
        for job, moved in settled.items()
    ]


def statuses(owners: Iterable[OwnerId], after: Iterable[Slot]) -> dict[OwnerId, Status]:
    """Return the status of each owner that still has slots."""
    grouped: dict[OwnerId, list[Slot]] = {owner: [] for owner in owners}
    for slot in after:
        if slot.owner_id in grouped:
            grouped[slot.owner_id].append(slot)
    return {owner: status_of(slots) for owner, slots in grouped.items() if slots}


def _result(slot: Slot) -> dict[str, object]:
    result: dict[str, object] = {"state": slot.state, "missing": slot.missing}
    if slot.error:
        result["error"] = slot.error.code
    return result
