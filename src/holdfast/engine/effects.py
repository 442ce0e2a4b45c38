"""Consequences of slot changes: events, settled jobs, statuses. Pure functions; the store writes the results."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.clock import as_datetime
from holdfast.engine.states import ACTIVE_STATES, TRANSITIONS, Outcome, Status, Verb
from holdfast.engine.status import derive_outcome, derive_status
from holdfast.engine.usage import UNKNOWN_USAGE, Usage

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from holdfast.engine.slot import JobId, OwnerId, Slot, SlotId
    from holdfast.engine.states import SlotState


NO_NOTE: Mapping[str, object] = MappingProxyType({})


class SlotChange(NamedTuple):
    """One change of a slot. `before` is None for a new slot, `after` for a deleted one."""

    verb: Verb
    before: Slot | None
    after: Slot | None
    note: Mapping[str, object] = NO_NOTE
    usage: Usage = UNKNOWN_USAGE  # of the attempt that this change ends

    @property
    def slot(self) -> Slot:
        """The slot after the change, or before it if it was deleted."""
        slot = self.after or self.before
        assert slot is not None  # noqa: S101 - checked by TRANSITIONS
        return slot

    @property
    def settles(self) -> bool:
        """Whether the slot came to rest, or was deleted, within its own job. A cancel ends the whole job instead."""
        if self.verb is Verb.CANCEL or self.before is None or self.before.state not in ACTIVE_STATES:
            return False
        return self.after is None or (self.after.resting and self.after.job == self.before.job)


class Event(NamedTuple):
    """One entry of the durable event log. `data` is JSON."""

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
        data: dict[str, Any] = json.loads(self.data)
        return data


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """How many slots of a job came to rest, and the outcome of the job if no other slot is open."""

    job: JobId
    settled: int
    outcome: Outcome
    results: str  # JSON: the state of each slot by its kind
    slot: Slot  # any of them: it has the base and owner for the event


LONG_RUNNING = "job.long_running"
VERBS_WITH_ERROR = frozenset({Verb.POSTPONE, Verb.FAIL, Verb.GIVE_UP})


def make_slot_event(change: SlotChange, status: Status | None = None) -> Event:
    """Return the event of a change, with the new status of the owner if it changed.

    A change that `TRANSITIONS` does not contain is a bug and aborts the transaction.
    """
    before, after = change.before, change.after
    move = (change.verb, before and before.state, after and after.state)
    if move not in TRANSITIONS:
        raise AssertionError(f"a slot may not move like this: {move}")
    slot = change.slot
    error = after.error_code if after and change.verb in VERBS_WITH_ERROR else None
    missing = slot.missing if change.verb is Verb.COMPLETE else 0
    data = _format_slot_data(*move[1:], tuple(change.note.items()), error, missing, status)
    if change.usage is not UNKNOWN_USAGE:
        data = f"{data[:-1]}, {change.usage.format_members()}}}"  # appended, because no two attempts have the same
    return Event(f"slot.{change.verb}", slot.base, slot.owner, slot.kind, slot.job, slot.wanted, slot.fence, data)


def compute_wait_ms(claim: SlotChange) -> int:
    """Return how long the claimed slot could have been claimed before.

    The wait begins when the slot was queued, or when its next attempt was due. After a lost or returned lease it begins
    at the last progress of the earlier attempt, because the end of that lease is not stored.
    """
    before, after = claim.before, claim.slot
    if before is None or after.claimed_at is None:
        return 0
    since = max(before.queued_at, before.due_at or 0, before.progress_at or 0)
    return max(0, after.claimed_at - since) // 1000


def make_job_event(settlement: Settlement, status: Status | None = None) -> Event:
    """Return the event of an ended job, with the new status of the owner if it changed."""
    slot = settlement.slot
    return Event(
        type=f"job.{settlement.outcome}",
        base=slot.base,
        owner=slot.owner,
        job=settlement.job,
        generation=slot.wanted,
        data=_format_job_data(settlement.results, status),
    )


def make_long_running_event(slot: Slot) -> Event:
    """Return the event of a slot that has been running for long."""
    since = as_datetime(slot.claimed_at)
    facts = {
        "since": since and since.isoformat(timespec="milliseconds"),
        "stage": slot.stage,
        "holder": slot.holder,
    }
    return Event(LONG_RUNNING, slot.base, slot.owner, slot.kind, slot.job, slot.wanted, slot.fence, json.dumps(facts))


def make_events(
    changes: Iterable[SlotChange], ended: Iterable[Settlement], statuses: Mapping[OwnerId, Status]
) -> list[Event]:
    """Return all events of a transaction. A new status is in one event: the end of a job, or else the first change."""
    new = dict(statuses)
    ends = [make_job_event(settlement, new.pop(settlement.slot.owner_id, None)) for settlement in ended]
    return [*(make_slot_event(change, new.pop(change.slot.owner_id, None)) for change in changes), *ends]


def apply_changes(slots: Iterable[Slot], changes: Iterable[SlotChange]) -> list[Slot]:
    """Return the slots after the changes."""
    now: dict[SlotId, Slot] = {slot.id: slot for slot in slots}
    for change in changes:
        now.pop(change.slot.id, None)
        if change.after is not None:
            now[change.after.id] = change.after
    return list(now.values())


def compute_settlements(changes: Sequence[SlotChange], after: Iterable[Slot]) -> list[Settlement]:
    """Return a settlement for each job with slots that came to rest."""
    settled: dict[JobId, list[SlotChange]] = {}
    for change in changes:
        if change.settles:
            settled.setdefault(change.slot.job, []).append(change)
    if not settled:
        return []
    slots_by_job: dict[JobId, list[Slot]] = {job: [] for job in settled}
    for slot in after:
        if slot.job in slots_by_job:
            slots_by_job[slot.job].append(slot)
    return [
        Settlement(
            job=job,
            settled=len(moved),
            outcome=derive_outcome(slots_by_job[job]),
            results=format_results(slots_by_job[job]),
            slot=moved[0].slot,
        )
        for job, moved in settled.items()
    ]


def format_results(slots: Iterable[Slot]) -> str:
    """Return the result of each slot of a job, as JSON by kind."""
    results = (
        _format_result(slot.kind, slot.state, slot.missing, slot.error_code, slot.attempts)
        + (f", {slot.usage}}}" if slot.usage else "}")
        for slot in slots
    )
    return f"{{{', '.join(results)}}}"


def derive_statuses(owners: Iterable[OwnerId], after: Iterable[Slot]) -> dict[OwnerId, Status]:
    """Return the status of each owner that still has slots."""
    grouped: dict[OwnerId, list[Slot]] = {owner: [] for owner in owners}
    for slot in after:
        if slot.owner_id in grouped:
            grouped[slot.owner_id].append(slot)
    return {owner: derive_status(slots) for owner, slots in grouped.items() if slots}


# Most events have the same data, so these functions cache the JSON.


@lru_cache(maxsize=4096)
def _format_slot_data(  # noqa: PLR0917 - positional, because the arguments are the cache key
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
def _format_result(kind: str, state: SlotState, missing: int, error: str | None, attempts: int) -> str:
    """Return the result of a slot as a member of a JSON object, without the closing brace."""
    more = {"error": error, "attempts": attempts}
    result = {"state": state, "missing": missing, **{name: fact for name, fact in more.items() if fact}}
    return json.dumps({kind: result})[1:-2]


def _format_job_data(results: str, status: Status | None) -> str:
    return f'{{"results": {results}, "status": "{status}"}}' if status else f'{{"results": {results}}}'
