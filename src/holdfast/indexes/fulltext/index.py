"""The index `fulltext`: finds chunks by their words, ranked by BM25."""

from __future__ import annotations

import json
import math
import re
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from holdfast.catalog import recipe_spec
from holdfast.content import TOKENIZER_VERSION, parse_query_terms, segment_text, uses_stemming
from holdfast.indexes.recipe_tables import RowStore
from holdfast.indexes.store_index import StoreIndex

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from holdfast.catalog import Base, ChunkText, Recipe
    from holdfast.content import Term
    from holdfast.db import Database, Transaction
    from holdfast.errors import WorkError
    from holdfast.indexes.base import Found, Tools, Work
    from holdfast.indexes.search_memory import SearchMemory

_OWN_HEADINGS = re.compile(r"(?:[ \t]*#{1,6}[ \t]+[^\n]*(?:\n\s*|\Z))+")
_HASHES = re.compile(r"^[ \t]*#{1,6}[ \t]+", re.MULTILINE)
_SPACED_CHARACTERS = re.compile(
    r"(?<=[^\x00-\x7f]) (?=[^\x00-\x7f](?: |\Z))"
)  # a key separates such characters by spaces
HEADING_WEIGHT, BODY_WEIGHT = 2.0, 1.0  # of a word in a heading and in the text
K1, B = 1.2, 0.75  # BM25 parameters of FTS5
WRITE_BATCH = 250  # chunks written in one transaction


class FulltextStore(RowStore, Protocol):
    """Keeps the words of chunks."""

    def count(self, recipe: int) -> int:
        """Return the number of rows."""
        ...

    def put(self, tx: Transaction, recipe: int, texts: Mapping[int, tuple[str, str]]) -> None:
        """Write headings and bodies of chunks that have no row yet."""
        ...

    def find(self, recipe: int, query: Sequence[Term], limit: int, within: Sequence[int] | None) -> list[Found]:
        """Return the chunks with the best BM25 score for any of the words."""
        ...

    def find_phrases(self, recipe: int, phrases: Sequence[Sequence[str]], limit: int) -> list[Sequence[int]]:
        """Return for each phrase chunks in which its words follow each other, at most `limit`."""
        ...


class FulltextIndex(StoreIndex):
    """Indexes each chunk together with the title and headings above it."""

    kind = "fulltext"

    def __init__(self, tools: Tools) -> None:
        self._tools = tools

    @cached_property
    def _store(self) -> FulltextStore:
        return open_fulltext_store(self._tools.database, memory=self._tools.search_memory)

    def spec(self, base: Base) -> Mapping[str, Any]:
        """Return the tokenizer version, and `stemmed` if words are not stemmed."""
        return (
            {"words": TOKENIZER_VERSION}
            if uses_stemming(base.settings.languages)
            else {"words": TOKENIZER_VERSION, "stemmed": False}
        )

    def ready(self, work: Work) -> Mapping[int, tuple[str, str]] | None:
        few = len(work.pieces) <= WRITE_BATCH
        return {piece.chunk: to_columns(piece) for piece in work.pieces} if few else None

    def keep(self, tx: Transaction, recipe: int, rows: Mapping[int, tuple[str, str]]) -> None:
        self._store.put(tx, recipe, rows)

    def fill(self, work: Work) -> Mapping[int, WorkError]:
        for first in range(0, len(work.pieces), WRITE_BATCH):
            work.task.checkpoint(stage="indexing words", done=first, total=len(work.pieces))
            texts = {piece.chunk: to_columns(piece) for piece in work.pieces[first : first + WRITE_BATCH]}
            with work.guarded() as tx:
                self.keep(tx, work.recipe.id, texts)
        return {}

    def find(self, recipe: Recipe, query: str, limit: int, within: Sequence[int] | None = None) -> list[Found]:
        """Return the chunks that contain any word of the query, best first."""
        return self._store.find(recipe.id, parse_query_terms(query), limit, within)

    def find_phrases(self, recipe: Recipe, keys: Iterable[str], limit: int) -> dict[str, Sequence[int]]:
        """Return for each name chunks that contain its words in order; keys are those of `content.names`."""
        phrases = {key: phrase for key in keys if (phrase := _phrase(key))}
        found = self._store.find_phrases(recipe.id, list(phrases.values()), limit) if phrases else []
        return dict(zip(phrases, found, strict=True))


def _phrase(key: str) -> list[str]:
    """Return the words of a key in the form and order of the index."""
    joined = _SPACED_CHARACTERS.sub("", key)
    words = segment_text(joined).split()
    ends_spaceless = len(words) > 1 and len(words[-1]) == 1 and words[-1] == words[-2][-1]
    return words[:-1] if ends_spaceless else words  # the last character is indexed together with the text that follows


def to_columns(piece: ChunkText) -> tuple[str, str]:
    """Return the headings of a chunk (above it and at its start) and its body, both segmented into words."""
    own, body = split_headings(piece.text)
    return segment_text("\n".join((*piece.headings, own))), segment_text(body)


def split_headings(text: str) -> tuple[str, str]:
    """Split a chunk into the headings at its start and the rest."""
    own = _OWN_HEADINGS.match(text)
    return (_HASHES.sub("", own.group()).strip(), text[own.end() :]) if own else ("", text)


def inverse_document_frequency(count: int, rows: int) -> float:
    """Return the IDF of a word. As in FTS5, a word in most chunks still has a small weight."""
    return max(1e-6, math.log((max(rows, count) - count + 0.5) / (count + 0.5)))


def is_stemmed(spec: str) -> bool:
    """Return whether the words of a recipe are stemmed, by English rules; the default is yes."""
    stemmed: bool = json.loads(spec).get("stemmed", True)
    return stemmed


def fts5_tokenizer(*, stemmed: bool) -> str:
    """Return the FTS5 tokenizer option."""
    return f"{'porter ' if stemmed else ''}unicode61 remove_diacritics 2"


class StemmingCache:
    """Remembers for each recipe id whether its words are stemmed."""

    def __init__(self) -> None:
        self._known: dict[int, bool] = {}

    def __call__(self, tx: Transaction, recipe: int) -> bool:
        """Return whether the words of a recipe are stemmed; this never changes."""
        if recipe not in self._known:
            spec = recipe_spec(tx, recipe)
            if spec is not None:
                self._known[recipe] = is_stemmed(spec)
        return self._known.get(recipe, True)


def to_fts5_query(query: Sequence[Term]) -> str:
    """Return an FTS5 query for any of the words, each quoted."""
    return " OR ".join(f'"{term.text}"{"*" if term.prefix else ""}' for term in query)


def open_fulltext_store(
    database: Database, prefix: str = "fulltext", *, memory: SearchMemory | None = None
) -> FulltextStore:
    """Return the store for this database; without `memory`, copies of its words have the default limit."""
    if database.engine.dialect.name == "sqlite":
        from holdfast.indexes.sqlite import SqliteFulltextStore  # noqa: PLC0415 - load only the dialect in use

        return SqliteFulltextStore(database, prefix, memory=memory)
    from holdfast.indexes.postgres_words import PostgresFulltextStore  # noqa: PLC0415 - load only the dialect in use

    return PostgresFulltextStore(database, prefix)
