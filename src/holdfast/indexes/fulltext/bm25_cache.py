"""Words of one recipe in memory: which chunks contain a word, with scores. A copy of the database for searching.

The posting list of a word is read from the database at its first use and stays while there is room. So a rare word
costs little, and a common word is read once.

The copy covers the chunks that existed when it was started. Later chunks are searched in the database; when too many
have changed, a new copy is started. A chunk costs 13 bytes, plus 4 for each id in its range where ids are dense
(`MAX_IDS_PER_CHUNK`); each entry of a posting list costs `BYTES_PER_ENTRY`.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from holdfast.indexes.fulltext.index import BODY_WEIGHT, HEADING_WEIGHT, K1, B, inverse_document_frequency

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

    from numpy.typing import NDArray

    Chunks = NDArray[np.int64]

BYTES_PER_ENTRY = 12
SAMPLE_STEP = 16  # every 16th sum is in the sample
MAX_IDS_PER_CHUNK = 2  # up to this density, a table maps ids to positions; else binary search
CHANGED_SHARE = 0.05  # of added and removed chunks, above which a new copy is started


class PostingList(NamedTuple):
    """The chunks that contain a word, as positions, and its score in each."""

    positions: NDArray[np.intp]
    scores: NDArray[np.float32]


class Postings:
    """The posting lists over some chunks, given in ascending order with their lengths in words."""

    def __init__(self, chunks: Chunks, lengths: NDArray[np.int64]) -> None:
        self._chunks_with_end = np.append(chunks, -1)  # a sentinel for positions past the end
        self._chunks = self._chunks_with_end[:-1]
        usual = max(float(lengths.mean()), 1.0) if len(lengths) else 1.0
        self._norms = (K1 * (1 - B + B * lengths / usual)).astype(np.float32)
        self._alive = np.ones(len(chunks), dtype=np.bool_)
        self._removed_positions: list[int] = []
        self._words: OrderedDict[Hashable, PostingList] = OrderedDict()
        self.size = len(chunks)  # chunks plus entries of posting lists
        self.added_since: frozenset[int] = frozenset()  # chunks that were added after the copy was started
        self._first = int(chunks[0]) if len(chunks) else 0
        self._table: NDArray[np.int32] | None = None
        if len(chunks) and chunks[-1] - self._first < MAX_IDS_PER_CHUNK * len(chunks):
            self._table = np.zeros(chunks[-1] - self._first + 1, dtype=np.int32)
            self._table[chunks - self._first] = np.arange(len(chunks))

    def __contains__(self, word: Hashable) -> bool:
        return word in self._words

    def track_changes(self, chunks: Chunks) -> bool:
        """Update which chunks were added and removed; return whether the copy still covers most of them.

        A chunk that was missing in any snapshot is out of the copy for good; if it comes back, it counts as added.
        """
        self._alive &= np.isin(self._chunks, chunks, assume_unique=True)
        self._removed_positions = np.flatnonzero(~self._alive).tolist()
        came = np.setdiff1d(chunks, self._chunks[self._alive], assume_unique=True)
        self.added_since = frozenset(came.tolist())
        return len(self._removed_positions) + len(came) <= CHANGED_SHARE * len(self._chunks)

    def add_word(self, word: Hashable, chunks: Chunks, *, headed: NDArray[np.bool_]) -> None:
        """Add the posting list of a word; `chunks` has one chunk for each occurrence, `headed` those in headings.

        Occurrences in the same chunk must be adjacent; the order of chunks does not matter. Chunks outside the copy are
        left out.
        """
        begins = np.ones(len(chunks), dtype=np.bool_)
        np.not_equal(chunks[1:], chunks[:-1], out=begins[1:])
        firsts = np.flatnonzero(begins)
        times = np.add.reduceat(np.where(headed, HEADING_WEIGHT, BODY_WEIGHT), firsts) if len(chunks) else np.zeros(0)
        chunks = chunks[firsts]
        if (chunks[1:] <= chunks[:-1]).any():  # several words with the same prefix
            chunks, where = np.unique(chunks, return_inverse=True)
            times = np.bincount(where, weights=times)
        positions = self._guess_positions(chunks)
        known = self._chunks_with_end[positions] == chunks
        if not known.all():
            positions, times = positions[known], times[known]
        weight = inverse_document_frequency(len(chunks), len(self._chunks)) * (K1 + 1)
        scores = weight * times / (times + self._norms[positions])
        self._words[word] = PostingList(positions, scores.astype(np.float32))
        self.size += len(positions)

    def _guess_positions(self, chunks: Chunks) -> NDArray[np.intp]:
        """Return the positions of chunks; for a chunk outside the copy, an arbitrary position."""
        if self._table is None:
            return np.searchsorted(self._chunks, chunks)
        return self._table.take(chunks - self._first, mode="clip").astype(np.intp)

    def evict_word(self) -> bool:
        """Evict the least recently used word; return whether there was one."""
        if not self._words:
            return False
        _, postings = self._words.popitem(last=False)
        self.size -= len(postings.positions)
        return True

    def find(self, words: Iterable[Hashable], limit: int, within: Sequence[int] | None) -> list[tuple[int, float]]:
        """Return the chunks with the best BM25 score for these cached words; equal scores in order of the chunks."""
        sums = np.zeros(len(self._chunks), dtype=np.float32)
        for word in words:
            postings = self._words[word]
            self._words.move_to_end(word)
            sums[postings.positions] += postings.scores
        if self._removed_positions:
            sums[self._removed_positions] = 0
        if within is not None:
            sums[~np.isin(self._chunks, np.fromiter(within, dtype=np.int64))] = 0
        positions = _highest(sums, limit)
        order = positions[np.lexsort((positions, -sums[positions]))[:limit]]
        return list(zip(self._chunks[order].tolist(), sums[order].tolist(), strict=True))


def _highest(sums: NDArray[np.float32], limit: int) -> NDArray[np.intp]:
    """Return the positions of the highest sums, at least `limit` if there are as many above zero.

    A sum that is too low within a sample is too low overall, so most sums are never sorted.
    """
    least = _find_threshold(sums[::SAMPLE_STEP], limit)
    positions = np.flatnonzero(sums >= least) if least > 0 else np.flatnonzero(sums)
    return positions[sums[positions] >= _find_threshold(sums[positions], limit)]


def _find_threshold(sums: NDArray[np.float32], limit: int) -> float:
    """Return the `limit`-th highest sum; 0 if there are fewer."""
    past = len(sums) - limit
    return float(np.partition(sums, past)[past]) if limit > 0 and past >= 0 else 0.0
