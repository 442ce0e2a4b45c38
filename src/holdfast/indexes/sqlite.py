"""Rows of the indexes on SQLite: a table for each recipe, and vectors in memory beside it.

A table of its own keeps what one base says from weighing words for another, and goes as a whole when its recipe does.
"""

from __future__ import annotations

import json
import threading
import time
from typing import TYPE_CHECKING

import numpy as np

from holdfast.indexes.base import Found
from holdfast.indexes.fulltext import BODY, HEADINGS, match
from holdfast.indexes.matrix import Rows
from holdfast.indexes.shelving import Tables

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast.content.segmenting import Term
    from holdfast.providers.base import Vector
    from holdfast.stores.database import Database, Transaction

LOADED = 5_000  # vectors read at once
COUNTED_SECONDS = 60.0  # how often rows are counted, to see whether many in memory are gone
DEAD_SHARE = 0.25  # of rows in memory that are gone from the table, above which all are read anew
FEW = 1_000  # chunks in which every word is looked up quickly
REMEMBERED = 20_000  # words whose number of chunks is remembered
FOUND = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
VECTORS = """CREATE TABLE IF NOT EXISTS {table}
    (seq INTEGER PRIMARY KEY AUTOINCREMENT, chunk INTEGER NOT NULL UNIQUE, vector BLOB NOT NULL)"""
TEXTS = """CREATE VIRTUAL TABLE IF NOT EXISTS {table}
    USING fts5(headings, body, tokenize = 'porter unicode61 remove_diacritics 2')"""
MOST_NAMED = 500  # values in one IN (...)


class SqliteVectors:
    """Vectors as bytes, in the order in which they came, so that a copy in memory reads only what is new."""

    def __init__(self, database: Database, prefix: str = "vector") -> None:
        self._database = database
        self._tables = Tables(prefix, FOUND, [VECTORS])
        self._copies: dict[int, _Copy] = {}
        self._mutex = threading.Lock()

    def absent(self, recipe: int, chunks: Sequence[int]) -> list[int]:
        """Return the chunks without a vector."""
        with self._database.reading() as tx:
            if not self._tables.seen(tx, recipe):
                return list(chunks)
            have = _among(tx, f"SELECT chunk FROM {self._tables.name(recipe)} WHERE chunk IN", chunks)
        return [chunk for chunk in chunks if chunk not in have]

    def put(self, tx: Transaction, recipe: int, vectors: Mapping[int, bytes]) -> None:
        """Keep vectors whose chunk has none yet."""
        table = self._tables.make(tx, recipe)
        tx.each(f"INSERT OR IGNORE INTO {table} (chunk, vector) VALUES (?, ?)", list(vectors.items()))

    def length(self, recipe: int) -> int | None:
        """Return how many numbers each vector has; None if there is none yet."""
        with self._database.reading() as tx:
            if not self._tables.seen(tx, recipe):
                return None
            rows = tx.plain(f"SELECT length(vector) FROM {self._tables.name(recipe)} LIMIT 1")
        return rows[0][0] // 4 if rows else None

    def drop(self, recipe: int, chunks: Sequence[int]) -> None:
        """Remove vectors."""

        def work(tx: Transaction) -> None:
            if self._tables.exists(tx, recipe):
                tx.each(f"DELETE FROM {self._tables.name(recipe)} WHERE chunk = ?", [(chunk,) for chunk in chunks])

        self._database.write(work, durable=False)
        with self._mutex:
            if recipe in self._copies:
                self._copies[recipe].rows.discard(chunks)

    def find(self, recipe: int, query: Vector, limit: int, within: Sequence[int] | None) -> list[Found]:
        """Return the nearest, from memory."""
        with self._mutex:
            rows = self._current(recipe)
            return [] if rows is None else [Found(*one) for one in rows.find(query, limit, within)]

    def scores(self, recipe: int, query: Vector, chunks: Sequence[int]) -> tuple[dict[int, float], float]:
        """Return how near the query these chunks are, and how near all are on average."""
        with self._mutex:
            rows = self._current(recipe)
            return ({}, 0.0) if rows is None else (rows.scores(query, chunks), rows.middle(query))

    def vectors(self, recipe: int, chunks: Sequence[int]) -> dict[int, Vector]:
        """Return the vectors of chunks, as far as they are known."""
        with self._mutex:
            rows = self._current(recipe)
            return {} if rows is None else rows.vectors(chunks)

    def scan(self, recipe: int, after: int, limit: int) -> list[int]:
        """Name the chunks that have a vector."""
        with self._database.reading() as tx:
            if not self._tables.seen(tx, recipe):
                return []
            table = self._tables.name(recipe)
            rows = tx.plain(f"SELECT chunk FROM {table} WHERE chunk > ? ORDER BY chunk LIMIT ?", [after, limit])
        return [chunk for (chunk,) in rows]

    def tend(self, recipe: int) -> None:
        """Nothing to do: what is in memory is quick."""

    def _current(self, recipe: int) -> Rows | None:
        """Bring the copy of a recipe up to date, and return it."""
        with self._database.reading() as tx:
            if not self._tables.seen(tx, recipe):
                return None
            table = self._tables.name(recipe)
            copy = self._copies.get(recipe)
            if copy is not None and copy.worn(tx, table):
                copy = None
            if copy is None:
                first = tx.plain(f"SELECT vector FROM {table} LIMIT 1")
                if not first:
                    return None
                copy = self._copies[recipe] = _Copy(len(first[0][0]) // 4)
            copy.read_on(tx, table)
            return copy.rows


class SqliteTexts:
    """Words of chunks in FTS5; its row ids are the chunks."""

    def __init__(self, database: Database, prefix: str = "fulltext") -> None:
        self._database = database
        self._tables = Tables(prefix, FOUND, [TEXTS])
        self._counts: dict[tuple[int, Term | None], tuple[int, float]] = {}

    def absent(self, recipe: int, chunks: Sequence[int]) -> list[int]:
        """Return the chunks without a row."""
        with self._database.reading() as tx:
            return self._absent(tx, recipe, chunks)

    def put(self, tx: Transaction, recipe: int, texts: Mapping[int, tuple[str, str]]) -> None:
        """Keep headings and bodies whose chunk has none yet."""
        table = self._tables.make(tx, recipe)
        new = self._absent(tx, recipe, list(texts))
        tx.each(f"INSERT INTO {table} (rowid, headings, body) VALUES (?, ?, ?)", [(one, *texts[one]) for one in new])

    def drop(self, recipe: int, chunks: Sequence[int]) -> None:
        """Remove rows."""

        def work(tx: Transaction) -> None:
            if self._tables.exists(tx, recipe):
                tx.each(f"DELETE FROM {self._tables.name(recipe)} WHERE rowid = ?", [(chunk,) for chunk in chunks])

        self._database.write(work, durable=False)

    def find(self, recipe: int, query: Sequence[Term], limit: int, within: Sequence[int] | None) -> list[Found]:
        """Return the chunks with the best BM25 for any of the words."""
        with self._database.reading() as tx:
            if not query or not self._tables.seen(tx, recipe):
                return []
            table = self._tables.name(recipe)
            query = self._telling(tx, recipe, query)
            chosen = "" if within is None else "AND rowid IN (SELECT value FROM json_each(?))"
            sql = (
                f"SELECT rowid, -bm25({table}, ?, ?) AS score FROM {table} WHERE {table} MATCH ? {chosen} "
                "ORDER BY score DESC, rowid LIMIT ?"
            )
            values = [HEADINGS, BODY, match(query), *([] if within is None else [json.dumps(list(within))]), limit]
            return [Found(*row) for row in tx.plain(sql, values)]

    def phrase(self, recipe: int, words: Sequence[str], limit: int) -> list[int]:
        """Return chunks in which these words follow each other."""
        with self._database.reading() as tx:
            if not self._tables.seen(tx, recipe):
                return []
            table = self._tables.name(recipe)
            sql = f"SELECT rowid FROM {table} WHERE {table} MATCH ? LIMIT ?"
            return [chunk for (chunk,) in tx.plain(sql, [f'"{" ".join(words)}"', limit])]

    def scan(self, recipe: int, after: int, limit: int) -> list[int]:
        """Name the chunks that have a row."""
        with self._database.reading() as tx:
            if not self._tables.seen(tx, recipe):
                return []
            table = self._tables.name(recipe)
            rows = tx.plain(f"SELECT rowid FROM {table} WHERE rowid > ? ORDER BY rowid LIMIT ?", [after, limit])
        return [chunk for (chunk,) in rows]

    def _telling(self, tx: Transaction, recipe: int, query: Sequence[Term]) -> Sequence[Term]:
        """Leave out the words that more than half of the chunks say: they weigh nothing, and cost most to look up."""
        rows = self._count(tx, recipe, None)
        if rows < FEW:
            return query
        return [term for term in query if 2 * self._count(tx, recipe, term) <= rows] or query

    def _count(self, tx: Transaction, recipe: int, term: Term | None) -> int:
        """Return how many chunks say a word, or how many there are, as of a moment ago."""
        known = self._counts.get((recipe, term))
        if known is None or time.monotonic() > known[1]:
            table = self._tables.name(recipe)
            if term is None:
                ((count,),) = tx.plain(f"SELECT count(*) FROM {table}_docsize")
            else:
                ((count,),) = tx.plain(f"SELECT count(*) FROM {table} WHERE {table} MATCH ?", [match([term])])
            if len(self._counts) > REMEMBERED:
                self._counts.clear()
            known = self._counts[recipe, term] = (count, time.monotonic() + COUNTED_SECONDS)
        return known[0]

    def _absent(self, tx: Transaction, recipe: int, chunks: Sequence[int]) -> list[int]:
        if not self._tables.exists(tx, recipe):
            return list(chunks)
        have = _among(tx, f"SELECT rowid FROM {self._tables.name(recipe)} WHERE rowid IN", chunks)
        return [chunk for chunk in chunks if chunk not in have]


class _Copy:
    """The vectors of a recipe in memory, and how far they were read."""

    def __init__(self, dimension: int) -> None:
        self.rows = Rows(dimension)
        self._seen = 0
        self._counted = time.monotonic()

    def read_on(self, tx: Transaction, table: str) -> None:
        """Read what came since the last time."""
        sql = f"SELECT seq, chunk, vector FROM {table} WHERE seq > ? ORDER BY seq LIMIT ?"
        while found := tx.plain(sql, [self._seen, LOADED]):
            vectors = np.frombuffer(b"".join(row[2] for row in found), dtype=np.float32)
            self.rows.add([row[1] for row in found], vectors.reshape(len(found), self.rows.dimension))
            self._seen = found[-1][0]

    def worn(self, tx: Transaction, table: str) -> bool:
        """Tell, now and then, whether too much in memory is gone from the table."""
        if time.monotonic() < self._counted + COUNTED_SECONDS:
            return False
        self._counted = time.monotonic()
        ((count,),) = tx.plain(f"SELECT count(*) FROM {table} WHERE seq <= ?", [self._seen])
        return bool(len(self.rows) * (1 - DEAD_SHARE) > count)


def _among(tx: Transaction, sql: str, chunks: Sequence[int]) -> set[int]:
    """Return those of the chunks that a statement finds, some hundred at a time."""
    found: set[int] = set()
    for first in range(0, len(chunks), MOST_NAMED):
        named = chunks[first : first + MOST_NAMED]
        found |= {chunk for (chunk,) in tx.plain(f"{sql} ({', '.join('?' * len(named))})", list(named))}
    return found
