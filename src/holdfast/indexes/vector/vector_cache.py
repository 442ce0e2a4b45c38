"""Vectors of one recipe in memory, a copy of the database for searching.

Up to `MAX_EXACT_ROWS` rows, a query is compared with every vector. Above that, vectors are compressed
(`indexes.vector.vector_rows`); the signs of their numbers are compared first, as bits, and only the best candidates by
all numbers. The signs are relative to the mean vector, because real embeddings are far from the origin.

A row costs 4 bytes for each number, above `MAX_EXACT_ROWS` one byte, one bit for each sign, and about 120 bytes. New
rows are appended; the signs are recomputed only when the number of rows has doubled.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from threadpoolctl import ThreadpoolController

from holdfast.indexes.vector.vector_rows import CompressedRows, ExactRows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from holdfast.indexes.vector.vector_rows import VectorRows
    from holdfast.llm import Matrix, Vector

MAX_EXACT_ROWS = 10_000
RESCORED = 2_000  # candidates by sign that are compared exactly
INITIAL_ROWS = 1_024
BYTES_PER_ROW = 120  # beside its numbers and signs
READ_ROWS = 8_192  # rows that are converted at once, to save memory
BLOCK_ROWS = 256  # rows per comparison; few enough to stay in the CPU cache


@cache
def _threads() -> ThreadpoolController:
    """Return the controller of the BLAS threads: two threads on two busy cores wait for each other."""
    return ThreadpoolController()


class VectorCache:
    """Normalised vectors by chunk."""

    def __init__(self, dimension: int) -> None:
        self.dimension = dimension
        self._rows: VectorRows = ExactRows(INITIAL_ROWS, dimension)
        self._chunks: NDArray[np.int64] = np.zeros(INITIAL_ROWS, dtype=np.int64)
        self._alive: NDArray[np.bool_] = np.zeros(INITIAL_ROWS, dtype=np.bool_)
        self._positions: dict[int, int] = {}
        self._used = 0
        self._sum: NDArray[np.float64] = np.zeros(dimension, dtype=np.float64)
        self._mean: Vector = np.zeros(dimension, dtype=np.float32)
        self._mean_row_count = 0  # rows when the mean was computed
        self._signs: NDArray[np.uint64] = np.zeros((-(-dimension // 64), 0), dtype=np.uint64)  # by word, not by row

    def __len__(self) -> int:
        return len(self._positions)

    @property
    def bytes(self) -> int:
        """The memory of this copy, about."""
        return self._rows.bytes + self._signs.nbytes + BYTES_PER_ROW * len(self._chunks)

    @property
    def is_exact(self) -> bool:
        """Whether scores are exact; otherwise rows are compressed."""
        return isinstance(self._rows, ExactRows)

    def add(self, chunks: Sequence[int], vectors: Matrix) -> None:
        """Add rows, normalised to length one; a zero vector stays zero. A known chunk is replaced."""
        self.discard(chunks)
        first, self._used = self._used, self._used + len(chunks)
        if self._used > len(self._chunks):
            self._grow(max(self._used, 2 * len(self._chunks)))
        if self._used > MAX_EXACT_ROWS and self.is_exact:
            self._compress(first)
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        normalised: Matrix = (vectors / np.where(norms == 0, 1, norms)).astype(np.float32)
        self._rows.write(first, normalised)
        self._chunks[first : self._used] = chunks
        self._alive[first : self._used] = True
        self._positions.update(zip(chunks, range(first, self._used), strict=True))
        self._sum += normalised.sum(axis=0, dtype=np.float64)

    def discard(self, chunks: Sequence[int]) -> None:
        """Remove rows; unknown chunks are ignored."""
        positions = [position for chunk in chunks if (position := self._positions.pop(chunk, None)) is not None]
        self._alive[positions] = False
        if positions:
            self._sum -= self._rows.read(np.array(positions)).sum(axis=0, dtype=np.float64)

    def find(self, query: Vector, limit: int, within: Sequence[int] | None = None) -> list[tuple[int, float]]:
        """Return the nearest chunks by cosine, best first."""
        norm = float(np.linalg.norm(query))
        if norm == 0 or not self._positions:
            return []
        query = (query / norm).astype(np.float32)
        if within is not None:
            positions = np.fromiter(
                (self._positions[chunk] for chunk in dict.fromkeys(within) if chunk in self._positions), dtype=np.int64
            )
            return self._score_rows(positions, query, limit)
        if self._used > MAX_EXACT_ROWS:
            return self._score_rows(self._find_candidates(query, max(RESCORED, 4 * limit)), query, limit)
        with _threads().limit(limits=1, user_api="blas"):
            scores = self._rows.read(slice(self._used)) @ query
        scores[~self._alive[: self._used]] = -np.inf
        return self._ranked(np.arange(self._used), scores, min(limit, len(self._positions)))

    def scores(self, query: Vector, chunks: Sequence[int]) -> dict[int, float]:
        """Return the cosine of the known chunks among these."""
        return dict(self.find(query, len(chunks), within=chunks))

    def mean_score(self, query: Vector) -> float:
        """Return the mean cosine over all rows."""
        norm = float(np.linalg.norm(query))
        if norm == 0 or not self._positions:
            return 0.0
        return float(self._sum @ query) / norm / len(self._positions)

    def _score_rows(self, positions: NDArray[np.int64], query: Vector, limit: int) -> list[tuple[int, float]]:
        # Not a matrix product: it would wake BLAS threads, which costs more than these few rows.
        scores = np.empty(len(positions), dtype=np.float32)
        for first in range(0, len(positions), BLOCK_ROWS):
            rows = self._rows.read(positions[first : first + BLOCK_ROWS])
            np.vecdot(rows, query, out=scores[first : first + BLOCK_ROWS])
        return self._ranked(positions, scores, limit)

    def _ranked(self, positions: NDArray[np.int64], scores: Vector, limit: int) -> list[tuple[int, float]]:
        """Sort the best rows; equal scores by chunk, so that the same query gives the same order."""
        if limit < len(scores):
            best = np.flatnonzero(scores >= np.partition(scores, len(scores) - limit)[len(scores) - limit])
            positions, scores = positions[best], scores[best]
        chunks = self._chunks[positions]
        order = np.lexsort((chunks, -scores))[:limit]
        return list(zip(chunks[order].tolist(), scores[order].tolist(), strict=True))

    def _find_candidates(self, query: Vector, count: int) -> NDArray[np.int64]:
        """Return the positions with the fewest different signs: `count`, and all ties with the last."""
        self._update_signs()
        query_signs = self._pack_signs(query[None, :])[:, 0]
        distance = np.zeros(self._used, dtype=np.uint16)
        for signs, word in zip(self._signs, query_signs, strict=True):
            distance += np.bitwise_count(signs ^ word)
        if len(self._positions) < self._used:
            distance[~self._alive[: self._used]] = 1 + self.dimension
        last = min(count, len(self._positions)) - 1
        return np.flatnonzero(distance <= np.partition(distance, last)[last])

    def _update_signs(self) -> None:
        """Compute the signs of new rows; of all rows, around a new mean, when the rows have doubled."""
        if self._used > 2 * self._mean_row_count:
            self._mean, self._mean_row_count = self._compute_mean(), self._used
            self._signs = self._signs[:, :0]
        if (signed := self._signs.shape[1]) < self._used:
            parts = [self._pack_signs(self._rows.read(part)) for part in _blocks(signed, self._used)]
            self._signs = np.concatenate([self._signs, *parts], axis=1)

    def _compute_mean(self) -> Vector:
        sums = [self._rows.read(part).sum(axis=0, dtype=np.float64) for part in _blocks(0, self._used)]
        mean: Vector = (sum(sums) / self._used).astype(np.float32)
        return mean

    def _compress(self, used: int) -> None:
        """Compress the rows in use, and from now on every new one."""
        rows = CompressedRows(len(self._rows), self.dimension)
        for part in _blocks(0, used):
            rows.write(part.start, self._rows.read(part))
        self._rows = rows

    def _pack_signs(self, vectors: Matrix) -> NDArray[np.uint64]:
        """Return the signs relative to the mean, packed into 64-bit words, one row of words per 64 numbers."""
        bits = np.packbits(vectors > self._mean, axis=1)
        whole = np.zeros((len(bits), 8 * len(self._signs)), dtype=np.uint8)
        whole[:, : bits.shape[1]] = bits
        return np.ascontiguousarray(whole.view(np.uint64).T)

    def _grow(self, room: int) -> None:
        more = room - len(self._chunks)
        self._rows.grow(room)
        self._chunks = np.concatenate([self._chunks, np.zeros(more, dtype=np.int64)])
        self._alive = np.concatenate([self._alive, np.zeros(more, dtype=np.bool_)])


def _blocks(first: int, past: int) -> list[slice]:
    return [slice(start, min(start + READ_ROWS, past)) for start in range(first, past, READ_ROWS)]
