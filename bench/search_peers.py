"""Other programs that search the same vectors or words in this process: the local mode of Qdrant, and bm25s."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import bm25s
import numpy as np
from qdrant_client import QdrantClient, models

from holdfast.indexes.vector.index import open_vector_store

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.catalog import Base
    from holdfast.wiring import Library

LIMIT = 100
COLLECTION = "bench"
READ_ROWS = 5_000


def measure_peers(library: Library, base: Base, questions: Sequence[str]) -> dict[str, float]:
    """Return the median CPU milliseconds of each peer for the questions; without confirming hits."""
    return {
        "Qdrant, vectors": _measure(questions, _open_qdrant(library, base)),
        "bm25s, words": _measure(questions, _open_bm25s(library)),
    }


def _measure(questions: Sequence[str], ask: Callable[[str], object]) -> float:
    times = []
    for question in questions:
        started = time.process_time()
        ask(question)
        times.append(1000 * (time.process_time() - started))
    return round(sorted(times)[len(times) // 2], 2)


def _open_qdrant(library: Library, base: Base) -> Callable[[str], object]:
    """Fill a collection with the vectors of the base; each question is embedded as in Holdfast."""
    index: Any = library.indexes["vector"]
    recipe = library.indexes.recipes(base, "vector")[0]
    embed = index.get_free_embedder(recipe)
    client = QdrantClient(":memory:")
    after = 0
    store = open_vector_store(library.store.database)
    while rows := store.read_rows(recipe.id, after, READ_ROWS):
        after = rows[-1][0]
        vectors = np.frombuffer(b"".join(vector for _, vector in rows), dtype=np.float32).reshape(len(rows), -1)
        if not client.collection_exists(COLLECTION):
            size = vectors.shape[1]
            client.create_collection(
                COLLECTION, vectors_config=models.VectorParams(size=size, distance=models.Distance.COSINE)
            )
        client.upload_collection(COLLECTION, vectors=vectors, ids=[chunk for chunk, _ in rows])
    return lambda question: client.query_points(COLLECTION, query=embed([question])[0], limit=LIMIT)


def _open_bm25s(library: Library) -> Callable[[str], object]:
    with library.store.database.reading() as tx:
        texts = [text for (text,) in tx.run_sql("SELECT text FROM library_chunks")]
    retriever = bm25s.BM25()
    retriever.index(bm25s.tokenize(texts, show_progress=False), show_progress=False)

    def ask(question: str) -> object:
        words = bm25s.tokenize(question, show_progress=False)
        return retriever.retrieve(words, k=LIMIT, show_progress=False)

    return ask
