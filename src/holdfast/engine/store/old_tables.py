"""Moves the rows of a guard from the tables of Holdfast, where older versions kept them, to tables of their own.

An owner belongs to a guard if it has a slot whose kind is its base: the guard writes the name of the work into both.
Rows of documents in the same database stay. So do the emptied tables, because they may belong to Holdfast.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from sqlalchemy import bindparam, inspect, text

from holdfast.engine.store.tables import (
    duplicates,
    event_marks,
    events,
    jobs,
    metric_increments,
    metric_totals,
    owners,
    pauses,
    quotas,
    schema_version,
    slots,
)

if TYPE_CHECKING:
    from sqlalchemy import Connection, Table

    from holdfast.db import TableNames

log = logging.getLogger("holdfast")

SELECT_WORKS = text(
    "SELECT DISTINCT owners.base FROM owners JOIN slots ON slots.owner_id = owners.id WHERE slots.kind = owners.base"
)
# The column that contains the name of the work, in the order in which rows are copied.
WORK_COLUMNS: dict[Table, str] = {
    owners: "base",
    slots: "kind",
    jobs: "base",
    pauses: "base",
    quotas: "base",
    events: "base",
    duplicates: "base",
    metric_totals: "kind",
    metric_increments: "kind",
}


def list_old_works(connection: Connection) -> list[str]:
    """Return the works of a guard that has its rows in the tables of Holdfast."""
    if not inspect(connection).has_table(schema_version.name) or not inspect(connection).has_table(slots.name):
        return []
    return list(connection.execute(SELECT_WORKS).scalars())


def move_rows(connection: Connection, names: TableNames) -> None:
    """Move all rows of the guard's works. Ids stay the same, and none is used again."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("LOCK TABLE owners, slots, jobs, events IN SHARE ROW EXCLUSIVE MODE"))
    works = list_old_works(connection)
    for table, column in WORK_COLUMNS.items():
        columns = ", ".join(one.name for one in table.columns)
        _run_for_works(
            connection,
            f"INSERT INTO {names.table(table.name)} ({columns}) SELECT {columns} FROM {table.name} WHERE {column} IN :works",  # noqa: S608, E501 - our own words
            works,
        )
        if table.c.get("id") is not None and table is not jobs:
            _keep_sequence(connection, table.name, names)
    target, source = names.table(event_marks.name), event_marks.name
    connection.execute(text(f"DELETE FROM {target}"))  # noqa: S608
    connection.execute(text(f"INSERT INTO {target} (name, xid, id) SELECT name, xid, id FROM {source}"))  # noqa: S608
    for table, column in reversed(WORK_COLUMNS.items()):
        _run_for_works(connection, f"DELETE FROM {table.name} WHERE {column} IN :works", works)  # noqa: S608
    log.warning("guard.rows_moved works=%s tables=%s", ",".join(works), names.table("*"))


def _run_for_works(connection: Connection, sql: str, works: list[str]) -> None:
    connection.execute(text(sql).bindparams(bindparam("works", expanding=True)), {"works": works})


def _keep_sequence(connection: Connection, table: str, names: TableNames) -> None:
    """Continue with the ids of the old table: a ticket of a deleted slot must never match a later one."""
    if connection.dialect.name == "postgresql":
        connection.execute(
            text(
                f"SELECT setval(pg_get_serial_sequence('{names.table(table)}', 'id'), "
                f"greatest(nextval(pg_get_serial_sequence('{table}', 'id')), 1))"
            )
        )
        return
    sequence = {"old": table, "new": names.table(table)}
    connection.execute(text("DELETE FROM sqlite_sequence WHERE name = :new"), sequence)
    connection.execute(
        text("INSERT INTO sqlite_sequence (name, seq) SELECT :new, seq FROM sqlite_sequence WHERE name = :old"),
        sequence,
    )
