"""The index `graph`: which chunks define a name, which mention it, and what they say about it.

Without a language model, rules find the names. Two chunks are linked because one mentions a name that the other
defines; the index claims nothing about their relation. With a model, its entities and relations are joined to these
names by key. The rows of a chunk come from this chunk alone, so they do not depend on the rest of the base and are
removed with it. Descriptions that a model has merged from many chunks (`indexes.graph.merging`) are deleted in the
transaction that drops the first of these chunks.
"""

from __future__ import annotations

import json
import threading
from contextlib import closing
from typing import TYPE_CHECKING, Any

from holdfast.catalog import ChunkLists
from holdfast.content import NAMES_VERSION, find_names, split_key_words
from holdfast.indexes.base import Found
from holdfast.indexes.graph import statements as sql
from holdfast.indexes.graph.definitions import Definitions
from holdfast.indexes.graph.extraction import RECIPE, Extraction, extract
from holdfast.indexes.graph.rows import NAMED_ROLE, build_model_rows, build_rule_rows
from holdfast.indexes.graph.tables import graph_chunks
from holdfast.indexes.llm_calls import ChunkLlmCalls
from holdfast.indexes.store_index import IndexDefaults
from holdfast.indexes.written_chunks import WrittenChunks

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from holdfast.catalog import Base, ChunkText, Recipe
    from holdfast.db import Transaction
    from holdfast.errors import WorkError
    from holdfast.indexes.base import Tools, Work
    from holdfast.llm import Provider, Usage

WRITTEN = WrittenChunks(graph_chunks)
RULE_WRITE_BATCH = 50  # chunks per transaction
MODEL_WRITE_BATCH = 10  # the same with a model, which finds more rows per chunk
MERGING_OWNER = "graph"  # owner of the slot `merging` of a base; owners that are documents are numbers
INSERT_LOST_SUBJECTS = (sql.NOTE_LOST_ENTITIES, sql.NOTE_LOST_RELATIONS)
DELETE_CHUNK_ROWS = (sql.DROP_NAMES, sql.DROP_RELATIONS, sql.DELETE_WRITTEN_CHUNKS)
DELETE_OBSOLETE_CHANGES = (
    sql.DELETE_CHANGES_OF_UNNAMED,
    sql.DELETE_CHANGES_OF_UNRELATED,
)  # of subjects that no chunk mentions any more


class GraphIndex(IndexDefaults):
    """Stores the names in chunks, and what a language model finds in them."""

    kind = "graph"

    def __init__(self, tools: Tools) -> None:
        self._database = tools.database
        self._tools = tools
        self._llm_calls = ChunkLlmCalls(tools.speaker, tools.memos, kind="extraction", recipe=RECIPE, make=_ask_model)
        self._definitions: dict[int, Definitions] = {}
        self._mutex = threading.Lock()

    def spec(self, base: Base) -> Mapping[str, Any]:
        speaker = self._tools.speaker_of(base)
        if speaker.chat_model is None:
            return {"rules": NAMES_VERSION}
        return {"rules": NAMES_VERSION, "model": speaker.chat_model, "version": speaker.version, "extraction": RECIPE}

    def absent(self, recipe: Recipe, chunks: Sequence[int]) -> list[int]:
        with self._database.reading() as tx:
            have = WRITTEN.find(tx, recipe.id, chunks)
        return [chunk for chunk in chunks if chunk not in have]

    def fill(self, work: Work) -> Mapping[int, WorkError]:
        """Write the names of all pieces; with a model, only of pieces with an answer, so a retry repeats the others."""
        if self.uses_model(work.recipe):
            return self._fill_with_model(work)
        for first in range(0, len(work.pieces), RULE_WRITE_BATCH):
            portion = work.pieces[first : first + RULE_WRITE_BATCH]
            work.task.checkpoint(stage="extracting", done=first, total=len(work.pieces))
            rows = [row for piece in portion for row in build_rule_rows(work.recipe.id, piece)]
            with work.guarded() as tx:
                new = WRITTEN.mark(tx, work.recipe.id, [piece.chunk for piece in portion])
                tx.run(sql.PUT_NAMES, [row for row in rows if row[1] in new])
        return {}

    def record_reuse(self, work: Work, chunks: Sequence[int]) -> None:
        """Record on the ledger what the model's answers about these chunks cost."""
        if self.uses_model(work.recipe):
            pieces = ChunkLists(self._database).read_texts(chunks)
            self._llm_calls.record_reuse(work.base, work.task.ticket, pieces)

    def drop(self, recipe: Recipe, chunks: Sequence[int]) -> None:
        """Remove the rows of chunks, and every merged description made from them."""
        rows = [[chunk] for chunk in chunks]

        def work(tx: Transaction) -> None:
            with_model = self.uses_model(recipe)
            if with_model:
                # A merge holds this lock when it checks its sources: it has written already, or will see the drop.
                tx.lock_owners(
                    [owner for (owner,) in tx.run(sql.SELECT_MERGING_OWNER, recipe=recipe.id, owner=MERGING_OWNER)]
                )
                delete_merged(tx, recipe.id, tx.run(sql.SELECT_SUBJECTS_MERGED_FROM, rows, recipe=recipe.id))
            for statement in (
                *(INSERT_LOST_SUBJECTS if with_model else ()),
                *DELETE_CHUNK_ROWS,
                *(DELETE_OBSOLETE_CHANGES if with_model else ()),
            ):
                tx.run(statement, rows, recipe=recipe.id)

        self._database.write(work, durable=False)
        with self._mutex:
            self._definitions.pop(recipe.id, None)

    def find(self, recipe: Recipe, query: str, limit: int, within: Sequence[int] | None = None) -> list[Found]:
        """Return the chunks that define names of the query, then those that mention them."""
        keys = list(
            dict.fromkeys(
                [
                    *self.load_definitions(recipe).titles.find(split_key_words(query)),
                    *(name.key for name in find_names(query)),
                ]
            )
        )
        allowed = None if within is None else set(within)
        with self._database.reading() as tx:
            rows = tx.run(sql.SELECT_CHUNKS_BY_KEY, [[key] for key in keys], recipe=recipe.id)
        scores: dict[int, float] = {}
        for _, chunk, role in rows:
            if allowed is None or chunk in allowed:
                scores[chunk] = scores.get(chunk, 0.0) + (0.5 if role == NAMED_ROLE else 1.0)
        best = sorted(scores.items(), key=lambda hit: (-hit[1], hit[0]))
        return [Found(chunk, score) for chunk, score in best[:limit]]

    def scan(self, recipe: Recipe, after: int, limit: int) -> list[int]:
        with self._database.reading() as tx:
            return WRITTEN.scan(tx, recipe.id, after, limit)

    def forget(self, recipe: Recipe) -> None:
        """Remove merged descriptions and recorded changes of a recipe."""
        self._database.write(lambda tx: delete_merged_of_recipe(tx, recipe.id), durable=False)

    def load_definitions(self, recipe: Recipe) -> Definitions:
        """Return the current titles, headings and opening names of a base."""
        with self._mutex, self._database.reading() as tx:
            copy = self._definitions.get(recipe.id)
            if copy is None or copy.is_stale(tx, recipe.id):
                copy = self._definitions[recipe.id] = Definitions()
            copy.load_new(tx, recipe.id)
            self._tools.search_memory.use(
                (self.kind, recipe.id), copy.bytes, lambda: self._definitions.pop(recipe.id, None)
            )
            return copy

    def read_roles(self, recipe: Recipe, chunks: Sequence[int]) -> dict[int, list[tuple[str, str]]]:
        """Return the names in each chunk as (key, role)."""
        found: dict[int, list[tuple[str, str]]] = {chunk: [] for chunk in chunks}
        with self._database.reading() as tx:
            for chunk, key, role in tx.run(sql.SELECT_NAMES_OF_CHUNKS, [[chunk] for chunk in chunks], recipe=recipe.id):
                found[chunk].append((key, role))
        return found

    def count_rows(self, recipe: Recipe, keys: Iterable[str]) -> dict[str, int]:
        """Return how many chunks mention or define each name."""
        with self._database.reading() as tx:
            return dict(tx.run(sql.COUNT_ROWS, [[key] for key in keys], recipe=recipe.id))

    def find_mentions(self, recipe: Recipe, keys: Iterable[str]) -> dict[str, list[int]]:
        """Return the chunks that mention each name; the caller has checked that they are few."""
        found: dict[str, list[int]] = {}
        with self._database.reading() as tx:
            for key, chunk, role in tx.run(sql.SELECT_CHUNKS_BY_KEY, [[key] for key in keys], recipe=recipe.id):
                if role == NAMED_ROLE:
                    found.setdefault(key, []).append(chunk)
        return found

    def uses_model(self, recipe: Recipe) -> bool:
        """Return whether a language model has read the chunks; only then are there relations."""
        return "model" in json.loads(recipe.spec)

    def read_relation_ends(self, recipe: Recipe, chunks: Sequence[int]) -> dict[int, list[str]]:
        """Return the keys of both ends of the relations in each chunk."""
        found: dict[int, list[str]] = {chunk: [] for chunk in chunks}
        with self._database.reading() as tx:
            for chunk, *ends in tx.run(sql.SELECT_RELATION_ENDS, [[chunk] for chunk in chunks], recipe=recipe.id):
                found[chunk] += ends
        return found

    def find_stating_chunks(self, recipe: Recipe, keys: Iterable[str]) -> dict[str, list[int]]:
        """Return the chunks with a relation of each key."""
        rows = [[key] for key in dict.fromkeys(keys)]
        found: dict[str, set[int]] = {}
        with self._database.reading() as tx:
            for statement in (sql.SELECT_CHUNKS_BY_SOURCE, sql.SELECT_CHUNKS_BY_TARGET):
                for key, chunk in tx.run(statement, rows, recipe=recipe.id):
                    found.setdefault(key, set()).add(chunk)
        return {key: sorted(chunks) for key, chunks in found.items()}

    def _fill_with_model(self, work: Work) -> Mapping[int, WorkError]:
        """Ask the model about each piece and write its answers; return the pieces without a usable answer."""
        total = len(work.pieces)
        pieces = {piece.chunk: piece for piece in work.pieces}
        refused: dict[int, WorkError] = {}
        found: list[tuple[ChunkText, Extraction]] = []

        def go_on(done: int) -> None:
            work.task.checkpoint(stage="extracting", done=done, total=total)

        go_on(0)
        with closing(self._llm_calls.ask(work.base, work.task.ticket, work.pieces, go_on)) as parts:
            for part in parts:
                refused |= part.refused
                found += [
                    (pieces[chunk], Extraction.from_json(answer.decode())) for chunk, answer in part.answers.items()
                ]
                while len(found) >= MODEL_WRITE_BATCH:
                    self._write_extractions(work, found[:MODEL_WRITE_BATCH])
                    del found[:MODEL_WRITE_BATCH]
        self._write_extractions(work, found)
        return refused

    @staticmethod
    def _write_extractions(work: Work, found: Sequence[tuple[ChunkText, Extraction]]) -> None:
        """Write the extractions of chunks without rows, and record the subjects that changed."""
        made = {piece.chunk: build_model_rows(work.recipe.id, piece, extraction) for piece, extraction in found}
        if not made:
            return
        with work.guarded() as tx:
            marked = WRITTEN.mark(tx, work.recipe.id, list(made))
            new = [rows for chunk, rows in made.items() if chunk in marked]
            tx.run(sql.PUT_ENTITIES, [row for rows in new for row in rows.names])
            tx.run(sql.PUT_RELATIONS, [row for rows in new for row in rows.relations])
            tx.run(sql.NOTE_CHANGES, [row for rows in new for row in rows.changes])


def delete_merged(tx: Transaction, recipe: int, subjects: Sequence[Sequence[str]]) -> None:
    """Delete merged descriptions by key and other key."""
    tx.run(sql.DELETE_MERGED_SOURCES, subjects, recipe=recipe)
    tx.run(sql.DELETE_MERGED, subjects, recipe=recipe)


def delete_merged_of_recipe(tx: Transaction, recipe: int) -> None:
    """Delete all merged descriptions of a recipe, and its list of changes."""
    for statement in (sql.DELETE_SOURCES_OF_RECIPE, sql.DELETE_MERGED_OF_RECIPE, sql.DELETE_CHANGES_OF_RECIPE):
        tx.run(statement, recipe=recipe)


def _ask_model(provider: Provider, piece: ChunkText) -> tuple[str, Usage]:
    extraction, usage = extract(provider, piece.text, piece.headings)
    return extraction.to_json(), usage
