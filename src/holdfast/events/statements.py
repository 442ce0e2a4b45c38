"""All statements about the log, in two forms: the order is the id on SQLite, and (xid, id) on PostgreSQL.

PostgreSQL assigns ids before transactions commit, so a smaller id may become visible after a larger one. Readers stop
below the oldest running transaction: all lines below it are final.
"""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import BigInteger, Select, and_, func, literal_column, select, tuple_, update

from holdfast.db import LIMIT, OLDEST_RUNNING_XID, batch, int_param, text_param
from holdfast.engine.store import event_marks, events, owners, slots

NEXT_XID = literal_column("(SELECT CAST(CAST(pg_snapshot_xmax(pg_current_snapshot()) AS TEXT) AS BIGINT))", BigInteger)


class LogStatements(NamedTuple):
    after: Select[tuple[object, ...]]  # the first lines after a position
    before: Select[tuple[object, ...]]  # the last lines before a position
    newest: Select[tuple[int, int]]  # the position of the last line
    unreadable: Select[tuple[int]] | None  # a line that an open transaction hides


_newest = select(events.c.xid, events.c.id)
SQLITE_STATEMENTS = LogStatements(
    after=select(events).where(events.c.id > int_param("id")).order_by(events.c.id).limit(LIMIT),
    before=select(events).where(events.c.id < int_param("id")).order_by(events.c.id.desc()).limit(LIMIT),
    newest=_newest.order_by(events.c.id.desc()).limit(1),
    unreadable=None,
)

_position = tuple_(events.c.xid, events.c.id)
_given_position = tuple_(int_param("xid"), int_param("id"))
_decided = events.c.xid < OLDEST_RUNNING_XID
_order = (events.c.xid, events.c.id)
_reverse_order = (events.c.xid.desc(), events.c.id.desc())
POSTGRES_STATEMENTS = LogStatements(
    after=select(events).where(_position > _given_position, _decided).order_by(*_order).limit(LIMIT),
    before=select(events).where(_position < _given_position, _decided).order_by(*_reverse_order).limit(LIMIT),
    newest=_newest.where(_decided).order_by(*_reverse_order).limit(1),
    # In order: without one, the planner expects many such lines and scans the whole table, where there is usually none.
    unreadable=select(events.c.id).where(events.c.xid >= OLDEST_RUNNING_XID).order_by(*_order).limit(1),
)

# There is no index by owner, so only the newest lines are scanned.
_row = batch(owner=str)
SELECT_RECENT_OF_OWNERS = (
    select(events)
    .where(
        events.c.id > select(func.coalesce(func.max(events.c.id), 0)).scalar_subquery() - int_param("far"),
        events.c.base == text_param("base"),
        events.c.owner.in_(select(_row.c.owner)),
    )
    .order_by(events.c.id.desc())
    .limit(LIMIT)
)

SELECT_SWEPT_MARK = select(event_marks.c.xid, event_marks.c.id).where(event_marks.c.name == literal_column("'swept'"))

# A database restored into another PostgreSQL server has transaction ids that are in the future there.
IS_FOREIGN = events.c.xid >= NEXT_XID
SELECT_FOREIGN_EVENT = select(events.c.id).where(IS_FOREIGN).order_by(*_order).limit(1)
ADOPT_FOREIGN_EVENTS = update(events).values(xid=0).where(IS_FOREIGN).returning(events.c.id)
ADOPT_SWEPT_MARK = update(event_marks).values(xid=0).where(event_marks.c.xid >= NEXT_XID)

# A running slot has a holder, and an index covers slots with a holder.
SELECT_RUNNING_SLOTS = (
    select(
        owners.c.base,
        owners.c.owner,
        slots.c.kind,
        slots.c.job,
        slots.c.wanted,
        slots.c.stage,
        slots.c.step,
        slots.c.steps,
        slots.c.done,
        slots.c.total,
    )
    .select_from(slots.join(owners, owners.c.id == slots.c.owner_id))
    .where(and_(slots.c.holder.is_not(None), slots.c.state == literal_column("'running'")))
    .order_by(slots.c.owner_id, slots.c.id)
)
