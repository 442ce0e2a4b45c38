"""Questions that a base itself answers, so that the expected hit of each channel is known.

From some chunks of a sample, a heading or a sentence is removed and becomes a question; the chunk without it is the
expected hit. Questions by a language model are used as they are, for chunks with several: the chunk loses the question
that is asked, and the rest of the chunk must be found.
"""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from holdfast.content import parse_query_terms, segment_text, sentence_starts
from holdfast.indexes.fulltext import (
    BODY_WEIGHT,
    HEADING_WEIGHT,
    fts5_tokenizer,
    split_headings,
    to_columns,
    to_fts5_query,
)
from holdfast.indexes.questions import combine_scores, rank_chunks
from holdfast.search.fusion import FULLTEXT, QUESTIONS, VECTOR, CalibrationSample, ChannelResult

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from holdfast.catalog import ChunkText
    from holdfast.indexes.questions import StoredPair
    from holdfast.llm import Vector

MAX_QUESTIONS = 100  # of each kind
SEED = 7
DEPTH = 100
MAX_QUESTION_CHARACTERS = 300
MIN_HEADING_CHARACTERS = 4
MIN_SENTENCE_CHARACTERS = 20
MIN_SENTENCES = 3  # in a chunk from which one is removed


class CalibrationQuestion(NamedTuple):
    """A question, and the chunk without the text of the question."""

    query: str
    piece: ChunkText


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationPool:
    """A sample with its words and vectors, in which the questions are searched.

    Other chunks of the expected document are neither right nor wrong, and are ignored.
    """

    pieces: Mapping[int, ChunkText]
    owners: Mapping[int, int]
    vectors: Mapping[int, Vector]
    embed: Callable[[Sequence[str]], list[Vector]]
    stemmed: bool = True  # as in the full-text index

    def ask_headings(self) -> Iterator[CalibrationSample]:
        """Ask for chunks by a heading that is removed from them, one per document."""
        return self._ask(list(_make_heading_questions(self.pieces, self.owners)))

    def ask_sentences(self) -> Iterator[CalibrationSample]:
        """Ask for chunks by a sentence that is removed from them, one per document."""
        return self._ask(list(_make_sentence_questions(self.pieces, self.owners)))

    def ask_pairs(
        self, known: Mapping[int, Sequence[StoredPair]], vectors: Mapping[int, Vector]
    ) -> Iterator[CalibrationSample]:
        """Ask for chunks by one of their questions, which is removed from them."""
        pairs = {pair.id: pair.pair for stored in known.values() for pair in stored}
        chunks = {pair.id: chunk for chunk, stored in known.items() for pair in stored}
        chosen = list(_choose_pairs(known, self.owners))
        meant = self.embed([pairs[id_].question for id_ in chosen]) if chosen else []
        texts = {id_: (segment_text(pair.question), segment_text(pair.answer)) for id_, pair in pairs.items()}
        with (
            closing(_index_in_memory(_columns(self.pieces), stemmed=self.stemmed)) as words,
            closing(_index_in_memory(texts)) as questions,
        ):
            for id_, vector in zip(chosen, meant, strict=True):
                target, query = chunks[id_], pairs[id_].question
                beside = self._other_chunks_of_document(target)
                left = {pair for pair in pairs if pair != id_ and chunks[pair] not in beside}
                by_words = {pair: score for pair, score in _search_words(questions, query) if pair in left}
                by_meaning = {pair: float(vectors[pair] @ vector) for pair in left if pair in vectors}
                fit = combine_scores(by_words, by_meaning, sum(by_meaning.values()) / max(len(by_meaning), 1))
                best = rank_chunks(fit, {pair: chunks[pair] for pair in fit})[:DEPTH]
                found = self._search_channels(target, query, vector, words, self.vectors)
                yield CalibrationSample(target, [*found, ChannelResult(name=QUESTIONS, hits=best)])

    def _ask(self, questions: Sequence[CalibrationQuestion]) -> Iterator[CalibrationSample]:
        changed = {question.piece.chunk: question.piece for question in questions}
        meant = self.embed([question.piece.whole for question in questions]) if questions else []
        near = {**self.vectors, **dict(zip(changed, meant, strict=True))}
        queries = [question.query for question in questions]
        with closing(_index_in_memory(_columns({**self.pieces, **changed}), stemmed=self.stemmed)) as words:
            for target, query, vector in zip(changed, queries, self.embed(queries) if queries else [], strict=True):
                yield CalibrationSample(target, self._search_channels(target, query, vector, words, near))

    def _other_chunks_of_document(self, target: int) -> set[int]:
        return {chunk for chunk in self.pieces if self.owners[chunk] == self.owners[target] and chunk != target}

    def _search_channels(
        self, target: int, query: str, vector: Vector, words: sqlite3.Connection, vectors: Mapping[int, Vector]
    ) -> list[ChannelResult]:
        """Return the results of full text and vectors for a question."""
        beside = self._other_chunks_of_document(target)
        near = {chunk: float(known @ vector) for chunk, known in vectors.items() if chunk not in beside}
        best = sorted(near.items(), key=lambda hit: (-hit[1], hit[0]))
        by_words = [hit for hit in _search_words(words, query) if hit[0] not in beside]
        others = {chunk: near[chunk] for chunk, _ in by_words if chunk in near}
        floor = sum(near.values()) / max(len(near), 1)
        return [
            ChannelResult(name=FULLTEXT, hits=by_words),
            ChannelResult(name=VECTOR, hits=best[:DEPTH], floor=floor, others=others),
        ]


def _make_heading_questions(
    pieces: Mapping[int, ChunkText], owners: Mapping[int, int]
) -> Iterator[CalibrationQuestion]:
    seen: set[int] = set()
    for chunk, piece in pieces.items():
        if owners[chunk] in seen or len(seen) == MAX_QUESTIONS:
            continue
        own, body = split_headings(piece.text)
        heading = own or (piece.headings[-1] if piece.headings else "")
        if len(heading) >= MIN_HEADING_CHARACTERS:
            seen.add(owners[chunk])
            left = piece._replace(text=body) if own else piece._replace(headings=piece.headings[:-1])
            yield CalibrationQuestion(heading[:MAX_QUESTION_CHARACTERS], left)


def _make_sentence_questions(
    pieces: Mapping[int, ChunkText], owners: Mapping[int, int]
) -> Iterator[CalibrationQuestion]:
    chance = random.Random(SEED)  # noqa: S311 - reproducible questions
    seen: set[int] = set()
    for chunk, piece in pieces.items():
        found = _long_sentences(piece.text)
        if owners[chunk] in seen or len(seen) == MAX_QUESTIONS or len(found) < MIN_SENTENCES:
            continue
        seen.add(owners[chunk])
        sentence = chance.choice(found)
        yield CalibrationQuestion(
            sentence[:MAX_QUESTION_CHARACTERS], piece._replace(text=piece.text.replace(sentence, " ", 1))
        )


def _long_sentences(text: str) -> list[str]:
    """Return the sentences that are long enough for a question."""
    starts = [0, *sentence_starts(text, 0, len(text)), len(text)]
    found = (text[first:past].strip() for first, past in pairwise(starts))
    return [sentence for sentence in found if len(sentence) > MIN_SENTENCE_CHARACTERS]


def _choose_pairs(known: Mapping[int, Sequence[StoredPair]], owners: Mapping[int, int]) -> Iterator[int]:
    """Choose one question per document, of chunks with several."""
    chance = random.Random(SEED)  # noqa: S311 - reproducible questions
    seen: set[int] = set()
    for chunk, pairs in known.items():
        if len(pairs) > 1 and owners[chunk] not in seen and len(seen) < MAX_QUESTIONS:
            seen.add(owners[chunk])
            yield chance.choice(pairs).id


def _columns(pieces: Mapping[int, ChunkText]) -> dict[int, tuple[str, str]]:
    return {chunk: to_columns(piece) for chunk, piece in pieces.items()}


def _index_in_memory(texts: Mapping[int, tuple[str, str]], *, stemmed: bool = True) -> sqlite3.Connection:
    words = sqlite3.connect(":memory:")
    words.execute(
        f"CREATE VIRTUAL TABLE words USING fts5(headings, body, tokenize = '{fts5_tokenizer(stemmed=stemmed)}')"
    )
    rows = [(id_, *text) for id_, text in texts.items()]
    words.executemany("INSERT INTO words (rowid, headings, body) VALUES (?, ?, ?)", rows)
    return words


def _search_words(words: sqlite3.Connection, query: str) -> list[tuple[int, float]]:
    match = to_fts5_query(parse_query_terms(query))
    if not match:
        return []
    sql = "SELECT rowid, -bm25(words, ?, ?) AS score FROM words WHERE words MATCH ? ORDER BY score DESC, rowid LIMIT ?"
    return words.execute(sql, [HEADING_WEIGHT, BODY_WEIGHT, match, DEPTH]).fetchall()
