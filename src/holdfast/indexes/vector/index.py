"""The index `vector`: chunks by what they mean."""

from __future__ import annotations

import json
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from holdfast.errors import Permanent
from holdfast.indexes.base import Found, NotEnabled
from holdfast.indexes.vector.embedding import WRONG_DIMENSION, EmbedderFactory, TextToEmbed

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence

    from holdfast.catalog import Base, Recipe
    from holdfast.db import Transaction
    from holdfast.errors import WorkError
    from holdfast.indexes.base import Tools, Work
    from holdfast.indexes.vector.embedding import CachedEmbedder, ChunkVectors
    from holdfast.llm import Provider, Vector

WRITE_BATCH = 250  # vectors written in one transaction
PROBE = "probe"  # what a provider is asked only to see whether it answers; its kind on the ledger
VERSION = 1  # of how a chunk becomes the text that is embedded
# What says that the model cannot be used any more, whatever it is asked.
UNUSABLE_MODEL_CODES = frozenset({"model_unknown", "no_embedding_model", WRONG_DIMENSION})


class VectorStore(Protocol):
    """Where vectors are kept: a table for each recipe."""

    def absent(self, recipe: int, chunks: Sequence[int]) -> list[int]:
        """Return the chunks without a vector."""
        ...

    def put(self, tx: Transaction, recipe: int, vectors: Mapping[int, bytes]) -> None:
        """Keep vectors whose chunk has none yet."""
        ...

    def dimension(self, recipe: int) -> int | None:
        """Return how many numbers each vector has; None if there is none yet."""
        ...

    def drop(self, recipe: int, chunks: Sequence[int]) -> None:
        """Remove vectors."""
        ...

    def find(self, recipe: int, query: Vector, limit: int, within: Sequence[int] | None) -> list[Found]:
        """Return the nearest."""
        ...

    def scores(self, recipe: int, query: Vector, chunks: Sequence[int]) -> tuple[dict[int, float], float]:
        """Return how near the query these chunks are, and how near all are on average."""
        ...

    def read_vectors(self, recipe: int, chunks: Sequence[int]) -> dict[int, Vector]:
        """Return the vectors of chunks, as far as they are known; their length is one, or zero."""
        ...

    def scan(self, recipe: int, after: int, limit: int) -> list[int]:
        """Name the chunks that have a vector."""
        ...

    def forget(self, recipe: int) -> None:
        """Remove the table of a recipe."""
        ...

    def tend(self, recipe: int) -> None:
        """Keep queries quick where a recipe has grown large."""
        ...


class VectorIndex:
    """Embeds chunks with the headings they stand under."""

    kind = "vector"

    def __init__(self, tools: Tools) -> None:
        self._embedders = EmbedderFactory(tools)
        self._store = open_vector_store(tools)
        self._prepared: dict[tuple[int, int], bytes] = {}  # by recipe and chunk: made together with other documents

    def spec(self, base: Base) -> Mapping[str, Any]:
        """Return the model and the version of the text it is shown."""
        embedder = self._embedders.for_base(base)
        if embedder.provider.embedding_model is None:
            raise NotEnabled(
                "There is no embedding model; name one in the settings of the provider.", "no_embedding_model"
            )
        return {"model": embedder.model, "dimension": embedder.provider.dimension, "version": VERSION}

    def absent(self, recipe: Recipe, chunks: Sequence[int]) -> list[int]:
        """Return the chunks without a vector."""
        return self._store.absent(recipe.id, chunks)

    def prepare(self, works: Sequence[Work]) -> None:
        """Embed the texts of many documents in the same calls."""
        self._prepared = {}
        by_recipe: dict[int, list[Work]] = {}
        for work in works:
            by_recipe.setdefault(work.recipe.id, []).append(work)
        for those in by_recipe.values():
            first = those[0]

            def go_on(_: int, first: Work = first) -> None:
                first.task.checkpoint(stage="embedding")

            with closing(
                self._embed(first, [want for work in those for want in _texts_to_embed(work)], go_on)
            ) as parts:
                for part in parts:
                    self._prepared |= {(first.recipe.id, chunk): vector for chunk, vector in part.vectors.items()}

    def ready(self, work: Work) -> Mapping[int, bytes] | None:
        """Return the vectors of a few pieces, if all were made together with those of other documents."""
        wanted = {(work.recipe.id, piece.chunk) for piece in work.pieces}
        if len(work.pieces) > WRITE_BATCH or not self._prepared.keys() >= wanted:
            return None
        return self._take_prepared(work)

    def keep(self, tx: Transaction, recipe: int, rows: Mapping[int, bytes]) -> None:
        """Write vectors."""
        self._store.put(tx, recipe, rows)

    def fill(self, work: Work) -> Mapping[int, WorkError]:
        """Embed what is not ready, and keep it."""
        ready = self._take_prepared(work)
        self._write_vectors(work, ready)
        wants = [want for want in _texts_to_embed(work) if want.chunk not in ready]
        refused: dict[int, WorkError] = {}

        def go_on(done: int) -> None:
            work.task.checkpoint(stage="embedding", done=len(ready) + done, total=len(work.pieces))

        go_on(0)
        with closing(self._embed(work, wants, go_on)) as parts:
            for part in parts:
                self._write_vectors(work, part.vectors)
                refused |= part.refused
        return refused

    def drop(self, recipe: Recipe, chunks: Sequence[int]) -> None:
        """Remove vectors."""
        self._store.drop(recipe.id, chunks)

    def find(self, recipe: Recipe, query: str, limit: int, within: Sequence[int] | None = None) -> list[Found]:
        """Return the chunks nearest to the meaning of the query."""
        vector = self._embed_query(recipe, query)
        return [] if vector is None else self._store.find(recipe.id, vector, limit, within)

    def scores(self, recipe: Recipe, query: str, chunks: Sequence[int]) -> tuple[dict[int, float], float]:
        """Return how near the query these chunks are, as far as they are known, and how near all are on average."""
        vector = self._embed_query(recipe, query)
        return ({}, 0.0) if vector is None else self._store.scores(recipe.id, vector, chunks)

    def get_free_embedder(self, recipe: Recipe) -> Callable[[Sequence[str]], list[Vector]] | None:
        """Return what embeds as the vectors of this recipe were made; None if that costs money or nobody here can.

        What it embeds belongs to no document; the length of each vector is one, or zero.
        """
        embedder = self._find_embedder(recipe)
        if embedder is None or embedder.provider.paid:
            return None
        return partial(_embed_normalized, embedder.provider.charge_to(None, PROBE))

    def read_vectors(self, recipe: Recipe, chunks: Sequence[int]) -> dict[int, Vector]:
        """Return the vectors of chunks, as far as they are known."""
        return self._store.read_vectors(recipe.id, chunks)

    def scan(self, recipe: Recipe, after: int, limit: int) -> list[int]:
        """Name the chunks that have a vector."""
        return self._store.scan(recipe.id, after, limit)

    def forget(self, recipe: Recipe) -> None:
        """Remove the table of a recipe."""
        self._store.forget(recipe.id)

    def tend(self, recipe: Recipe) -> None:
        """Keep queries quick where a recipe has grown large."""
        self._store.tend(recipe.id)

    def close(self) -> None:
        """Nothing was opened."""

    def _embed(
        self, work: Work, wants: Sequence[TextToEmbed], go_on: Callable[[int], None]
    ) -> Generator[ChunkVectors, None, None]:
        embedder = self._embedders.for_base(work.base)
        return embedder.embed(work.base, wants, go_on, length=self._store.dimension(work.recipe.id))

    def _write_vectors(self, work: Work, vectors: Mapping[int, bytes]) -> None:
        if vectors:
            with work.guarded() as tx:
                self.keep(tx, work.recipe.id, vectors)

    def _take_prepared(self, work: Work) -> dict[int, bytes]:
        """Take what is ready for a work; it is not needed a second time."""
        keys = [(work.recipe.id, piece.chunk) for piece in work.pieces]
        return {key[1]: self._prepared.pop(key) for key in keys if key in self._prepared}

    def _embed_query(self, recipe: Recipe, query: str) -> Vector | None:
        """Embed a query; None where it has no meaning, or there is nothing to compare it with."""
        length = self._store.dimension(recipe.id)
        if length is None:
            return None
        embedder = self._find_embedder(recipe)
        if embedder is None:
            raise model_gone(json.loads(recipe.spec).get("model"))
        return embedder.embed_query(recipe.id, query, length)

    def _find_embedder(self, recipe: Recipe) -> CachedEmbedder | None:
        return self._embedders.for_model(json.loads(recipe.spec).get("model"))


def model_gone(model: str) -> Permanent:
    """Say that nobody here embeds with the model that made an index."""
    name = model.rpartition("@")[0]
    return Permanent(
        "embedding_model_gone",
        f"The index was made with the embedding model {name!r}, which this server does not have. Set "
        "HOLDFAST_EMBEDDING_MODEL to it, or reindex the base with the model that is set.",
        params={"model": name},
    )


def open_vector_store(tools: Tools) -> VectorStore:
    """Return the shelf for the kind of database."""
    if tools.database.engine.dialect.name == "sqlite":
        from holdfast.indexes.sqlite import SqliteVectorStore  # noqa: PLC0415 - only what is used

        return SqliteVectorStore(tools.database)
    from holdfast.indexes.postgres import PostgresVectorStore  # noqa: PLC0415 - only what is used

    return PostgresVectorStore(tools.database)


def _embed_normalized(provider: Provider, texts: Sequence[str]) -> list[Vector]:
    answer = provider.embed(list(texts))
    return [row / norm if (norm := float((row @ row) ** 0.5)) else row for row in answer.vectors]


def _texts_to_embed(work: Work) -> list[TextToEmbed]:
    return [TextToEmbed(work.task.ticket, piece.chunk, piece.whole) for piece in work.pieces]
