"""The index `graph`: which texts define a name, which ones name it, and what they say of it.

Without a language model names are what rules can see, and two texts are tied because one names what the other
defines; nothing is claimed about how they are related. With one, entities and relations that the model finds join
these names by their keys. A chunk's rows come from this chunk alone, so they do not depend on what else is in the
base, and go with it. Names are joined by their keys when somebody asks; what a model has merged of many chunks
(`indexes.graph.merging`) is blanked in the transaction that drops the first of them.
"""

from __future__ import annotations

import json
import threading
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

from holdfast.catalog import read_recipes, served_recipes
from holdfast.content.names import NAMES_VERSION, TitleMatcher, find_names, is_found_by_words, split_key_words
from holdfast.indexes.base import Found
from holdfast.indexes.graph import statements as sql
from holdfast.indexes.graph.extraction import RECIPE, Extraction, extract
from holdfast.indexes.graph.rows import NAMED_ROLE, build_model_rows, build_rule_rows
from holdfast.indexes.llm_calls import ChunkLlmCalls

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from holdfast.catalog import Base, ChunkText, Recipe
    from holdfast.db import Transaction
    from holdfast.errors import WorkError
    from holdfast.indexes.base import Tools, Work
    from holdfast.llm import OnCompletion, Provider

__all__ = ["MERGING_OWNER", "NAMED_ROLE", "GraphIndex", "delete_merged"]

RULE_WRITE_BATCH = 50  # chunks written in one transaction
MODEL_WRITE_BATCH = 10  # the same, of chunks that a model has read: they have more rows
LOAD_BATCH = 10_000  # names read at once
COUNT_CACHE_SECONDS = 60.0  # how often it is asked whether names in memory are gone
MERGING_OWNER = "graph"  # owner of the slot of a base that merges: no document has such a name, theirs are numbers
INSERT_LOST_SUBJECTS = (sql.NOTE_LOST_ENTITIES, sql.NOTE_LOST_RELATIONS)
DELETE_CHUNK_ROWS = (sql.DROP_NAMES, sql.DROP_RELATIONS, sql.DELETE_WRITTEN_CHUNKS)
DELETE_OBSOLETE_CHANGES = (
    sql.DELETE_CHANGES_OF_UNNAMED,
    sql.DELETE_CHANGES_OF_UNRELATED,
)  # of what nobody speaks any more
BY_RULES = "co-occurrence of names, by rules"


class GraphIndex:
    """Keeps the names of chunks, and what a language model finds in them."""

    kind = "graph"

    def __init__(self, tools: Tools) -> None:
        self._database = tools.database
        self._tools = tools
        self._llm_calls = ChunkLlmCalls(tools.speaker, tools.memos, kind="extraction", recipe=RECIPE, make=_ask_model)
        self._cached_titles: dict[int, _CachedTitles] = {}
        self._mutex = threading.Lock()

    def spec(self, base: Base) -> Mapping[str, Any]:
        """Return the version of the rules, and which model is asked and how, if there is one."""
        speaker = self._tools.speaker_of(base)
        if speaker.chat_model is None:
            return {"rules": NAMES_VERSION}
        return {"rules": NAMES_VERSION, "model": speaker.chat_model, "version": speaker.version, "extraction": RECIPE}

    def label(self, base: Base) -> str:
        """Say what the graph of a base is made of, as it is served; before that, as it will be."""
        with self._database.reading() as tx:
            ids = set(served_recipes(tx, base.key, self.kind))
            known = read_recipes(tx, base.key, self.kind)
        specs = [json.loads(one.spec) for one in known if one.id in ids] or [self.spec(base)]
        return "; ".join(dict.fromkeys(map(_label, specs)))

    def absent(self, recipe: Recipe, chunks: Sequence[int]) -> list[int]:
        """Return the chunks whose names are not written."""
        with self._database.reading() as tx:
            have = {
                chunk for (chunk,) in tx.run(sql.SELECT_WRITTEN_CHUNKS, [[chunk] for chunk in chunks], recipe=recipe.id)
            }
        return [chunk for chunk in chunks if chunk not in have]

    def prepare(self, works: Sequence[Work]) -> None:
        """Nothing is better done together."""

    def fill(self, work: Work) -> Mapping[int, WorkError]:
        """Write the names of all pieces, with a model only of those that it has read: a retry asks for the others."""
        if _model(work.recipe):
            return self._fill_with_model(work)
        for first in range(0, len(work.pieces), RULE_WRITE_BATCH):
            portion = work.pieces[first : first + RULE_WRITE_BATCH]
            work.task.checkpoint(stage="extracting", done=first, total=len(work.pieces))
            rows = [row for piece in portion for row in build_rule_rows(work.recipe.id, piece)]
            with work.guarded() as tx:
                new = set(_mark_written(tx, work.recipe.id, [piece.chunk for piece in portion]))
                tx.run(sql.PUT_NAMES, [row for row in rows if row[1] in new])
        return {}

    def drop(self, recipe: Recipe, chunks: Sequence[int]) -> None:
        """Remove what chunks name, define and say, and every merged description that has words of theirs."""
        rows = [[chunk] for chunk in chunks]

        def work(tx: Transaction) -> None:
            told = _model(recipe) is not None
            if told:
                # Whoever merges holds this lock when it checks its sources, so it has written or will not.
                tx.lock_owners(
                    [owner for (owner,) in tx.run(sql.SELECT_MERGING_OWNER, recipe=recipe.id, owner=MERGING_OWNER)]
                )
                delete_merged(tx, recipe.id, tx.run(sql.SELECT_SUBJECTS_MERGED_FROM, rows, recipe=recipe.id))
            for statement in (
                *(INSERT_LOST_SUBJECTS if told else ()),
                *DELETE_CHUNK_ROWS,
                *(DELETE_OBSOLETE_CHANGES if told else ()),
            ):
                tx.run(statement, rows, recipe=recipe.id)

        self._database.write(work, durable=False)
        with self._mutex:
            self._cached_titles.pop(recipe.id, None)

    def find(self, recipe: Recipe, query: str, limit: int, within: Sequence[int] | None = None) -> list[Found]:
        """Return the chunks that define the names of the query, and then those that mention them."""
        keys = list(
            dict.fromkeys(
                [*self.load_titles(recipe).find(split_key_words(query)), *(one.key for one in find_names(query))]
            )
        )
        allowed = None if within is None else set(within)
        with self._database.reading() as tx:
            rows = tx.run(sql.SELECT_CHUNKS_BY_KEY, [[key] for key in keys], recipe=recipe.id)
        scores: dict[int, float] = {}
        for _, chunk, role in rows:
            if allowed is None or chunk in allowed:
                scores[chunk] = scores.get(chunk, 0.0) + (0.5 if role == NAMED_ROLE else 1.0)
        best = sorted(scores.items(), key=lambda one: (-one[1], one[0]))
        return [Found(chunk, score) for chunk, score in best[:limit]]

    def scan(self, recipe: Recipe, after: int, limit: int) -> list[int]:
        """Name the chunks whose names are written."""
        with self._database.reading() as tx:
            return [chunk for (chunk,) in tx.run(sql.SCAN_WRITTEN_CHUNKS, recipe=recipe.id, after=after, limit=limit)]

    def forget(self, recipe: Recipe) -> None:
        """Remove what was merged by a recipe, and what is noted of it."""

        def work(tx: Transaction) -> None:
            for statement in (sql.DELETE_SOURCES_OF_RECIPE, sql.DELETE_MERGED_OF_RECIPE, sql.DELETE_CHANGES_OF_RECIPE):
                tx.run(statement, recipe=recipe.id)

        self._database.write(work, durable=False)

    def tend(self, recipe: Recipe) -> None:
        """Nothing needs to be kept quick."""

    def close(self) -> None:
        """Nothing was opened."""

    # -- for whoever walks

    def load_titles(self, recipe: Recipe) -> TitleMatcher:
        """Return the titles and headings of a base, as they are now."""
        with self._mutex, self._database.reading() as tx:
            copy = self._cached_titles.get(recipe.id)
            if copy is None or copy.is_stale(tx, recipe.id):
                copy = self._cached_titles[recipe.id] = _CachedTitles()
            copy.load_new(tx, recipe.id)
            return copy.titles

    def read_roles(self, recipe: Recipe, chunks: Sequence[int]) -> dict[int, list[tuple[str, str]]]:
        """Return what chunks name and define: keys, each with what the chunk does with it."""
        found: dict[int, list[tuple[str, str]]] = {chunk: [] for chunk in chunks}
        with self._database.reading() as tx:
            for chunk, key, role in tx.run(sql.SELECT_NAMES_OF_CHUNKS, [[chunk] for chunk in chunks], recipe=recipe.id):
                found[chunk].append((key, role))
        return found

    def find_chunks_by_role(self, recipe: Recipe, keys: Iterable[str]) -> dict[str, dict[str, list[int]]]:
        """Return who names and who defines these keys, by what they do with it."""
        found: dict[str, dict[str, list[int]]] = {}
        with self._database.reading() as tx:
            for key, chunk, role in tx.run(sql.SELECT_CHUNKS_BY_KEY, [[key] for key in keys], recipe=recipe.id):
                found.setdefault(key, {}).setdefault(role, []).append(chunk)
        return found

    def uses_model(self, recipe: Recipe) -> bool:
        """Tell whether a language model has read the chunks; only then are there relations."""
        return _model(recipe) is not None

    def read_relation_ends(self, recipe: Recipe, chunks: Sequence[int]) -> dict[int, list[str]]:
        """Return the ends of the relations that chunks state."""
        found: dict[int, list[str]] = {chunk: [] for chunk in chunks}
        with self._database.reading() as tx:
            for chunk, *ends in tx.run(sql.SELECT_RELATION_ENDS, [[chunk] for chunk in chunks], recipe=recipe.id):
                found[chunk] += ends
        return found

    def find_stating_chunks(self, recipe: Recipe, keys: Iterable[str]) -> dict[str, list[int]]:
        """Return who states a relation of these keys."""
        rows = [[key] for key in dict.fromkeys(keys)]
        found: dict[str, set[int]] = {}
        with self._database.reading() as tx:
            for statement in (sql.SELECT_CHUNKS_BY_SOURCE, sql.SELECT_CHUNKS_BY_TARGET):
                for key, chunk in tx.run(statement, rows, recipe=recipe.id):
                    found.setdefault(key, set()).add(chunk)
        return {key: sorted(chunks) for key, chunks in found.items()}

    # -- with a language model

    def _fill_with_model(self, work: Work) -> Mapping[int, WorkError]:
        """Ask the model about each piece and write what it found; return the pieces it has no usable answer for."""
        total = len(work.pieces)
        pieces = {piece.chunk: piece for piece in work.pieces}
        refused: dict[int, WorkError] = {}
        found: list[tuple[ChunkText, Extraction]] = []

        def go_on(done: int) -> None:
            work.task.checkpoint(stage="extracting", done=done, total=total)

        go_on(0)
        with closing(self._llm_calls.ask(work.base, work.task.ticket, work.pieces, go_on)) as parts:
            for said in parts:
                refused |= said.refused
                found += [(pieces[chunk], Extraction.from_json(answer)) for chunk, answer in said.answers.items()]
                while len(found) >= MODEL_WRITE_BATCH:
                    self._write_extractions(work, found[:MODEL_WRITE_BATCH])
                    del found[:MODEL_WRITE_BATCH]
        self._write_extractions(work, found)
        return refused

    @staticmethod
    def _write_extractions(work: Work, found: Sequence[tuple[ChunkText, Extraction]]) -> None:
        """Write what was found in chunks that have no rows yet, and of whom there is something new to say."""
        made = {piece.chunk: build_model_rows(work.recipe.id, piece, told) for piece, told in found}
        if not made:
            return
        with work.guarded() as tx:
            new = [made[chunk] for chunk in _mark_written(tx, work.recipe.id, list(made))]
            tx.run(sql.PUT_ENTITIES, [row for rows in new for row in rows.names])
            tx.run(sql.PUT_RELATIONS, [row for rows in new for row in rows.relations])
            tx.run(sql.NOTE_CHANGES, [row for rows in new for row in rows.changes])


class _CachedTitles:
    """The titles of a recipe in memory, and how far they were read."""

    def __init__(self) -> None:
        self.titles = TitleMatcher()
        self._seen = 0
        self._rows = 0
        self._counted = time.monotonic()

    def load_new(self, tx: Transaction, recipe: int) -> None:
        """Read what came since the last time."""
        while rows := tx.run(sql.SELECT_DEFINITIONS, recipe=recipe, after=self._seen, limit=LOAD_BATCH):
            for id_, _, key, role in rows:
                self._seen = id_
                if is_found_by_words(key, role):
                    self.titles.add(key)
            self._rows += len(rows)

    def is_stale(self, tx: Transaction, recipe: int) -> bool:
        """Tell, now and then, whether titles in memory are gone."""
        if time.monotonic() < self._counted + COUNT_CACHE_SECONDS:
            return False
        self._counted = time.monotonic()
        ((count,),) = tx.run(sql.COUNT_DEFINITIONS, recipe=recipe, until=self._seen)
        return bool(count < self._rows)


def delete_merged(tx: Transaction, recipe: int, subjects: Sequence[Sequence[str]]) -> None:
    """Blank merged descriptions, by key and other key."""
    tx.run(sql.DELETE_MERGED_SOURCES, subjects, recipe=recipe)
    tx.run(sql.DELETE_MERGED, subjects, recipe=recipe)


def _mark_written(tx: Transaction, recipe: int, chunks: Sequence[int]) -> list[int]:
    """Note that these chunks are written; return those that were not before."""
    have = {chunk for (chunk,) in tx.run(sql.SELECT_WRITTEN_CHUNKS, [[chunk] for chunk in chunks], recipe=recipe)}
    new = [chunk for chunk in chunks if chunk not in have]
    tx.run(sql.INSERT_WRITTEN_CHUNKS, [[recipe, chunk] for chunk in new])
    return new


def _ask_model(provider: Provider, piece: ChunkText, paid: OnCompletion) -> str:
    return extract(provider, piece.text, piece.headings, paid=paid)[0].to_json()


def _model(recipe: Recipe) -> str | None:
    """Name the model by which rows of this recipe are made, None where rules alone make them."""
    model: str | None = json.loads(recipe.spec).get("model")
    return model


def _label(spec: Mapping[str, Any]) -> str:
    return f"entities and relations by {spec['model']}" if "model" in spec else BY_RULES
