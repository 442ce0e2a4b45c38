"""Row stores with one table for each recipe, created with its first row; the same idea on both databases."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.db import Database, Transaction


class RecipeTables:
    """Names and creates the tables; `found` is the query for a table by name, `create` are templates with `{table}`."""

    def __init__(self, prefix: str, found: str, create: Sequence[str]) -> None:
        self._prefix = prefix
        self._select_table = found
        self._create_statements = create
        self._known: set[int] = set()

    def name(self, recipe: int) -> str:
        return f"{self._prefix}_{int(recipe)}"

    def exists(self, tx: Transaction, recipe: int) -> bool:
        return recipe in self._known or bool(tx.run_sql(self._select_table, [self.name(recipe)]))

    def exists_committed(self, tx: Transaction, recipe: int) -> bool:
        """Return the same in a read transaction, and remember it: a reader sees only committed tables."""
        exists = self.exists(tx, recipe)
        if exists:
            self._known.add(recipe)
        return exists  # not `recipe in self._known`: the snapshot may be older than what another reader has added

    def drop_table(self, database: Database, recipe: int) -> None:
        """Drop the table of a recipe. Other processes may remember it, so nothing may search by this recipe again."""
        self._known.discard(recipe)
        database.write(lambda tx: tx.run_sql(f"DROP TABLE IF EXISTS {self.name(recipe)}"), durable=False)

    def ensure_table(self, tx: Transaction, recipe: int, **more: object) -> str:
        """Create the table of a recipe if it is new; return its name."""
        name = self.name(recipe)
        if not self.exists(tx, recipe):
            for statement in self._create_statements:
                tx.run_sql(statement.format(table=name, **more))
        return name


class RowStore(Protocol):
    """Keeps rows by recipe and chunk."""

    def absent(self, recipe: int, chunks: Sequence[int]) -> list[int]:
        """Return the chunks without a row."""
        ...

    def drop(self, recipe: int, chunks: Sequence[int]) -> None:
        """Remove the rows of these chunks."""
        ...

    def scan(self, recipe: int, after: int, limit: int) -> list[int]:
        """Return the chunks with a row, in ascending order, after the chunk `after`."""
        ...

    def forget(self, recipe: int) -> None:
        """Remove the table of a recipe."""
        ...


class TableRowStore(ABC):
    """A `RowStore` on recipe tables. Subclasses know the dialect."""

    key: ClassVar[str] = "chunk"  # the column with the chunk
    placeholder: ClassVar[str]

    def __init__(self, database: Database, tables: RecipeTables) -> None:
        self._database = database
        self._tables = tables

    @abstractmethod
    def _select_existing(self, tx: Transaction, recipe: int, chunks: Sequence[int]) -> set[int]: ...

    @abstractmethod
    def _delete(self, tx: Transaction, recipe: int, chunks: Sequence[int]) -> None: ...

    def absent(self, recipe: int, chunks: Sequence[int]) -> list[int]:
        with self._database.reading() as tx:
            if not self._tables.exists_committed(tx, recipe):
                return list(chunks)
            have = self._select_existing(tx, recipe, chunks)
        return [chunk for chunk in chunks if chunk not in have]

    def drop(self, recipe: int, chunks: Sequence[int]) -> None:
        def work(tx: Transaction) -> None:
            if self._tables.exists(tx, recipe):
                self._delete(tx, recipe, chunks)

        self._database.write(work, durable=False)

    def scan(self, recipe: int, after: int, limit: int) -> list[int]:
        with self._database.reading() as tx:
            if not self._tables.exists_committed(tx, recipe):
                return []
            key, value = self.key, self.placeholder
            sql = f"SELECT {key} FROM {self._tables.name(recipe)} WHERE {key} > {value} ORDER BY {key} LIMIT {value}"
            return [chunk for (chunk,) in tx.run_sql(sql, [after, limit])]

    def count(self, recipe: int) -> int:
        with self._database.reading() as tx:
            if not self._tables.exists_committed(tx, recipe):
                return 0
            ((rows,),) = tx.run_sql(f"SELECT count(*) FROM {self._tables.name(recipe)}")
            return int(rows)

    def forget(self, recipe: int) -> None:
        self._tables.drop_table(self._database, recipe)
