"""The index `graph`: which texts define a name, and which ones name it.

Without a language model names are what rules can see, and two texts are tied because one names what the other
defines; nothing is claimed about how they are related. A chunk's rows come from this chunk alone, so they do not
depend on what else is in the base, and go with it. Names are joined by their keys when somebody asks.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

from holdfast.content.names import Source, Titles, bare_words, defined, names
from holdfast.indexes import graph_statements as sql
from holdfast.indexes.base import Found

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from holdfast.errors import WorkError
    from holdfast.indexes.base import Tools, Work
    from holdfast.library.builds import Piece
    from holdfast.library.catalogue import Base, Recipe
    from holdfast.stores.database import Transaction

VERSION = 1  # of the rules
PORTION = 50  # chunks written in one transaction
LOADED = 10_000  # names read at once
COUNTED_SECONDS = 60.0  # how often it is asked whether names in memory are gone
NAMED = "named"  # the role of a name that a chunk mentions


class GraphIndex:
    """Keeps the names of chunks."""

    kind = "graph"

    def __init__(self, tools: Tools) -> None:
        self._database = tools.database
        self._copies: dict[int, _Copy] = {}
        self._mutex = threading.Lock()

    def spec(self, base: Base) -> Mapping[str, Any]:  # noqa: ARG002 - the same for all bases
        """Return the version of the rules."""
        return {"rules": VERSION}

    def absent(self, recipe: Recipe, chunks: Sequence[int]) -> list[int]:
        """Return the chunks whose names are not written."""
        with self._database.reading() as tx:
            have = {chunk for (chunk,) in tx.run(sql.KNOWN, [[chunk] for chunk in chunks], recipe=recipe.id)}
        return [chunk for chunk in chunks if chunk not in have]

    def prepare(self, works: Sequence[Work]) -> None:
        """Nothing is better done together."""

    def fill(self, work: Work) -> Mapping[int, WorkError]:
        """Write the names of all pieces."""
        for first in range(0, len(work.pieces), PORTION):
            portion = work.pieces[first : first + PORTION]
            work.task.checkpoint(stage="extracting", done=first, total=len(work.pieces))
            rows = [row for piece in portion for row in _rows(work, piece)]
            with work.guarded() as tx:
                self._put(tx, work.recipe.id, [piece.chunk for piece in portion], rows)
        return {}

    def drop(self, recipe: Recipe, chunks: Sequence[int]) -> None:
        """Remove what chunks name and define."""
        rows = [[chunk] for chunk in chunks]

        def work(tx: Transaction) -> None:
            for statement in (sql.DROP_NAMES, sql.DROP_RELATIONS, sql.DROP_KNOWN):
                tx.run(statement, rows, recipe=recipe.id)

        self._database.write(work, durable=False)
        with self._mutex:
            self._copies.pop(recipe.id, None)

    def find(self, recipe: Recipe, query: str, limit: int, within: Sequence[int] | None = None) -> list[Found]:
        """Return the chunks that define the names of the query, and then those that mention them."""
        keys = list(dict.fromkeys([*self.titles(recipe).find(bare_words(query)), *(one.key for one in names(query))]))
        allowed = None if within is None else set(within)
        with self._database.reading() as tx:
            rows = tx.run(sql.BY_KEY, [[key] for key in keys], recipe=recipe.id)
        scores: dict[int, float] = {}
        for _, chunk, role in rows:
            if allowed is None or chunk in allowed:
                scores[chunk] = scores.get(chunk, 0.0) + (0.5 if role == NAMED else 1.0)
        best = sorted(scores.items(), key=lambda one: (-one[1], one[0]))
        return [Found(chunk, score) for chunk, score in best[:limit]]

    def scan(self, recipe: Recipe, after: int, limit: int) -> list[int]:
        """Name the chunks whose names are written."""
        with self._database.reading() as tx:
            return [chunk for (chunk,) in tx.run(sql.SCAN, recipe=recipe.id, after=after, limit=limit)]

    def close(self) -> None:
        """Nothing was opened."""

    # -- for whoever walks

    def titles(self, recipe: Recipe) -> Titles:
        """Return the titles and headings of a base, as they are now."""
        with self._mutex, self._database.reading() as tx:
            copy = self._copies.get(recipe.id)
            if copy is None or copy.worn(tx, recipe.id):
                copy = self._copies[recipe.id] = _Copy()
            copy.read_on(tx, recipe.id)
            return copy.titles

    def named(self, recipe: Recipe, chunks: Sequence[int]) -> dict[int, list[tuple[str, str]]]:
        """Return what chunks name and define: keys, each with what the chunk does with it."""
        found: dict[int, list[tuple[str, str]]] = {chunk: [] for chunk in chunks}
        with self._database.reading() as tx:
            for chunk, key, role in tx.run(sql.OF_CHUNKS, [[chunk] for chunk in chunks], recipe=recipe.id):
                found[chunk].append((key, role))
        return found

    def naming(self, recipe: Recipe, keys: Iterable[str]) -> dict[str, dict[str, list[int]]]:
        """Return who names and who defines these keys, by what they do with it."""
        found: dict[str, dict[str, list[int]]] = {}
        with self._database.reading() as tx:
            for key, chunk, role in tx.run(sql.BY_KEY, [[key] for key in keys], recipe=recipe.id):
                found.setdefault(key, {}).setdefault(role, []).append(chunk)
        return found

    @staticmethod
    def _put(tx: Transaction, recipe: int, chunks: Sequence[int], rows: Sequence[Sequence[Any]]) -> None:
        """Write the names of chunks that have none yet."""
        have = {chunk for (chunk,) in tx.run(sql.KNOWN, [[chunk] for chunk in chunks], recipe=recipe)}
        tx.run(sql.MARK_KNOWN, [[recipe, chunk] for chunk in chunks if chunk not in have])
        tx.run(sql.PUT_NAMES, [row for row in rows if row[1] not in have])


class _Copy:
    """The titles of a recipe in memory, and how far they were read."""

    def __init__(self) -> None:
        self.titles = Titles()
        self._seen = 0
        self._rows = 0
        self._counted = time.monotonic()

    def read_on(self, tx: Transaction, recipe: int) -> None:
        """Read what came since the last time."""
        while rows := tx.run(sql.DEFINITIONS, recipe=recipe, after=self._seen, limit=LOADED):
            for id_, chunk, key, role in rows:
                self._seen = id_
                if role == Source.TITLE or not key.isascii():
                    self.titles.add(key, chunk)
            self._rows += len(rows)

    def worn(self, tx: Transaction, recipe: int) -> bool:
        """Tell, now and then, whether titles in memory are gone."""
        if time.monotonic() < self._counted + COUNTED_SECONDS:
            return False
        self._counted = time.monotonic()
        ((count,),) = tx.run(sql.COUNT_DEFINITIONS, recipe=recipe, until=self._seen)
        return bool(count < self._rows)


def _rows(work: Work, piece: Piece) -> list[list[Any]]:
    """Return what a chunk defines and names, ready to be written."""
    title = piece.headings[0] if piece.headings else ""
    rows = [[one.key, str(one.source), one.text] for one in defined(piece.text, title=title, first=piece.opening)]
    known = {row[0] for row in rows}
    rows += [[one.key, NAMED, one.text] for one in names(piece.text) if one.key not in known]
    return [[work.recipe.id, piece.chunk, *row] for row in rows]
