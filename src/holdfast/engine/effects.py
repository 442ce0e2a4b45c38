"""What follows from moving slots: events, settled jobs, statuses. Pure, so the store only has to write it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.engine.states import ACTIVE_STATES, TRANSITIONS, Outcome, Status, Verb
from holdfast.engine.status import derive_outcome, derive_status

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from holdfast.engine.slot import JobId, OwnerId, Slot, SlotId
    from holdfast.engine.states import SlotState


NO_NOTE: Mapping[str, object] = MappingProxyType({})


class SlotChange(NamedTuple):
    """One slot moved; `before` is None for a new slot, `after` for a forgotten one."""

    verb: Verb
    before: Slot | None
    after: Slot | None
    note: Mapping[str, object] = NO_NOTE

    @property
    def slot(self) -> Slot:
        """The slot as it stands now, or as it last stood."""
        slot = self.after or self.before
        assert slot is not None  # noqa: S101 - checked by TRANSITIONS
        return slot

    @property
    def settles(self) -> bool:
        """The slot came to rest, or went, within its own job; a cancel ends its job as a whole."""
        if self.verb is Verb.CANCEL or self.before is None or self.before.state not in ACTIVE_STATES:
            return False
        return self.after is None or (self.after.resting and self.after.job == self.before.job)


class Event(NamedTuple):
    """One line of the durable event log; `data` is JSON."""

    type: str
    base: str
    owner: str
    kind: str | None = None
    job: JobId | None = None
    generation: int | None = None
    fence: int | None = None
    data: str = "{}"

    @property
    def parsed_data(self) -> Mapping[str, Any]:
        """What the type alone does not say."""
        facts: dict[str, Any] = json.loads(self.data)
        return facts


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """How many slots of a job came to rest, and its outcome if these were the last."""

    job: JobId
    settled: int
    outcome: Outcome
    results: str  # JSON: the state of each slot by its kind
    slot: Slot  # one of them, for the names in the job's event


VERBS_WITH_ERROR = frozenset({Verb.POSTPONE, Verb.FAIL, Verb.GIVE_UP})


def make_slot_event(change: SlotChange, status: Status | None = None) -> Event:
    """Tell a move as an event, with the status that the owner has got by it, if that is another one.

    A move that may not be is a bug, and stops the transaction.
    """
    before, after = change.before, change.after
    move = (change.verb, before and before.state, after and after.state)
    if move not in TRANSITIONS:
        raise AssertionError(f"a slot may not move like this: {move}")
    slot = change.slot
    error = after.error_code if after and change.verb in VERBS_WITH_ERROR else None
    missing = slot.missing if change.verb is Verb.COMPLETE else 0
    data = _format_slot_data(*move[1:], tuple(change.note.items()), error, missing, status)
    return Event(f"slot.{change.verb}", slot.base, slot.owner, slot.kind, slot.job, slot.wanted, slot.fence, data)


def make_job_event(settlement: Settlement, status: Status | None = None) -> Event:
    """Tell the end of a job as an event, with the status that its owner has got by it, if that is another one."""
    slot = settlement.slot
    return Event(
        type=f"job.{settlement.outcome}",
        base=slot.base,
        owner=slot.owner,
        job=settlement.job,
        generation=slot.wanted,
        data=_format_job_data(settlement.results, status),
    )


def make_events(
    changes: Iterable[SlotChange], ended: Iterable[Settlement], statuses: Mapping[OwnerId, Status]
) -> list[Event]:
    """Tell what happened in a transaction; a new status is told once, with the end of a job or with the first move."""
    new = dict(statuses)
    ends = [make_job_event(one, new.pop(one.slot.owner_id, None)) for one in ended]
    return [*(make_slot_event(change, new.pop(change.slot.owner_id, None)) for change in changes), *ends]


def apply_changes(slots: Iterable[Slot], changes: Iterable[SlotChange]) -> list[Slot]:
    """Return the slots as they stand after the changes."""
    now: dict[SlotId, Slot] = {slot.id: slot for slot in slots}
    for change in changes:
        now.pop(change.slot.id, None)
        if change.after is not None:
            now[change.after.id] = change.after
    return list(now.values())


def compute_settlements(changes: Sequence[SlotChange], after: Iterable[Slot]) -> list[Settlement]:
    """Return, for each job touched, what its slots' coming to rest means for it."""
    settled: dict[JobId, list[SlotChange]] = {}
    for change in changes:
        if change.settles:
            settled.setdefault(change.slot.job, []).append(change)
    if not settled:
        return []
    own: dict[JobId, list[Slot]] = {job: [] for job in settled}
    for slot in after:
        if slot.job in own:
            own[slot.job].append(slot)
    return [
        Settlement(
            job=job,
            settled=len(moved),
            outcome=derive_outcome(own[job]),
            results=format_results(own[job]),
            slot=moved[0].slot,
        )
        for job, moved in settled.items()
    ]


def format_results(slots: Iterable[Slot]) -> str:
    """Tell the result of each slot of a job, as JSON by its kind."""
    return _results(tuple((slot.kind, slot.state, slot.missing, slot.error_code) for slot in slots))


def derive_statuses(owners: Iterable[OwnerId], after: Iterable[Slot]) -> dict[OwnerId, Status]:
    """Return the status of each owner that still has slots."""
    grouped: dict[OwnerId, list[Slot]] = {owner: [] for owner in owners}
    for slot in after:
        if slot.owner_id in grouped:
            grouped[slot.owner_id].append(slot)
    return {owner: derive_status(slots) for owner, slots in grouped.items() if slots}


# The same few stories are told many thousand times; each is written down once.


@lru_cache(maxsize=4096)
def _format_slot_data(  # noqa: PLR0917 - all that a line may say
    before: SlotState | None,
    after: SlotState | None,
    note: tuple[tuple[str, object], ...],
    error: str | None,
    missing: int,
    status: Status | None,
) -> str:
    more = {"error": error, "missing": missing, "status": status}
    return json.dumps(
        {"from": before, "to": after, **dict(note), **{name: fact for name, fact in more.items() if fact}}
    )


@lru_cache(maxsize=4096)
def _format_job_data(results: str, status: Status | None) -> str:
    return f'{{"results": {results}, "status": "{status}"}}' if status else f'{{"results": {results}}}'


@lru_cache(maxsize=4096)
def _results(slots: tuple[tuple[str, SlotState, int, str | None], ...]) -> str:
    return json.dumps(
        {
            kind: {"state": state, "missing": missing} | ({"error": error} if error else {})
            for kind, state, missing, error in slots
        }
    )
