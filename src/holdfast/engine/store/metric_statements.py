"""SQL of the metrics: totals, the part of the log that they lack, and gauges that an index answers."""

from __future__ import annotations

from functools import cache
from typing import Any

from sqlalchemy import Integer, delete, func, insert, literal_column, select, tuple_, update
from sqlalchemy.dialects.postgresql import insert as upsert

from holdfast.db import LIMIT, NOW, OLDEST_RUNNING_XID, batch, for_each, int_param, text_literal, text_param
from holdfast.engine.states import SlotState
from holdfast.engine.store.tables import (
    LOWEST_PRIORITY,
    event_marks,
    events,
    metric_increments,
    metric_totals,
    slots,
)
from holdfast.engine.totals import SLOTS

_is_mark = event_marks.c.name == text_literal("metrics")
SELECT_MARK = select(event_marks.c.xid, event_marks.c.id).where(_is_mark)
# Moves the mark only if no other process has moved it, so each event is added once.
MOVE_MARK = (
    update(event_marks)
    .values(xid=int_param("xid"), id=int_param("id"))
    .where(_is_mark, event_marks.c.xid == int_param("old_xid"), event_marks.c.id == int_param("old_id"))
    .returning(event_marks.c.id)
)
_columns = (events.c.xid, events.c.id, events.c.type, events.c.kind, events.c.data)
_position = tuple_(events.c.xid, events.c.id)
_behind_mark = _position > tuple_(int_param("xid"), int_param("id"))
_in_order = select(*_columns).order_by(events.c.xid, events.c.id)
SELECT_UNCOUNTED_SQLITE = select(*_columns).where(events.c.id > int_param("id")).order_by(events.c.id).limit(LIMIT)
SELECT_UNCOUNTED_POSTGRES = _in_order.where(_behind_mark, events.c.xid < OLDEST_RUNNING_XID).limit(LIMIT)
# Also events above the oldest running transaction: together with the totals they give the slots of this snapshot.
SELECT_ALL_UNCOUNTED_POSTGRES = _in_order.where(_behind_mark).limit(LIMIT)

_row = batch(name=str, kind=str, detail=str, value=float)
_added = upsert(metric_totals).from_select(_row.c.keys(), select(*_row.c).where(literal_column("true")))
ADD_TOTALS = _added.on_conflict_do_update(
    index_elements=[metric_totals.c.name, metric_totals.c.kind, metric_totals.c.detail],
    set_={"value": metric_totals.c.value + _added.excluded.value},
)
SELECT_TOTALS = select(metric_totals)
SELECT_TOTALS_OF = SELECT_TOTALS.where(metric_totals.c.name == text_param("name"))
DELETE_TOTALS_OF = delete(metric_totals).where(metric_totals.c.name == text_param("name"))
SELECT_SLOT_TOTALS = SELECT_TOTALS.where(
    metric_totals.c.name == text_literal(SLOTS), metric_totals.c.value != literal_column("0")
)
_row = batch(name=str, kind=str, detail=str, value=float)
INSERT_INCREMENTS = insert(metric_increments).from_select(_row.c.keys(), select(*_row.c))
_increment = (metric_increments.c.name, metric_increments.c.kind, metric_increments.c.detail, metric_increments.c.value)
_oldest = select(metric_increments.c.id, *_increment).order_by(metric_increments.c.id).limit(LIMIT).subquery()
SELECT_INCREMENTS = select(_oldest.c.name, _oldest.c.kind, _oldest.c.detail, _oldest.c.value)
TAKE_INCREMENTS = (
    delete(metric_increments).where(metric_increments.c.id.in_(select(_oldest.c.id))).returning(*_increment)
)

COUNT_SLOTS = select(slots.c.kind, slots.c.state, func.count()).group_by(slots.c.kind, slots.c.state)
_longest = func.min(slots.c.claimed_at)
SELECT_LONGEST_RUNNING = (
    select(slots.c.kind, NOW - _longest)
    .where(slots.c.holder.is_not(None), slots.c.state == text_literal(SlotState.RUNNING))
    .group_by(slots.c.kind)
)
_is_queued = slots.c.state == text_literal(SlotState.QUEUED)


@cache
def select_oldest_queued(kinds: tuple[str, ...]) -> Any:
    """Select how long the oldest queued slot of each kind and priority has waited. Reads one row of each."""
    return for_each(
        slots.c.kind,
        kinds,
        [
            select(slots.c.kind, (NOW - slots.c.queued_at).label("waited"))
            .where(_is_queued, slots.c.priority == literal_column(str(priority)))
            .order_by(slots.c.queued_at)
            .limit(literal_column("1", Integer))
            for priority in range(LOWEST_PRIORITY + 1)
        ],
    )
