"""Marks for chunks whose rows are written, for an index whose chunks may have no rows at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import and_, literal_column, select
from sqlalchemy.dialects.postgresql import insert as upsert

from holdfast.db import LIMIT, batch, int_param

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Table

    from holdfast.db import Transaction


class WrittenChunks:
    """The marks in one table with the columns `recipe` and `chunk_id`."""

    def __init__(self, table: Table) -> None:
        chunk, is_recipe = table.c.chunk_id, table.c.recipe == int_param("recipe")
        row = batch(chunk_id=int)
        self._select = select(chunk).select_from(table.join(row, and_(is_recipe, chunk == row.c.chunk_id)))
        new = batch(recipe=int, chunk_id=int)
        self._insert = (
            upsert(table)
            .from_select([*new.c.keys()], select(*new.c).where(literal_column("true")))
            .on_conflict_do_nothing()
            .returning(chunk)
        )
        self._scan = select(chunk).where(is_recipe, chunk > int_param("after")).order_by(chunk).limit(LIMIT)

    def find(self, tx: Transaction, recipe: int, chunks: Sequence[int]) -> set[int]:
        """Return the chunks that are marked."""
        return {chunk for (chunk,) in tx.run(self._select, [[chunk] for chunk in chunks], recipe=recipe)}

    def mark(self, tx: Transaction, recipe: int, chunks: Sequence[int]) -> set[int]:
        """Mark chunks; return those that had no mark. Only the transaction that marks a chunk writes its rows."""
        return {chunk for (chunk,) in tx.run(self._insert, [[recipe, chunk] for chunk in chunks])}

    def scan(self, tx: Transaction, recipe: int, after: int, limit: int) -> list[int]:
        """Return marked chunks in ascending order, after the chunk `after`."""
        return [chunk for (chunk,) in tx.run(self._scan, recipe=recipe, after=after, limit=limit)]
