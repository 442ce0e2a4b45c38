"""Which tables are copied, in which order, and which cells change on the way.

The list comes from the declared tables, so a new table is copied without a change here. A test fails if a table of the
database is neither declared nor named below.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import walk_packages
from typing import TYPE_CHECKING, Any

from sqlalchemy import Computed, LargeBinary, Select, bindparam, func, select, tuple_

import holdfast
from holdfast.db import LIMIT, int_param, metadata

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sqlalchemy import Column, ColumnElement, Table

    Row = list[Any]

EVENTS = "events"  # copied with new ids, see `events.py`
EVENT_MARKS = "event_marks"  # positions in the log
SWEPT = "swept"  # the mark after the events that were removed; the copied log has its own
WEBHOOKS = "webhooks"  # each has a cursor in the log
STATUSES = "library_standings"  # triggers of other tables write its rows first
FILLED = frozenset({"counters", EVENT_MARKS})  # a new database has their rows
REPLACED = FILLED | {STATUSES}  # tables whose copied rows replace others
# Not copied, with the reason.
NOT_COPIED: Mapping[str, str] = {
    "workers": "the processes that run now",
    "erasures": "what is left to erase from the disk of this database",
    "erasure_stages": "what is left to erase from the disk of this database",
}
ROWS = 1_000  # of a batch
LARGE_ROWS = 100  # of a batch whose rows contain bytes

# Leases and rings of processes that know only the old database.
OVERRIDES: Mapping[str, Mapping[str, Callable[[Mapping[str, Any]], Any]]] = {
    "slots": {"rung_at": lambda _: None},
    "webhook_deliveries": {"until": lambda _: None},
    "access_repeats": {"until": lambda row: 0 if row["status"] is None else row["until"]},
}


@cache
def copied_tables() -> tuple[Table, ...]:
    """Return the tables in the order in which they are copied: a referenced table before the table that references."""
    for module in walk_packages(holdfast.__path__, "holdfast."):
        if module.name.endswith(".tables"):  # importing it declares its tables
            import_module(module.name)
    found = [table for table in metadata.sorted_tables if table.name not in NOT_COPIED]
    late = {EVENTS: 1, EVENT_MARKS: 2, WEBHOOKS: 3, "webhook_deliveries": 4, STATUSES: 5}
    return tuple(sorted(found, key=lambda table: late.get(table.name, 0)))


def all_tables() -> tuple[Table, ...]:
    """Return every declared table."""
    copied_tables()  # declares them
    return tuple(metadata.sorted_tables)


def copied_columns(table: Table) -> list[Column[Any]]:
    return [column for column in table.columns if not isinstance(column.server_default, Computed)]


def key_columns(table: Table, dialect: str) -> list[Column[Any]]:
    """Return the columns by which the rows of a table are read in order. That of events is the order of the log."""
    if table.name == EVENTS and dialect == "postgresql":
        return [table.c.xid, table.c.id]
    return list(table.primary_key.columns)


def batch_rows(table: Table) -> int:
    return LARGE_ROWS if any(isinstance(column.type, LargeBinary) for column in table.columns) else ROWS


def counted_tables() -> list[Table]:
    """Return the tables whose ids come from a counter and are never used twice."""
    return [table for table in copied_tables() if table.dialect_options["sqlite"]["autoincrement"]]


@cache
def select_batch(table: Table, dialect: str, *, after: bool) -> Select[Any]:
    """Return the query for the next rows of a table.

    With `after`, they follow a key with the parameters `after_0`, `after_1`, … Events are at least as new as `since`.
    """
    keys = key_columns(table, dialect)
    query = select(*copied_columns(table)).order_by(*keys).limit(LIMIT)
    if after:
        given = [bindparam(f"after_{place}", type_=column.type) for place, column in enumerate(keys)]
        query = query.where(tuple_(*keys) > tuple_(*given) if len(keys) > 1 else keys[0] > given[0])
    return query.where(_since(table)) if table.name == EVENTS else query


@cache
def count_rows(table: Table) -> Select[Any]:
    query = select(func.count()).select_from(table)
    return query.where(_since(table)) if table.name == EVENTS else query


@cache
def count_read_events(table: Table, dialect: str) -> Select[Any]:
    """Return the query for the number of copied events up to a position in the log."""
    if dialect == "postgresql":
        return count_rows(table).where(tuple_(table.c.xid, table.c.id) <= tuple_(int_param("xid"), int_param("id")))
    return count_rows(table).where(table.c.id <= int_param("id"))


def _since(table: Table) -> ColumnElement[bool]:
    return table.c.at >= int_param("since")


def apply_overrides(table: Table, rows: Sequence[Sequence[Any]]) -> list[Row]:
    """Replace the cells that must not be copied."""
    changes = OVERRIDES.get(table.name)
    if changes is None:
        return [list(row) for row in rows]
    names = [column.name for column in copied_columns(table)]
    changed = []
    for row in rows:
        cells = dict(zip(names, row, strict=True))
        changed.append([changes[name](cells) if name in changes else cells[name] for name in names])
    return changed
