"""Rows to values."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.engine.effects import Event
from holdfast.engine.queue import Pause, Pauses, Quota
from holdfast.engine.slot import Slot
from holdfast.engine.states import Operation, Outcome, SlotState
from holdfast.engine.store.base import Job, LoggedEvent, Refusal

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from holdfast.clock import Moment
    from holdfast.engine.slot import OwnerId
    from holdfast.engine.states import Status

_STATES = {str(state): state for state in SlotState}
STATE_INDEX = Slot._fields.index("state")
BASE_INDEX = Slot._fields.index("base")


class OwnerRow(NamedTuple):
    """One row of the owners table."""

    id: OwnerId
    base: str
    owner: str
    generation: int
    fingerprint: str | None
    status: Status
    created_at: Moment


def owner_from_row(row: Sequence[Any]) -> OwnerRow:
    """Read an owner."""
    return OwnerRow(*row)


def slot_from_row(row: Sequence[Any], base: str, owner: str) -> Slot:
    """Read a slot of a named owner; the columns are the fields, in order."""
    return tuple.__new__(
        Slot, (*row[:STATE_INDEX], _STATES[row[STATE_INDEX]], *row[STATE_INDEX + 1 : BASE_INDEX], base, owner)
    )


def slot_from_joined_row(row: Sequence[Any]) -> Slot:
    """Read a slot whose row carries the names of its owner."""
    return slot_from_row(row, row[BASE_INDEX], row[BASE_INDEX + 1])


def job_from_row(row: Sequence[Any]) -> Job:
    """Read a job."""
    (
        id_, owner_id, base, owner, generation, operation, cause, requester, priority, still_open, outcome, results,
        created_at, finished_at, payload, untold, prioritised_at,
    ) = row  # fmt: skip
    return Job(
        id=id_,
        owner_id=owner_id,
        base=base,
        owner=owner,
        generation=generation,
        operation=Operation(operation),
        cause=cause,
        requester=requester,
        priority=priority,
        open=still_open,
        outcome=Outcome(outcome) if outcome else None,
        results=json.loads(results or "{}"),
        created_at=created_at,
        finished_at=finished_at,
        payload=payload,
        untold=bool(untold),
        prioritised_at=prioritised_at,
    )


def pauses_from_rows(rows: Iterable[Sequence[Any]]) -> Pauses:
    """Read all pauses."""
    return Pauses(pause_from_row(row) for row in rows)


def pause_from_row(row: Sequence[Any]) -> Pause:
    """Read a pause."""
    base, since, stop, requester, resumed_at = row
    return Pause(base=base, since=since, stop=bool(stop), requester=requester, resumed_at=resumed_at)


def quota_from_row(row: Sequence[Any]) -> Quota:
    """Read a quota."""
    base, per_day, day, used = row
    return Quota(base=base, per_day=per_day, day=day, used=used)


def event_from_row(row: Sequence[Any]) -> LoggedEvent:
    """Read an event."""
    id_, at, type_, base, owner, kind, job, generation, fence, data, xid = row
    event = Event(
        type=type_,
        base=base,
        owner=owner,
        kind=kind,
        job=job,
        generation=generation,
        fence=fence,
        data=data,
    )
    return LoggedEvent(id=id_, at=at, event=event, xid=xid)


def refusal_from_row(row: Sequence[Any]) -> Refusal:
    """Read a refused request."""
    id_, at, base, owner, operation, verdict, reason, job, requester, cost = row
    return Refusal(
        id=id_,
        at=at,
        base=base,
        owner=owner,
        operation=Operation(operation),
        verdict=verdict,
        reason=reason,
        job=job,
        requester=requester,
        cost=cost,
    )
