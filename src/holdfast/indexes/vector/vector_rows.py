"""Rows of vectors in memory: as numbers of four bytes, or compressed to one byte each.

A compressed row costs a quarter. Each row has its own scale, so the error of a cosine is below 0.005. Therefore a
search takes more compressed rows than it needs, and compares the best of them again with the vectors in the database.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdfast.llm import Matrix

LARGEST_CODE = 127
Number = TypeVar("Number", np.float32, np.int8)


class VectorRows(Protocol):
    """Rows by position."""

    def __len__(self) -> int: ...

    @property
    def bytes(self) -> int: ...

    def write(self, first: int, vectors: Matrix) -> None:
        """Write rows from a position on."""
        ...

    def read(self, positions: NDArray[np.int64] | slice) -> Matrix:
        """Return rows."""
        ...

    def grow(self, rows: int) -> None:
        """Make room for this many rows."""
        ...


class ExactRows:
    """Rows as they are."""

    def __init__(self, rows: int, dimension: int) -> None:
        self.vectors: Matrix = np.zeros((rows, dimension), dtype=np.float32)

    def __len__(self) -> int:
        return len(self.vectors)

    @property
    def bytes(self) -> int:
        return self.vectors.nbytes

    def write(self, first: int, vectors: Matrix) -> None:
        self.vectors[first : first + len(vectors)] = vectors

    def read(self, positions: NDArray[np.int64] | slice) -> Matrix:
        return self.vectors[positions]

    def grow(self, rows: int) -> None:
        self.vectors = _grown(self.vectors, rows)


class CompressedRows:
    """Rows of one byte for each number, and a scale."""

    def __init__(self, rows: int, dimension: int) -> None:
        self._codes: NDArray[np.int8] = np.zeros((rows, dimension), dtype=np.int8)
        self._scales: NDArray[np.float32] = np.zeros((rows, 1), dtype=np.float32)

    def __len__(self) -> int:
        return len(self._codes)

    @property
    def bytes(self) -> int:
        return self._codes.nbytes + self._scales.nbytes

    def write(self, first: int, vectors: Matrix) -> None:
        scales = np.abs(vectors).max(axis=1, keepdims=True) / LARGEST_CODE
        past = first + len(vectors)
        self._scales[first:past] = scales
        self._codes[first:past] = np.rint(vectors / np.where(scales == 0, 1, scales))

    def read(self, positions: NDArray[np.int64] | slice) -> Matrix:
        rows: Matrix = self._codes[positions] * self._scales[positions]
        return rows

    def grow(self, rows: int) -> None:
        self._codes, self._scales = _grown(self._codes, rows), _grown(self._scales, rows)


def _grown(rows: NDArray[Number], count: int) -> NDArray[Number]:
    return np.concatenate([rows, np.zeros((count - len(rows), rows.shape[1]), dtype=rows.dtype)])
