"""Question-and-answer pairs of chunks, and their store.

A mark says that the pairs of a chunk are written, even if there are none. The words and vectors of a pair are in two
row stores under the id of the pair. One transaction writes mark, pairs, words and vectors. Removal starts with words
and vectors and ends with the mark, so that a scan still finds a chunk that is removed only in part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.content import parse_query_terms, segment_text
from holdfast.indexes.base import Found
from holdfast.indexes.fulltext.index import open_fulltext_store
from holdfast.indexes.questions import statements as sql
from holdfast.indexes.questions.prompt import MAX_PAIRS, QuestionPair
from holdfast.indexes.questions.tables import question_chunks
from holdfast.indexes.vector.index import open_vector_store
from holdfast.indexes.written_chunks import WrittenChunks

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast.db import Database, Transaction
    from holdfast.engine import Slot
    from holdfast.indexes.search_memory import SearchMemory
    from holdfast.llm import Vector

WRITTEN = WrittenChunks(question_chunks)
WORDS_PREFIX, VECTORS_PREFIX = "question_words", "question_vectors"  # prefixes of table names
DELETE_BATCH = 50  # chunks per transaction
VECTOR_SHARE = 0.25  # share of the similarity in a score; the quality of the model is not measured


class StoredPair(NamedTuple):
    """A pair with its id."""

    id: int
    pair: QuestionPair


class PairStore:
    """Stores pairs by recipe and chunk, and finds them by words and meaning."""

    def __init__(self, database: Database, *, memory: SearchMemory | None = None) -> None:
        self._database = database
        self._words = open_fulltext_store(database, WORDS_PREFIX, memory=memory)
        self._vectors = open_vector_store(database, VECTORS_PREFIX, memory=memory)

    def absent(self, recipe: int, chunks: Sequence[int]) -> list[int]:
        """Return the chunks whose pairs are not written."""
        with self._database.reading() as tx:
            have = WRITTEN.find(tx, recipe, chunks)
        return [chunk for chunk in chunks if chunk not in have]

    def read_pairs(self, recipe: int, chunks: Sequence[int]) -> dict[int, list[StoredPair]]:
        """Return the pairs of each chunk, in order."""
        found: dict[int, list[StoredPair]] = {chunk: [] for chunk in chunks}
        with self._database.reading() as tx:
            rows = tx.run(sql.SELECT_PAIRS_OF_CHUNKS, [[chunk] for chunk in chunks], recipe=recipe)
        for id_, chunk, _, question, answer in sorted(rows, key=lambda row: (row[1], row[2])):
            found[chunk].append(StoredPair(id_, QuestionPair(question=question, answer=answer)))
        return found

    def read_vectors(self, recipe: int, ids: Sequence[int]) -> dict[int, Vector]:
        """Return the vectors of questions by pair id, normalised to length one."""
        return self._vectors.read_vectors(recipe, ids)

    def dimension(self, recipe: int) -> int | None:
        """Return the dimension of the vectors; None if there is none yet."""
        return self._vectors.dimension(recipe)

    def put(self, tx: Transaction, recipe: int, made: Mapping[int, Sequence[tuple[QuestionPair, bytes]]]) -> None:
        """Write the pairs of chunks that have none yet, each with the vector of its question."""
        new = WRITTEN.mark(tx, recipe, list(made))
        rows = [
            [recipe, chunk, position, pair.question, pair.answer]
            for chunk in made
            if chunk in new
            for position, (pair, _) in enumerate(made[chunk])
        ]
        written = {id_: made[chunk][position] for id_, chunk, position in tx.run(sql.PUT_PAIRS, rows)}
        if written:
            texts = {
                id_: (segment_text(pair.question), segment_text(pair.answer)) for id_, (pair, _) in written.items()
            }
            self._words.put(tx, recipe, texts)
            self._vectors.put(tx, recipe, {id_: vector for id_, (_, vector) in written.items()})

    def drop(self, recipe: int, chunks: Sequence[int]) -> None:
        """Remove the pairs of chunks with their words, vectors and cards, and the marks last."""
        with self._database.reading() as tx:
            known = sorted(WRITTEN.find(tx, recipe, chunks))
        for first in range(0, len(known), DELETE_BATCH):
            portion = known[first : first + DELETE_BATCH]
            ids = self._ids(recipe, portion)
            self._words.drop(recipe, ids)
            self._vectors.drop(recipe, ids)

            def work(tx: Transaction, portion: Sequence[int] = portion, ids: Sequence[int] = ids) -> None:
                tx.run(sql.DROP_CARDS, [[id_] for id_ in ids])
                tx.run(sql.DROP_PAIRS, [[id_] for id_ in ids])
                tx.run(sql.DELETE_WRITTEN_CHUNKS, [[chunk] for chunk in portion], recipe=recipe)

            self._database.write(work, durable=False)

    def find(
        self, recipe: int, query: str, meaning: Vector | None, limit: int, within: Sequence[int] | None
    ) -> list[Found]:
        """Return the chunks whose best pair fits the query; without a vector, by words alone."""
        allowed = None if within is None else self._ids(recipe, within)
        pairs = limit * MAX_PAIRS  # enough for `limit` chunks
        scores = self._score_pairs(recipe, query, meaning, pairs, allowed)
        with self._database.reading() as tx:
            rows = tx.run(sql.SELECT_CHUNKS_OF_PAIRS, [[id_] for id_ in scores], recipe=recipe)
        return [Found(*hit) for hit in rank_chunks(scores, dict(rows))[:limit]]

    def forget(self, recipe: int) -> None:
        self._words.forget(recipe)
        self._vectors.forget(recipe)

    def scan(self, recipe: int, after: int, limit: int) -> list[int]:
        with self._database.reading() as tx:
            return WRITTEN.scan(tx, recipe, after, limit)

    def _score_pairs(
        self, recipe: int, query: str, meaning: Vector | None, limit: int, within: Sequence[int] | None
    ) -> dict[int, float]:
        """Return the combined scores of pairs by words and by meaning."""
        by_words = dict(self._words.find(recipe, parse_query_terms(query), limit, within))
        by_meaning: dict[int, float] = {}
        floor = 0.0
        if meaning is not None and meaning.any():
            by_meaning = dict(self._vectors.find(recipe, meaning, limit, within))
            others, floor = self._vectors.scores(recipe, meaning, [id_ for id_ in by_words if id_ not in by_meaning])
            by_meaning |= others
        return combine_scores(by_words, by_meaning, floor)

    def _ids(self, recipe: int, chunks: Sequence[int]) -> list[int]:
        return [pair.id for pairs in self.read_pairs(recipe, chunks).values() for pair in pairs]


def combine_scores(by_words: Mapping[int, float], by_meaning: Mapping[int, float], floor: float) -> dict[int, float]:
    """Return the scores of pairs from 0 to 1, from their word scores and similarities (`floor`: the mean)."""
    words, meanings = _normalize_scores(by_words, 0.0), _normalize_scores(by_meaning, floor)
    scores = {
        id_: (1 - VECTOR_SHARE) * words.get(id_, 0.0) + VECTOR_SHARE * meanings.get(id_, 0.0)
        for id_ in {**by_words, **by_meaning}
    }
    return {id_: score for id_, score in scores.items() if score > 0}


def rank_chunks(scores: Mapping[int, float], chunks: Mapping[int, int]) -> list[tuple[int, float]]:
    """Return chunks with the score of their best pair, best first."""
    best: dict[int, float] = {}
    for id_, chunk in chunks.items():
        best[chunk] = max(scores[id_], best.get(chunk, 0.0))
    return sorted(best.items(), key=lambda hit: (-hit[1], hit[0]))


def _normalize_scores(scores: Mapping[int, float], floor: float) -> dict[int, float]:
    """Scale scores from 0 at the floor to 1 at the best; empty if the best is not above the floor."""
    span = max(scores.values(), default=floor) - floor
    return {id_: (score - floor) / span for id_, score in scores.items()} if span > 0 else {}


def read_document_pairs(tx: Transaction, slot: Slot, after: int, limit: int) -> list[tuple[Any, ...]]:
    """Return chunk, question and answer of the pairs that a slot serves, from offset `after`."""
    return tx.run(
        sql.SELECT_PAIRS_IN_LIST,
        recipe=slot.recipe,
        owner_id=slot.owner_id,
        build=slot.source,
        offset=after,
        limit=limit,
    )
