"""The index `vector`: embeds chunks and finds them by similarity."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Protocol

from holdfast.catalog import ChunkLists
from holdfast.errors import Permanent
from holdfast.indexes.base import Found, NotEnabled
from holdfast.indexes.recipe_tables import RowStore
from holdfast.indexes.store_index import StoreIndex
from holdfast.indexes.vector.embedding import WRONG_DIMENSION, EmbedderFactory, TextToEmbed, check_part
from holdfast.llm import no_embedding_model

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence

    from holdfast.catalog import Base, Recipe
    from holdfast.db import Database, Transaction
    from holdfast.errors import WorkError
    from holdfast.indexes.base import Tools, Work
    from holdfast.indexes.paid_answers import ChunkResults
    from holdfast.indexes.search_memory import SearchMemory
    from holdfast.indexes.vector.embedding import CachedEmbedder
    from holdfast.llm import Provider, Vector

WRITE_BATCH = 250  # vectors written in one transaction
PROBE = "probe"  # kind on the ledger of texts that belong to no document
VERSION = 1  # of the text that is embedded for a chunk
# Errors that mean that the model cannot be used any more, for any text.
UNUSABLE_MODEL_CODES = frozenset({"model_unknown", "no_embedding_model", WRONG_DIMENSION})


class VectorStore(RowStore, Protocol):
    """Keeps the vectors of chunks."""

    def put(self, tx: Transaction, recipe: int, vectors: Mapping[int, bytes]) -> None:
        """Write vectors of chunks that have none yet."""
        ...

    def dimension(self, recipe: int) -> int | None:
        """Return the length of the vectors; None if there is none yet."""
        ...

    def find(self, recipe: int, query: Vector, limit: int, within: Sequence[int] | None) -> list[Found]:
        """Return the nearest chunks by cosine."""
        ...

    def scores(self, recipe: int, query: Vector, chunks: Sequence[int]) -> tuple[dict[int, float], float]:
        """Return the cosine of these chunks to the query, and the mean over all chunks."""
        ...

    def read_vectors(self, recipe: int, chunks: Sequence[int]) -> dict[int, Vector]:
        """Return the known vectors of these chunks, normalised to length one; a zero vector stays zero."""
        ...

    def count(self, recipe: int) -> int:
        """Return the number of rows."""
        ...

    def read_rows(self, recipe: int, after: int, limit: int) -> list[tuple[int, bytes]]:
        """Return chunks with their vectors as `put` received them, in ascending order, after the chunk `after`."""
        ...

    def tend(self, recipe: int) -> None:
        """Keep queries fast, for example with an index for a large table."""
        ...


class VectorIndex(StoreIndex):
    """Embeds each chunk together with its heading path."""

    kind = "vector"

    def __init__(self, tools: Tools) -> None:
        self._database = tools.database
        self._memory = tools.search_memory
        self._embedders = EmbedderFactory(tools)
        self._prepared: dict[tuple[int, int], bytes] = {}  # vectors made by `prepare`, by recipe and chunk

    @cached_property
    def _store(self) -> VectorStore:
        return open_vector_store(self._database, memory=self._memory)

    def spec(self, base: Base) -> Mapping[str, Any]:
        embedder = self._embedders.for_base(base)
        if embedder.provider.embedding_model is None:
            raise NotEnabled("no_embedding_model")
        return {"model": embedder.model, "dimension": embedder.provider.dimension, "version": VERSION}

    def prepare(self, works: Sequence[Work]) -> None:
        """Embed the texts of many documents in shared calls."""
        self._prepared = {}
        by_recipe: dict[int, list[Work]] = {}
        for work in works:
            by_recipe.setdefault(work.recipe.id, []).append(work)
        for same_recipe in by_recipe.values():
            first = same_recipe[0]

            def go_on(_: int, first: Work = first) -> None:
                first.task.checkpoint(stage="embedding")

            with closing(
                self._embed(first, [want for work in same_recipe for want in _texts_to_embed(work)], go_on)
            ) as parts:
                for part in parts:
                    self._prepared |= {(first.recipe.id, chunk): vector for chunk, vector in part.answers.items()}

    def ready(self, work: Work) -> Mapping[int, bytes] | None:
        """Return the vectors of a few pieces, if `prepare` has made all of them."""
        wanted = {(work.recipe.id, piece.chunk) for piece in work.pieces}
        if len(work.pieces) > WRITE_BATCH or not self._prepared.keys() >= wanted:
            return None
        return self._take_prepared(work)

    def keep(self, tx: Transaction, recipe: int, rows: Mapping[int, bytes]) -> None:
        self._store.put(tx, recipe, rows)

    def fill(self, work: Work) -> Mapping[int, WorkError]:
        """Embed the pieces that are not prepared, and write all vectors."""
        ready = self._take_prepared(work)
        self._write_vectors(work, ready)
        wants = [want for want in _texts_to_embed(work) if want.chunk not in ready]
        refused: dict[int, WorkError] = {}

        def go_on(done: int) -> None:
            work.task.checkpoint(stage="embedding", done=len(ready) + done, total=len(work.pieces))

        go_on(0)
        with closing(self._embed(work, wants, go_on)) as parts:
            for part in parts:
                self._write_vectors(work, part.answers)
                refused |= part.refused
        return refused

    def record_reuse(self, work: Work, chunks: Sequence[int]) -> None:
        """Record on the ledger what the vectors of these chunks cost."""
        embedder = self._embedders.for_base(work.base)
        if embedder.provider.paid:
            pieces = ChunkLists(self._database).read_texts(chunks)
            embedder.record_reuse(work.base, _texts_to_embed(replace(work, pieces=pieces)))

    def find(self, recipe: Recipe, query: str, limit: int, within: Sequence[int] | None = None) -> list[Found]:
        vector = self._embed_query(recipe, query)
        return [] if vector is None else self._store.find(recipe.id, vector, limit, within)

    def scores(self, recipe: Recipe, query: str, chunks: Sequence[int]) -> tuple[dict[int, float], float]:
        """Return the similarity of these chunks to the query, and the mean over all chunks."""
        vector = self._embed_query(recipe, query)
        return ({}, 0.0) if vector is None else self._store.scores(recipe.id, vector, chunks)

    def get_free_embedder(self, recipe: Recipe) -> Callable[[Sequence[str]], list[Vector]] | None:
        """Return a function that embeds texts with the model of this recipe; None if that costs money or is impossible.

        Its vectors are normalised to length one; a zero vector stays zero. Nothing is cached.
        """
        embedder = self._find_embedder(recipe)
        if embedder is None or embedder.provider.paid:
            return None
        return partial(_embed_normalized, embedder.provider.charge_to(None, PROBE))

    def read_vectors(self, recipe: Recipe, chunks: Sequence[int]) -> dict[int, Vector]:
        """Return the known vectors of these chunks."""
        return self._store.read_vectors(recipe.id, chunks)

    def probe(self, base: Base, recipe: Recipe) -> None:
        """Embed one text; raise a `WorkError` if the provider fails or its vectors do not fit the stored ones."""
        embedder = self._find_embedder(recipe)
        if embedder is None:
            raise no_embedding_model()
        embedded = embedder.provider.charge_to(base, PROBE).embed([PROBE])
        for error in embedded.refused.values():
            raise error
        check_part(embedded, self._store.dimension(recipe.id))

    def tend(self, recipe: Recipe) -> None:
        self._store.tend(recipe.id)

    def _embed(
        self, work: Work, wants: Sequence[TextToEmbed], go_on: Callable[[int], None]
    ) -> Generator[ChunkResults, None, None]:
        embedder = self._embedders.for_base(work.base)
        return embedder.embed(work.base, wants, go_on, length=self._store.dimension(work.recipe.id))

    def _write_vectors(self, work: Work, vectors: Mapping[int, bytes]) -> None:
        if vectors:
            with work.guarded() as tx:
                self.keep(tx, work.recipe.id, vectors)

    def _take_prepared(self, work: Work) -> dict[int, bytes]:
        """Remove and return the prepared vectors of a work; nothing needs them a second time."""
        keys = [(work.recipe.id, piece.chunk) for piece in work.pieces]
        return {key[1]: self._prepared.pop(key) for key in keys if key in self._prepared}

    def _embed_query(self, recipe: Recipe, query: str) -> Vector | None:
        """Embed a query; None if the model finds no meaning in it, or the index has no vectors."""
        length = self._store.dimension(recipe.id)
        if length is None:
            return None
        embedder = self._find_embedder(recipe)
        if embedder is None:
            model = json.loads(recipe.spec)["model"].rpartition("@")[0]
            raise Permanent("embedding_model_gone", params={"model": model})
        return embedder.embed_query(recipe.id, query, length)

    def _find_embedder(self, recipe: Recipe) -> CachedEmbedder | None:
        return self._embedders.for_model(json.loads(recipe.spec).get("model"))


def open_vector_store(database: Database, prefix: str = "vector", *, memory: SearchMemory | None = None) -> VectorStore:
    """Return the store for this database; without `memory`, copies of its vectors have the default limit."""
    if database.engine.dialect.name == "sqlite":
        from holdfast.indexes.sqlite import SqliteVectorStore  # noqa: PLC0415 - load only the dialect in use

        return SqliteVectorStore(database, prefix, memory=memory)
    from holdfast.indexes.postgres import PostgresVectorStore  # noqa: PLC0415 - load only the dialect in use

    return PostgresVectorStore(database, prefix)


def _embed_normalized(provider: Provider, texts: Sequence[str]) -> list[Vector]:
    answer = provider.embed(list(texts))
    return [row / norm if (norm := float((row @ row) ** 0.5)) else row for row in answer.vectors]


def _texts_to_embed(work: Work) -> list[TextToEmbed]:
    return [TextToEmbed(work.task.ticket, piece.chunk, piece.whole) for piece in work.pieces]
