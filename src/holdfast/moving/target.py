"""Writes the rows of a source into an empty database. It continues after an interruption at any statement.

One transaction writes a batch together with its mark, so no batch is written twice. Ids stay the same, and counters of
ids continue above all ids that the source ever used. Only events get new ids, above all ids of the source: a reader
with an old cursor gets a reset.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import (
    BigInteger,
    Column,
    Integer,
    MetaData,
    Table,
    Text,
    delete,
    insert,
    literal_column,
    select,
    update,
)

from holdfast.db import XID, int_param, text_param
from holdfast.engine import Ticket
from holdfast.engine.store import LARGEST_BATCH, Release, event_marks, events
from holdfast.events import Cursor
from holdfast.indexes import IndexRows
from holdfast.moving.tables import EVENT_MARKS, EVENTS, REPLACED, SWEPT, WEBHOOKS, copied_columns, counted_tables

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.db import Database, Transaction
    from holdfast.engine.store import SqlStore
    from holdfast.moving.source import Part, RowBatch, RowSource

    Report = Callable[[str, int, int], None]  # part, rows that are copied, all rows

SELECT_XID = select(XID)
_swept = event_marks.c.name == literal_column("'swept'")
SET_SWEPT = update(event_marks).values(xid=int_param("xid"), id=int_param("id")).where(_swept)
SELECT_SWEPT_XID = select(event_marks.c.xid).where(_swept)
SELECT_EVENT_XID = select(events.c.xid).where(events.c.id == int_param("id"))

marks = Table(
    "holdfast_move_marks",
    MetaData(),
    Column("part", Text, primary_key=True),
    Column("position", Text, nullable=False),  # JSON, of the last row
    Column("copied", BigInteger, nullable=False),  # how many are copied
    Column("done", Integer, nullable=False),
)
SELECT_MARK = select(marks.c.position, marks.c.copied, marks.c.done).where(marks.c.part == text_param("part"))
DELETE_MARK = delete(marks).where(marks.c.part == text_param("part"))
INSERT_MARK = insert(marks).values(
    part=text_param("part"), position=text_param("position"), copied=int_param("copied"), done=int_param("done")
)


class Mark(NamedTuple):
    """How far a part is copied."""

    position: Sequence[Any] | None = None
    rows: int = 0
    done: bool = False


class RowTarget:
    """Writes parts into a database that no other process uses."""

    def __init__(self, database: Database, source: RowSource, report: Report) -> None:
        self._database = database
        self._source = source
        self._report = report
        self._indexes = IndexRows(database)
        self._dialect = database.engine.dialect.name
        self._counters = dict(source.counters)
        self._first_event = self._counters.get(EVENTS, 0) + 1  # larger than any id in a cursor of the source

    def copy_all(self) -> None:
        """Copy tables, then indexes, which need the copied texts, then counters."""
        self._database.write(self._start_log, durable=False)
        for part in (*self._source.tables(), *self._source.indexes()):
            self._copy(part)
        self._database.write(self._set_counters, durable=True)

    def read_mark(self, part: str) -> Mark:
        rows = self._database.read(SELECT_MARK, part=part)
        return Mark(json.loads(rows[0][0]), rows[0][1], bool(rows[0][2])) if rows else Mark()

    def write_mark(self, tx: Transaction, part: str, mark: Mark) -> None:
        tx.run(DELETE_MARK, part=part)
        tx.run(INSERT_MARK, part=part, position=json.dumps(mark.position), copied=mark.rows, done=int(mark.done))

    def _copy(self, part: Part) -> None:
        mark = self.read_mark(part.name)
        if mark.done:
            return
        total = self._source.count(part)
        for batch in self._source.read(part, mark.position):
            write = self._prepare(part, batch, mark.rows)
            mark = Mark(batch.position, mark.rows + len(batch.rows))

            def work(tx: Transaction, write: Callable[[Transaction], None] = write, mark: Mark = mark) -> None:
                write(tx)
                self.write_mark(tx, part.name, mark)

            self._database.write(work, durable=False)
            self._report(part.name, mark.rows, total)
        finished = mark._replace(done=True)
        self._database.write(lambda tx: self.write_mark(tx, part.name, finished), durable=False)

    def _prepare(self, part: Part, batch: RowBatch, before: int) -> Callable[[Transaction], None]:
        if part.rows_of is not None:
            return self._indexes.prepare(part.rows_of, [(key, vector) for key, vector in batch.rows])
        assert part.table is not None  # noqa: S101 - a part is a table or an index
        table, names = part.table, [column.name for column in copied_columns(part.table)]
        if table.name == EVENTS:
            return lambda tx: insert_rows(tx, table, self._number_events(tx, batch.rows, before, names))
        if table.name == WEBHOOKS:
            return lambda tx: insert_rows(tx, table, self._place_cursors(tx, batch.rows, names))
        if table.name == EVENT_MARKS:
            kept = [(name, count) for name, _, count in batch.rows if name != SWEPT]
            return lambda tx: insert_rows(tx, table, [[name, *self._find_position(tx, count)] for name, count in kept])
        return lambda tx: insert_rows(tx, table, batch.rows)

    def _start_log(self, tx: Transaction) -> None:
        """Let every cursor of the source lie before the log, so that its reader gets a reset."""
        if tx.run(SELECT_MARK, part="log"):
            return
        tx.run(SET_SWEPT, xid=tx.run(SELECT_XID)[0][0], id=self._first_event)
        self.write_mark(tx, "log", Mark(done=True))

    def _number_events(
        self, tx: Transaction, rows: Sequence[Sequence[Any]], before: int, names: list[str]
    ) -> list[list[Any]]:
        """Give events new ids in their order, and the number of this transaction."""
        ((xid,),) = tx.run(SELECT_XID)
        id_place, xid_place = names.index("id"), names.index("xid")
        numbered = [list(row) for row in rows]
        for place, row in enumerate(numbered, start=1):
            row[id_place], row[xid_place] = self._first_event + before + place, xid
        return numbered

    def _place_cursors(self, tx: Transaction, rows: Sequence[Sequence[Any]], names: list[str]) -> list[list[Any]]:
        """Place each webhook behind the events that it has read; its cell has their number."""
        place, placed = names.index("cursor"), [list(row) for row in rows]
        for row in placed:
            row[place] = str(self._find_position(tx, row[place]))
        return placed

    def _find_position(self, tx: Transaction, count: int) -> Cursor:
        """Return the position after so many copied events."""
        id_ = self._first_event + count
        found = tx.run(SELECT_EVENT_XID, id=id_)
        return Cursor((found or tx.run(SELECT_SWEPT_XID))[0][0], id_)

    def _set_counters(self, tx: Transaction) -> None:
        for table in counted_tables():
            highest = max(self._counters.get(table.name, 0), _max_id(tx, table), self._minimum(table))
            if highest:
                _set_counter(tx, table.name, highest)

    def _minimum(self, table: Table) -> int:
        return self._first_event if table.name == EVENTS else 0


def insert_rows(tx: Transaction, table: Table, rows: Sequence[Sequence[Any]]) -> None:
    """Insert rows. They replace rows that triggers or the creation of the database have written."""
    names = [column.name for column in copied_columns(table)]
    quote = tx.connection.dialect.identifier_preparer.quote
    into = f"{table.name} ({', '.join(map(quote, names))})"
    postgres = tx.connection.dialect.name == "postgresql"
    if postgres and table.name not in REPLACED:
        tx.copy_rows(f"COPY {into} FROM STDIN", rows)
        return
    values = ", ".join(["%s" if postgres else "?"] * len(names))
    sql = f"INSERT INTO {into} VALUES ({values})"  # noqa: S608 - names of our tables and columns
    if table.name in REPLACED:
        changes = ", ".join(f"{quote(name)} = excluded.{quote(name)}" for name in names)
        sql += f" ON CONFLICT ({quote(table.primary_key.columns[0].name)}) DO UPDATE SET {changes}"
    tx.run_sql_many(sql, rows)


def release_slots(store: SqlStore) -> int:
    """Return to the queue what the workers of the source held, without losing an attempt; return how many slots."""
    count = 0
    while held := store.find_held_by(store.list_holders(), LARGEST_BATCH).slots:
        store.release([Release(ticket=Ticket.of(slot, source=slot.source), refund=True) for slot in held])
        count += len(held)
    return count


def _max_id(tx: Transaction, table: Table) -> int:
    return int(tx.run_sql(f"SELECT coalesce(max(id), 0) FROM {table.name}")[0][0])  # noqa: S608 - a table of ours


def _set_counter(tx: Transaction, table: str, highest: int) -> None:
    if tx.connection.dialect.name == "postgresql":
        tx.run_sql("SELECT setval(CAST(pg_get_serial_sequence(%s, 'id') AS regclass), %s)", [table, highest])
        return
    tx.run_sql("DELETE FROM sqlite_sequence WHERE name = ?", [table])
    tx.run_sql("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", [table, highest])
