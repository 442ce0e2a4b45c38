"""The names that chunks define, in memory: a copy of the table for searching.

Most names that a text mentions are defined nowhere. With this copy the walk reads rows only of names that lead
somewhere. A row costs about `BYTES_PER_ROW`.
"""

from __future__ import annotations

import time
from array import array
from typing import TYPE_CHECKING

from holdfast.content import DefinitionOrigin, TitleMatcher, is_found_by_words
from holdfast.indexes.graph import statements as sql

if TYPE_CHECKING:
    from holdfast.db import Transaction

LOAD_BATCH = 10_000  # names per query
BYTES_PER_ROW = 500
COUNT_CACHE_SECONDS = 60.0  # between two checks for rows that the copy lacks, or that are gone


class Definitions:
    """The definitions of one recipe, and how far the table was read."""

    def __init__(self) -> None:
        self.titles = TitleMatcher()
        self._chunks: dict[str, dict[str, array[int]]] = {role: {} for role in DefinitionOrigin}
        self._seen = 0
        self._rows = 0
        self._counted = time.monotonic()

    @property
    def bytes(self) -> int:
        """The memory of this copy, about."""
        return BYTES_PER_ROW * self._rows

    def find(self, key: str, role: str) -> array[int]:
        """Return the chunks that define a name in this role."""
        return self._chunks[role].get(key) or array("q")

    def find_all(self, key: str) -> list[int]:
        """Return the chunks that define a name, in ascending order."""
        return sorted({chunk for chunks in self._chunks.values() for chunk in chunks.get(key, ())})

    def count(self, key: str) -> int:
        """Return the number of definitions of a name."""
        return sum(len(chunks.get(key, ())) for chunks in self._chunks.values())

    def load_new(self, tx: Transaction, recipe: int) -> None:
        while rows := tx.run(sql.SELECT_DEFINITIONS, recipe=recipe, after=self._seen, limit=LOAD_BATCH):
            for id_, chunk, key, role in rows:
                self._seen = id_
                self._chunks[role].setdefault(key, array("q")).append(chunk)
                if is_found_by_words(key, role):
                    self.titles.add(key)
            self._rows += len(rows)

    def is_stale(self, tx: Transaction, recipe: int) -> bool:
        """Return whether rows are gone from the table, or were committed after later ones; checked once a minute."""
        if time.monotonic() < self._counted + COUNT_CACHE_SECONDS:
            return False
        self._counted = time.monotonic()
        ((count,),) = tx.run(sql.COUNT_DEFINITIONS, recipe=recipe, until=self._seen)
        return bool(count != self._rows)
