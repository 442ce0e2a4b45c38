"""An index outside our database, as a third-party package could provide it, with its rows in its own SQLite file.

It knows nothing about our slots, fences or transactions. It identifies a row by chunk and recipe, and writes the row
only if it is absent. An external store has to guarantee no more than that.
"""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

from holdfast.documents.add import DocumentAdder
from holdfast.documents.bulk import BulkOperations
from holdfast.documents.operations import DocumentOperations
from holdfast.indexes.base import Found
from holdfast.indexes.registry import IndexRegistry
from holdfast.search.search import Searcher
from tests.support.timeouts import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from holdfast.catalog.repository import Base, Recipe
    from holdfast.errors import WorkError
    from holdfast.indexes.base import Work
    from tests.support.harness import Rig

WORD = re.compile(r"\w+")


def nothing() -> None:
    """Do nothing: the default for `before_write` and `before_prepare`."""


class OutsideIndex:
    """Ranks chunks by the number of query words they contain."""

    kind = "outside"

    def __init__(self, path: Path) -> None:
        self._path = path
        self.version = 1
        self.before_write: Callable[[], None] = nothing  # lets a test act between the check and the write
        self.before_prepare: Callable[[], None] = nothing
        self.closed = False
        with closing(self._open()) as store, store:
            store.execute("CREATE TABLE IF NOT EXISTS rows (recipe, chunk, said, PRIMARY KEY (recipe, chunk))")

    def spec(self, base: Base) -> Mapping[str, Any]:  # noqa: ARG002 - the same for all bases
        return {"words": self.version}

    def absent(self, recipe: Recipe, chunks: Sequence[int]) -> list[int]:
        have = {chunk for (chunk,) in self._run("SELECT chunk FROM rows WHERE recipe = ?", recipe.id)}
        return [chunk for chunk in chunks if chunk not in have]

    def prepare(self, works: Sequence[Work]) -> None:  # noqa: ARG002 - there is nothing to prepare
        self.before_prepare()

    def fill(self, work: Work) -> Mapping[int, WorkError]:
        for piece in work.pieces:
            work.task.checkpoint(stage="writing outside")
            self.before_write()  # the store does not see what happens here
            self._run("INSERT OR IGNORE INTO rows VALUES (?, ?, ?)", work.recipe.id, piece.chunk, piece.whole)
        return {}

    def drop(self, recipe: Recipe, chunks: Sequence[int]) -> None:
        for chunk in chunks:
            self._run("DELETE FROM rows WHERE recipe = ? AND chunk = ?", recipe.id, chunk)

    def find(self, recipe: Recipe, query: str, limit: int, within: Sequence[int] | None = None) -> list[Found]:
        asked = set(WORD.findall(query.lower()))
        scores = {
            chunk: float(len(asked & set(WORD.findall(said.lower()))))
            for chunk, said in self._run("SELECT chunk, said FROM rows WHERE recipe = ?", recipe.id)
            if within is None or chunk in within
        }
        best = sorted((-score, chunk) for chunk, score in scores.items() if score)
        return [Found(chunk, -score) for score, chunk in best[:limit]]

    def scan(self, recipe: Recipe, after: int, limit: int) -> list[int]:
        found = "SELECT chunk FROM rows WHERE recipe = ? AND chunk > ? ORDER BY chunk LIMIT ?"
        return [chunk for (chunk,) in self._run(found, recipe.id, after, limit)]

    def forget(self, recipe: Recipe) -> None:
        """Remove all rows of a recipe."""
        self._run("DELETE FROM rows WHERE recipe = ?", recipe.id)

    def tend(self, recipe: Recipe) -> None:
        """Do nothing: this index needs no maintenance."""

    def close(self) -> None:
        self.closed = True

    def _open(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path, timeout=PATIENCE_SECONDS)

    def _run(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        with closing(self._open()) as store, store:
            return store.execute(sql, values).fetchall()


def install(rig: Rig, path: Path) -> OutsideIndex:
    """Add the index to a rig in the way plug-ins are added."""
    index = OutsideIndex(path)
    library = rig.library
    library.indexes = IndexRegistry(library.indexes._tools, library.catalog, more={index.kind: index})
    library.adder = DocumentAdder(rig.store, library.catalog, library.file_records, library.indexes)
    library.operations = DocumentOperations(rig.store, library.adder)
    library.bulk_operations = BulkOperations(rig.store, library.operations, library.remover)
    library.searcher = Searcher(rig.store.database, library.indexes)
    rig.indexers = library.indexers()
    rig.worker = rig.hire("worker")
    return index
