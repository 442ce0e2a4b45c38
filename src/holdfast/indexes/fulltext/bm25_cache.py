"""Words of one recipe in memory: which chunks say a word and what that is worth. A copy for searching, never the truth.

Nothing is read before it is asked for: where a word stands comes from the database when somebody first asks for it,
and stays while there is room. So a rare word costs little and a common one is read once.

The copy stands for the chunks that were there when it was begun. What came since is looked up in the database; when
that becomes too much, a new copy is begun. A chunk costs 13 bytes, and 4 for each id up to the next where ids lie close
(`DENSE`); each word of it that is kept costs 12 (`COST`).
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

BYTES_PER_ENTRY = 12  # bytes
SAMPLE_STEP = 16  # one sum of so many is looked at first
MAX_IDS_PER_CHUNK = 2  # ids for each chunk, up to which it is noted of every id where it stands; else it is looked for
CHANGED_SHARE = 0.05  # of chunks that came or went, above which a copy is begun anew


class PostingList(NamedTuple):
    """Where a word is said, and what it counts there."""

    positions: NDArray[np.intp]
    scores: NDArray[np.float32]


class Postings:
    """The words of a number of chunks, in ascending order, each with its length in words."""

    def __init__(self, chunks: Chunks, lengths: NDArray[np.int64]) -> None:
        self._chunks_with_end = np.append(chunks, -1)  # what is past them all is none of them
        self._chunks = self._chunks_with_end[:-1]
        usual = max(float(lengths.mean()), 1.0) if len(lengths) else 1.0
        self._norms = (K1 * (1 - B + B * lengths / usual)).astype(np.float32)
        self._alive = np.ones(len(chunks), dtype=np.bool_)
        self._removed_positions: list[int] = []  # places
        self._words: OrderedDict[Hashable, PostingList] = OrderedDict()
        self.size = len(chunks)  # how much is kept: chunks, and chunks of words
        self.added_since: frozenset[int] = frozenset()  # chunks that came after it was begun
        self._first = int(chunks[0]) if len(chunks) else 0
        self._table: NDArray[np.int32] | None = None
        if len(chunks) and chunks[-1] - self._first < MAX_IDS_PER_CHUNK * len(chunks):
            self._table = np.zeros(chunks[-1] - self._first + 1, dtype=np.int32)
            self._table[chunks - self._first] = np.arange(len(chunks))

    def __contains__(self, word: Hashable) -> bool:
        return word in self._words

    def track_changes(self, chunks: Chunks) -> bool:
        """Note which chunks came and which went; tell whether the copy still stands for most of them.

        What is gone once, in anybody's snapshot, is no longer part of the copy: should it come back, it comes late.
        """
        self._alive &= np.isin(self._chunks, chunks, assume_unique=True)
        self._removed_positions = np.flatnonzero(~self._alive).tolist()
        came = np.setdiff1d(chunks, self._chunks[self._alive], assume_unique=True)
        self.added_since = frozenset(came.tolist())
        return len(self._removed_positions) + len(came) <= CHANGED_SHARE * len(self._chunks)

    def add_word(self, word: Hashable, said: Chunks, *, headed: NDArray[np.bool_]) -> None:
        """Keep who says a word, as often as it is said, and which of these times in headings. Late chunks are left out.

        Whoever says it once more follows at once; in which order chunks come does not matter otherwise.
        """
        begins = np.ones(len(said), dtype=np.bool_)
        np.not_equal(said[1:], said[:-1], out=begins[1:])
        firsts = np.flatnonzero(begins)
        times = np.add.reduceat(np.where(headed, HEADING_WEIGHT, BODY_WEIGHT), firsts) if len(said) else np.zeros(0)
        said = said[firsts]
        if (said[1:] <= said[:-1]).any():  # several words that begin alike
            said, where = np.unique(said, return_inverse=True)
            times = np.bincount(where, weights=times)
        places = self._guess_positions(said)
        known = self._chunks_with_end[places] == said
        if not known.all():
            places, times = places[known], times[known]
        weight = inverse_document_frequency(len(said), len(self._chunks)) * (K1 + 1)
        scores = weight * times / (times + self._norms[places])
        self._words[word] = PostingList(places, scores.astype(np.float32))
        self.size += len(places)

    def _guess_positions(self, said: Chunks) -> NDArray[np.intp]:
        """Return where chunks stand if they are there; where another stands, or none, if they are not."""
        if self._table is None:
            return np.searchsorted(self._chunks, said)
        return self._table.take(said - self._first, mode="clip").astype(np.intp)

    def evict_word(self) -> bool:
        """Forget the word that was not asked for the longest; tell whether there was one."""
        if not self._words:
            return False
        _, said = self._words.popitem(last=False)
        self.size -= len(said.positions)
        return True

    def find(self, words: Iterable[Hashable], limit: int, within: Sequence[int] | None) -> list[tuple[int, float]]:
        """Return the chunks with the highest BM25 for these words, all of which are kept; equal ones in their order."""
        sums = np.zeros(len(self._chunks), dtype=np.float32)
        for word in words:
            said = self._words[word]
            self._words.move_to_end(word)
            sums[said.positions] += said.scores
        if self._removed_positions:
            sums[self._removed_positions] = 0
        if within is not None:
            sums[~np.isin(self._chunks, np.fromiter(within, dtype=np.int64))] = 0
        places = _highest(sums, limit)
        order = places[np.lexsort((places, -sums[places]))[:limit]]
        return list(zip(self._chunks[order].tolist(), sums[order].tolist(), strict=True))


def _highest(sums: NDArray[np.float32], limit: int) -> NDArray[np.intp]:
    """Return where the highest sums stand, at least so many where there are; zero is none.

    What is too low even among a few of the sums is too low among all, so most are never sorted.
    """
    least = _find_threshold(sums[::SAMPLE_STEP], limit)
    places = np.flatnonzero(sums >= least) if least > 0 else np.flatnonzero(sums)
    return places[sums[places] >= _find_threshold(sums[places], limit)]


def _find_threshold(sums: NDArray[np.float32], limit: int) -> float:
    """Return the lowest of the highest sums; zero if there are fewer."""
    past = len(sums) - limit
    return float(np.partition(sums, past)[past]) if limit > 0 and past >= 0 else 0.0
