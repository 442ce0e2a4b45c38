"""Reads the contents of a database in batches that any database can take.

A *part* is a table, or the rows of one index. A batch has the position after which the next one begins, so an
interrupted copy continues there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from sqlalchemy import select

from holdfast.catalog import items
from holdfast.db import LIMIT, int_param
from holdfast.engine.store import events
from holdfast.events import Cursor
from holdfast.indexes import IndexRows
from holdfast.moving.tables import (
    EVENT_MARKS,
    EVENTS,
    WEBHOOKS,
    apply_overrides,
    batch_rows,
    copied_columns,
    copied_tables,
    count_read_events,
    count_rows,
    counted_tables,
    key_columns,
    select_batch,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sqlalchemy import Table

    from holdfast.clock import Moment
    from holdfast.db import Database
    from holdfast.indexes import IndexTable

VECTORS_PER_BATCH = 500
FILES_PER_BATCH = 100
# Files of deleted items are not copied: their clean-up removes them.
SELECT_BLOBS = (
    select(items.c.id, items.c.blob)
    .where(items.c.id > int_param("after"), items.c.blob.is_not(None), items.c.deleting == 0)
    .order_by(items.c.id)
    .limit(LIMIT)
)


class Part(NamedTuple):
    """A table, or the rows of one index."""

    name: str
    table: Table | None = None
    rows_of: IndexTable | None = None


class RowBatch(NamedTuple):
    rows: Sequence[Sequence[Any]]
    position: Sequence[Any]  # of the last row


class RowSource(Protocol):
    """Something whose rows can be written to a database: another database, or a backup."""

    @property
    def counters(self) -> Mapping[str, int]:
        """The highest id that was ever given out, by table."""
        ...

    def tables(self) -> Sequence[Part]: ...

    def indexes(self) -> Sequence[Part]: ...

    def read(self, part: Part, after: Sequence[Any] | None) -> Iterator[RowBatch]:
        """Yield the batches of a part, after a position."""
        ...

    def count(self, part: Part) -> int: ...


@dataclass(frozen=True, slots=True)
class DatabaseSource:
    """The rows of a database. Without `shared_reading`, each batch is a snapshot of its own."""

    database: Database
    events_since: Moment
    rows: IndexRows = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", IndexRows(self.database))

    @property
    def dialect(self) -> str:
        return self.database.engine.dialect.name

    @property
    def counters(self) -> Mapping[str, int]:
        return read_counters(self.database)

    def tables(self) -> Sequence[Part]:
        return [Part(table.name, table) for table in copied_tables()]

    def indexes(self) -> Sequence[Part]:
        return [Part(str(index), rows_of=index) for index in self.rows.list_tables()]

    def read(self, part: Part, after: Sequence[Any] | None) -> Iterator[RowBatch]:
        if part.table is not None:
            yield from self._read_table(part.table, after)
        elif part.rows_of is not None:
            last = after[0] if after else 0
            while found := self.rows.read(part.rows_of, last, VECTORS_PER_BATCH):
                last = found[-1][0]
                yield RowBatch(found, [last])

    def count(self, part: Part) -> int:
        if part.table is not None:
            return int(self.database.read(count_rows(part.table), **self._filters(part.table))[0][0])
        return self.rows.count(part.rows_of) if part.rows_of is not None else 0

    def list_blobs(self, after: int = 0) -> Iterator[tuple[int, list[str]]]:
        """Yield the names of files in batches, with the number of the last item."""
        while found := self.database.read(SELECT_BLOBS, after=after, limit=FILES_PER_BATCH):
            after = found[-1][0]
            yield after, [blob for _, blob in found]

    def _read_table(self, table: Table, after: Sequence[Any] | None) -> Iterator[RowBatch]:
        places = [copied_columns(table).index(column) for column in key_columns(table, self.dialect)]
        limit = batch_rows(table)
        while True:
            key: dict[str, Any] = (
                {} if after is None else {f"after_{place}": value for place, value in enumerate(after)}
            )
            query = select_batch(table, self.dialect, after=after is not None)
            found = self.database.read(query, limit=limit, **key, **self._filters(table))
            if not found:
                return
            after = [found[-1][place] for place in places]
            rows = apply_overrides(table, found)
            if table.name == WEBHOOKS:
                rows = self._rank_cursors(table, rows)
            elif table.name == EVENT_MARKS:
                rows = [[name, 0, self._count_events(Cursor(xid, id_))] for name, xid, id_ in rows]
            yield RowBatch(rows, after)

    def _filters(self, table: Table) -> dict[str, Any]:
        return {"since": self.events_since} if table.name == EVENTS else {}

    def _rank_cursors(self, table: Table, rows: list[list[Any]]) -> list[list[Any]]:
        """Replace the cursor of each webhook by the number of copied events that it has read."""
        place = [column.name for column in copied_columns(table)].index("cursor")
        for row in rows:
            row[place] = self._count_events(Cursor.parse(row[place]))
        return rows

    def _count_events(self, cursor: Cursor) -> int:
        """Count the copied events up to a position in the log."""
        position: dict[str, Any] = {"id": cursor.id}
        if self.dialect == "postgresql":
            position["xid"] = cursor.xid
        count = self.database.read(count_read_events(events, self.dialect), since=self.events_since, **position)
        return int(count[0][0])


def read_counters(database: Database) -> dict[str, int]:
    """Return the highest id that was ever given out, by table."""
    with database.reading() as tx:
        if database.engine.dialect.name == "sqlite":
            known = {table.name for table in counted_tables()}
            return {name: seq for name, seq in tx.run_sql("SELECT name, seq FROM sqlite_sequence") if name in known}
        found = {
            table.name: tx.run_sql(
                "SELECT pg_sequence_last_value(CAST(pg_get_serial_sequence(%s, 'id') AS regclass))", [table.name]
            )[0][0]
            for table in counted_tables()
        }
    return {name: last for name, last in found.items() if last is not None}
