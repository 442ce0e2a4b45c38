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
from holdfast.content.names import VERSION, Source, Titles, bare_words, names
from holdfast.indexes.base import Found
from holdfast.indexes.graph import statements as sql
from holdfast.indexes.graph.extraction import RECIPE, Extraction, extract
from holdfast.indexes.graph.rows import NAMED, by_model, by_rules
from holdfast.indexes.llm_calls import Speaker

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from holdfast.catalog import Base, Piece, Recipe
    from holdfast.db import Transaction
    from holdfast.errors import WorkError
    from holdfast.indexes.base import Tools, Work
    from holdfast.llm import Paid, Provider

__all__ = ["MERGES", "NAMED", "GraphIndex", "forget_merged"]

PORTION = 50  # chunks written in one transaction
TOLD = 10  # the same, of chunks that a model has read: they have more rows
LOADED = 10_000  # names read at once
COUNTED_SECONDS = 60.0  # how often it is asked whether names in memory are gone
MERGES = "graph"  # owner of the slot of a base that merges: no document has such a name, theirs are numbers
NOTING = (sql.NOTE_LOST_ENTITIES, sql.NOTE_LOST_RELATIONS)
DROPPING = (sql.DROP_NAMES, sql.DROP_RELATIONS, sql.DROP_KNOWN)
FORGETTING = (sql.FORGET_UNNAMED, sql.FORGET_UNRELATED)  # of what nobody speaks any more
BY_RULES = "co-occurrence of names, by rules"


class GraphIndex:
    """Keeps the names of chunks, and what a language model finds in them."""

    kind = "graph"

    def __init__(self, tools: Tools) -> None:
        self._database = tools.database
        self._tools = tools
        self._speaker = Speaker(tools.speaker, tools.memos, kind="extraction", recipe=RECIPE, make=_extracted)
        self._copies: dict[int, _Copy] = {}
        self._mutex = threading.Lock()

    def spec(self, base: Base) -> Mapping[str, Any]:
        """Return the version of the rules, and which model is asked and how, if there is one."""
        speaker = self._tools.speaker_of(base)
        if speaker.chat_model is None:
            return {"rules": VERSION}
        return {"rules": VERSION, "model": speaker.chat_model, "version": speaker.version, "extraction": RECIPE}

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
            have = {chunk for (chunk,) in tx.run(sql.KNOWN, [[chunk] for chunk in chunks], recipe=recipe.id)}
        return [chunk for chunk in chunks if chunk not in have]

    def prepare(self, works: Sequence[Work]) -> None:
        """Nothing is better done together."""

    def fill(self, work: Work) -> Mapping[int, WorkError]:
        """Write the names of all pieces, with a model only of those that it has read: a retry asks for the others."""
        if _model(work.recipe):
            return self._ask(work)
        for first in range(0, len(work.pieces), PORTION):
            portion = work.pieces[first : first + PORTION]
            work.task.checkpoint(stage="extracting", done=first, total=len(work.pieces))
            rows = [row for piece in portion for row in by_rules(work.recipe.id, piece)]
            with work.guarded() as tx:
                new = set(_mark(tx, work.recipe.id, [piece.chunk for piece in portion]))
                tx.run(sql.PUT_NAMES, [row for row in rows if row[1] in new])
        return {}

    def drop(self, recipe: Recipe, chunks: Sequence[int]) -> None:
        """Remove what chunks name, define and say, and every merged description that has words of theirs."""
        rows = [[chunk] for chunk in chunks]

        def work(tx: Transaction) -> None:
            told = _model(recipe) is not None
            if told:
                # Whoever merges holds this lock when it checks its sources, so it has written or will not.
                tx.lock([owner for (owner,) in tx.run(sql.MERGING_OWNER, recipe=recipe.id, owner=MERGES)])
                forget_merged(tx, recipe.id, tx.run(sql.MADE_FROM, rows, recipe=recipe.id))
            for statement in (*(NOTING if told else ()), *DROPPING, *(FORGETTING if told else ())):
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

    def forget(self, recipe: Recipe) -> None:
        """Remove what was merged by a recipe, and what is noted of it."""

        def work(tx: Transaction) -> None:
            for statement in (sql.REMOVE_SOURCES, sql.REMOVE_MERGED, sql.REMOVE_CHANGES):
                tx.run(statement, recipe=recipe.id)

        self._database.write(work, durable=False)

    def tend(self, recipe: Recipe) -> None:
        """Nothing needs to be kept quick."""

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

    def told(self, recipe: Recipe) -> bool:
        """Tell whether a language model has read the chunks; only then are there relations."""
        return _model(recipe) is not None

    def related(self, recipe: Recipe, chunks: Sequence[int]) -> dict[int, list[str]]:
        """Return the ends of the relations that chunks state."""
        found: dict[int, list[str]] = {chunk: [] for chunk in chunks}
        with self._database.reading() as tx:
            for chunk, *ends in tx.run(sql.ENDS_OF_CHUNKS, [[chunk] for chunk in chunks], recipe=recipe.id):
                found[chunk] += ends
        return found

    def stating(self, recipe: Recipe, keys: Iterable[str]) -> dict[str, list[int]]:
        """Return who states a relation of these keys."""
        rows = [[key] for key in dict.fromkeys(keys)]
        found: dict[str, set[int]] = {}
        with self._database.reading() as tx:
            for statement in (sql.STATED_FROM, sql.STATED_TO):
                for key, chunk in tx.run(statement, rows, recipe=recipe.id):
                    found.setdefault(key, set()).add(chunk)
        return {key: sorted(chunks) for key, chunks in found.items()}

    # -- with a language model

    def _ask(self, work: Work) -> Mapping[int, WorkError]:
        """Ask the model about each piece and write what it found; return the pieces it has no usable answer for."""
        total = len(work.pieces)
        pieces = {piece.chunk: piece for piece in work.pieces}
        refused: dict[int, WorkError] = {}
        found: list[tuple[Piece, Extraction]] = []

        def go_on(done: int) -> None:
            work.task.checkpoint(stage="extracting", done=done, total=total)

        go_on(0)
        with closing(self._speaker.ask(work.base, work.task.ticket, work.pieces, go_on)) as parts:
            for said in parts:
                refused |= said.refused
                found += [(pieces[chunk], Extraction.from_json(answer)) for chunk, answer in said.made.items()]
                while len(found) >= TOLD:
                    self._put(work, found[:TOLD])
                    del found[:TOLD]
        self._put(work, found)
        return refused

    @staticmethod
    def _put(work: Work, found: Sequence[tuple[Piece, Extraction]]) -> None:
        """Write what was found in chunks that have no rows yet, and of whom there is something new to say."""
        made = {piece.chunk: by_model(work.recipe.id, piece, told) for piece, told in found}
        if not made:
            return
        with work.guarded() as tx:
            new = [made[chunk] for chunk in _mark(tx, work.recipe.id, list(made))]
            tx.run(sql.PUT_ENTITIES, [row for rows in new for row in rows.names])
            tx.run(sql.PUT_RELATIONS, [row for rows in new for row in rows.relations])
            tx.run(sql.NOTE_CHANGES, [row for rows in new for row in rows.changes])


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


def forget_merged(tx: Transaction, recipe: int, subjects: Sequence[Sequence[str]]) -> None:
    """Blank merged descriptions, by key and other key."""
    tx.run(sql.FORGET_SOURCES, subjects, recipe=recipe)
    tx.run(sql.FORGET_MERGED, subjects, recipe=recipe)


def _mark(tx: Transaction, recipe: int, chunks: Sequence[int]) -> list[int]:
    """Note that these chunks are written; return those that were not before."""
    have = {chunk for (chunk,) in tx.run(sql.KNOWN, [[chunk] for chunk in chunks], recipe=recipe)}
    new = [chunk for chunk in chunks if chunk not in have]
    tx.run(sql.MARK_KNOWN, [[recipe, chunk] for chunk in new])
    return new


def _extracted(provider: Provider, piece: Piece, paid: Paid) -> str:
    return extract(provider, piece.text, piece.headings, paid=paid)[0].to_json()


def _model(recipe: Recipe) -> str | None:
    """Name the model by which rows of this recipe are made, None where rules alone make them."""
    model: str | None = json.loads(recipe.spec).get("model")
    return model


def _label(spec: Mapping[str, Any]) -> str:
    return f"entities and relations by {spec['model']}" if "model" in spec else BY_RULES
