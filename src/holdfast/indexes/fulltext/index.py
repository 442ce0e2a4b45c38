"""The index `fulltext`: chunks by the words they say, ranked by BM25."""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Any, Protocol

from holdfast.catalog import recipe_spec
from holdfast.content.tokenize import TOKENIZER_VERSION, parse_query_terms, segment_text, uses_stemming

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast.catalog import Base, ChunkText, Recipe
    from holdfast.content.tokenize import Term
    from holdfast.db import Transaction
    from holdfast.errors import WorkError
    from holdfast.indexes.base import Found, Tools, Work

_OWN_HEADINGS = re.compile(r"(?:[ \t]*#{1,6}[ \t]+[^\n]*(?:\n\s*|\Z))+")
_HASHES = re.compile(r"^[ \t]*#{1,6}[ \t]+", re.MULTILINE)
_SPACED_CHARACTERS = re.compile(r"(?<=[^\x00-\x7f]) (?=[^\x00-\x7f](?: |\Z))")  # characters that a key sets apart
HEADING_WEIGHT, BODY_WEIGHT = 2.0, 1.0  # what a word counts in a heading and in the text
K1, B = 1.2, 0.75  # BM25, as FTS5 has it
WRITE_BATCH = 250  # chunks written in one transaction


class FulltextStore(Protocol):
    """Where words are kept: a table for each recipe."""

    def absent(self, recipe: int, chunks: Sequence[int]) -> list[int]:
        """Return the chunks without a row."""
        ...

    def put(self, tx: Transaction, recipe: int, texts: Mapping[int, tuple[str, str]]) -> None:
        """Keep headings and bodies whose chunk has none yet."""
        ...

    def drop(self, recipe: int, chunks: Sequence[int]) -> None:
        """Remove rows."""
        ...

    def find(self, recipe: int, query: Sequence[Term], limit: int, within: Sequence[int] | None) -> list[Found]:
        """Return the best for any of the words."""
        ...

    def find_phrase(self, recipe: int, words: Sequence[str], limit: int) -> list[int]:
        """Return chunks in which these words follow each other."""
        ...

    def scan(self, recipe: int, after: int, limit: int) -> list[int]:
        """Name the chunks that have a row."""
        ...

    def forget(self, recipe: int) -> None:
        """Remove the table of a recipe."""
        ...


class FulltextIndex:
    """Title and headings are indexed beside the text they stand above."""

    kind = "fulltext"

    def __init__(self, tools: Tools) -> None:
        self._store = open_fulltext_store(tools)

    def spec(self, base: Base) -> Mapping[str, Any]:
        """Return the version of how text is cut into words, and whether they are left as they are."""
        return (
            {"words": TOKENIZER_VERSION}
            if uses_stemming(base.settings.languages)
            else {"words": TOKENIZER_VERSION, "stemmed": False}
        )

    def absent(self, recipe: Recipe, chunks: Sequence[int]) -> list[int]:
        """Return the chunks without a row."""
        return self._store.absent(recipe.id, chunks)

    def prepare(self, works: Sequence[Work]) -> None:
        """Nothing is better done together."""

    def ready(self, work: Work) -> Mapping[int, tuple[str, str]] | None:
        """Return the words of a few pieces."""
        few = len(work.pieces) <= WRITE_BATCH
        return {piece.chunk: to_columns(piece) for piece in work.pieces} if few else None

    def keep(self, tx: Transaction, recipe: int, rows: Mapping[int, tuple[str, str]]) -> None:
        """Write the words of chunks."""
        self._store.put(tx, recipe, rows)

    def fill(self, work: Work) -> Mapping[int, WorkError]:
        """Keep the words of all pieces."""
        for first in range(0, len(work.pieces), WRITE_BATCH):
            work.task.checkpoint(stage="indexing words", done=first, total=len(work.pieces))
            texts = {piece.chunk: to_columns(piece) for piece in work.pieces[first : first + WRITE_BATCH]}
            with work.guarded() as tx:
                self.keep(tx, work.recipe.id, texts)
        return {}

    def drop(self, recipe: Recipe, chunks: Sequence[int]) -> None:
        """Remove rows."""
        self._store.drop(recipe.id, chunks)

    def find(self, recipe: Recipe, query: str, limit: int, within: Sequence[int] | None = None) -> list[Found]:
        """Return the chunks that say the words of the query, or some of them."""
        return self._store.find(recipe.id, parse_query_terms(query), limit, within)

    def find_phrase(self, recipe: Recipe, key: str, limit: int) -> list[int]:
        """Return chunks in which the words of a name follow each other; `key` is its key (see `content.names`)."""
        phrase = _phrase(key)
        return self._store.find_phrase(recipe.id, phrase, limit) if phrase else []

    def scan(self, recipe: Recipe, after: int, limit: int) -> list[int]:
        """Name the chunks that have a row."""
        return self._store.scan(recipe.id, after, limit)

    def forget(self, recipe: Recipe) -> None:
        """Remove the table of a recipe."""
        self._store.forget(recipe.id)

    def tend(self, recipe: Recipe) -> None:
        """Nothing needs to be kept quick."""

    def close(self) -> None:
        """Nothing was opened."""


def _phrase(key: str) -> list[str]:
    """Return the words of a key as they follow each other in the index."""
    joined = _SPACED_CHARACTERS.sub("", key)
    words = segment_text(joined).split()
    ends_spaceless = len(words) > 1 and len(words[-1]) == 1 and words[-1] == words[-2][-1]
    return words[:-1] if ends_spaceless else words  # what follows the last pair in the index depends on the text


def to_columns(piece: ChunkText) -> tuple[str, str]:
    """Return the headings that stand above a chunk or that it begins with, and the rest of it, cut into words."""
    own, body = split_headings(piece.text)
    return segment_text("\n".join((*piece.headings, own))), segment_text(body)


def split_headings(text: str) -> tuple[str, str]:
    """Divide a chunk into the headings that it begins with and the rest."""
    own = _OWN_HEADINGS.match(text)
    return (_HASHES.sub("", own.group()).strip(), text[own.end() :]) if own else ("", text)


def inverse_document_frequency(count: int, rows: int) -> float:
    """Weigh a word by how few chunks say it; one that most say still counts a little, as in FTS5."""
    return max(1e-6, math.log((max(rows, count) - count + 0.5) / (count + 0.5)))


def is_stemmed(spec: str) -> bool:
    """Tell whether words are stemmed by a recipe: as English ones, unless it says otherwise."""
    told: bool = json.loads(spec).get("stemmed", True)
    return told


def fts5_tokenizer(*, stemmed: bool) -> str:
    """Return how FTS5 makes words."""
    return f"{'porter ' if stemmed else ''}unicode61 remove_diacritics 2"


class StemmingCache:
    """Remembers of each recipe whether its words are stemmed, for whoever knows only its number."""

    def __init__(self) -> None:
        self._known: dict[int, bool] = {}

    def __call__(self, tx: Transaction, recipe: int) -> bool:
        """Tell whether the words of a recipe are stemmed, which never changes."""
        if recipe not in self._known:
            spec = recipe_spec(tx, recipe)
            if spec is not None:
                self._known[recipe] = is_stemmed(spec)
        return self._known.get(recipe, True)


def to_fts5_query(query: Sequence[Term]) -> str:
    """Return a query as FTS5 reads it: any of the words, each quoted."""
    return " OR ".join(f'"{term.text}"{"*" if term.prefix else ""}' for term in query)


def open_fulltext_store(tools: Tools) -> FulltextStore:
    """Return the shelf for the kind of database."""
    if tools.database.engine.dialect.name == "sqlite":
        from holdfast.indexes.sqlite import SqliteFulltextStore  # noqa: PLC0415 - only what is used

        return SqliteFulltextStore(tools.database, memory=tools.words_memory)
    from holdfast.indexes.postgres import PostgresFulltextStore  # noqa: PLC0415 - only what is used

    return PostgresFulltextStore(tools.database)
