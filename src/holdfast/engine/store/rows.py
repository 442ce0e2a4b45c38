"""Converts database rows to values."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.engine.effects import Event
from holdfast.engine.queue import Pause, Pauses, Quota
from holdfast.engine.slot import Slot
from holdfast.engine.states import Operation, Outcome, SlotState
from holdfast.engine.store.base import Job, LoggedEvent, Refusal
from holdfast.engine.store.tables import duplicates, jobs, pauses, quotas

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlalchemy import Table

    from holdfast.clock import Moment
    from holdfast.engine.slot import OwnerId
    from holdfast.engine.states import Status

_STATES = {str(state): state for state in SlotState}
STATE_INDEX = Slot._fields.index("state")
BASE_INDEX = Slot._fields.index("base")


class OwnerRow(NamedTuple):
    """One row of the table `owners`."""

    id: OwnerId
    base: str
    owner: str
    generation: int
    fingerprint: str | None
    status: Status
    created_at: Moment


def slot_from_row(row: Sequence[Any], base: str, owner: str) -> Slot:
    """Convert a row of `slots`. The columns are the fields of `Slot`, in order."""
    return tuple.__new__(
        Slot, (*row[:STATE_INDEX], _STATES[row[STATE_INDEX]], *row[STATE_INDEX + 1 : BASE_INDEX], base, owner)
    )


def slot_from_joined_row(row: Sequence[Any]) -> Slot:
    """Convert a row of `slots` that is followed by base and name of the owner."""
    return slot_from_row(row, row[BASE_INDEX], row[BASE_INDEX + 1])


def job_from_row(row: Sequence[Any]) -> Job:
    cells = _cells_by_name(jobs, row)
    cells["operation"] = Operation(cells["operation"])
    cells["outcome"] = Outcome(cells["outcome"]) if cells["outcome"] else None
    cells["results"] = json.loads(cells["results"] or "{}")
    cells["untold"] = bool(cells["untold"])
    return Job(**cells)


def pause_from_row(row: Sequence[Any]) -> Pause:
    cells = _cells_by_name(pauses, row)
    cells["stop"] = bool(cells["stop"])
    return Pause(**cells)


def pauses_from_rows(rows: Iterable[Sequence[Any]]) -> Pauses:
    return Pauses(map(pause_from_row, rows))


def quota_from_row(row: Sequence[Any]) -> Quota:
    return Quota(**_cells_by_name(quotas, row))


def event_from_row(row: Sequence[Any]) -> LoggedEvent:
    id_, at, *event, xid = row
    return LoggedEvent(id=id_, at=at, event=Event(*event), xid=xid)


def refusal_from_row(row: Sequence[Any]) -> Refusal:
    cells = _cells_by_name(duplicates, row)
    cells["operation"] = Operation(cells["operation"])
    return Refusal(**cells)


def _cells_by_name(table: Table, row: Sequence[Any]) -> dict[str, Any]:
    """Name the cells of a row that has all columns of a table. The fields of the value have the same names."""
    return dict(zip(table.c.keys(), row, strict=True))
