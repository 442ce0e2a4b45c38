"""How far each channel is trusted on a base, measured on questions that the base itself answers.

A sample of chunks is taken out. From some of them a heading or a sentence is removed and becomes a question; the chunk
that lost it is the answer. What the channels make of these questions, among the sample, tells their weights. How far
names lead anywhere is measured on the graph itself. Measured once in a process, and again when a base has doubled.

Where embedding costs money nothing is asked: the weights are then what is assumed before anything is measured.
"""

from __future__ import annotations

import random
import sqlite3
import time
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, cast

from holdfast.content.segmenting import terms
from holdfast.content.units import sentence_starts
from holdfast.indexes.fulltext import BODY, HEADINGS, columns, headed, match
from holdfast.indexes.graph_rows import NAMED
from holdfast.library import statements as sql
from holdfast.library.builds import Builds, Piece
from holdfast.search.fusion import Channel, Sample, calibrate
from holdfast.search.walking import trust

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from holdfast.indexes.graph import GraphIndex
    from holdfast.indexes.registry import Indexes
    from holdfast.indexes.vector import VectorIndex
    from holdfast.library.catalogue import Base, Recipe
    from holdfast.providers.base import Vector
    from holdfast.search.tying import Ties
    from holdfast.stores.database import Database

POOL = 2_000  # chunks among which the answers are looked for
QUESTIONS = 100  # of each kind
DOCUMENTS = 200  # that are looked at for whether another one names them
SEED = 7
MORE = 2  # times as many chunks: then it is measured again
BELIEVED_SECONDS = 60.0
DEPTH = 100
LONGEST = 300  # characters of a question
SHORTEST = 4
ENOUGH = 20  # characters of a sentence that says something
FEWEST = 3  # sentences of a chunk that can spare one
NAMES = ("fulltext", "vector")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What was measured of a base."""

    weights: Mapping[str, float]
    ties: float  # how far names lead anywhere
    recipes: Mapping[str, Recipe]
    chunks: int  # a moment ago
    measured_at: int  # chunks when it was measured
    until: float  # it is believed until then


class Question(NamedTuple):
    """A chunk that lost a part of itself, and that part."""

    asked: str
    piece: Piece


class Calibrations:
    """Remembers what was measured of each base."""

    def __init__(self, database: Database, indexes: Indexes) -> None:
        self._database = database
        self._indexes = indexes
        self._builds = Builds(database)
        self._known: dict[str, Measured] = {}

    def of(self, base: Base, recipes: Mapping[str, Recipe], ties: Ties | None) -> Measured:
        """Return what is known of a base; measure it if it is new or has doubled."""
        known = self._known.get(base.key)
        if known is not None and time.monotonic() < known.until:
            return known
        with self._database.reading() as tx:
            ((chunks,),) = tx.run(sql.COUNT_CHUNKS, base=base.key)
        until = time.monotonic() + BELIEVED_SECONDS
        if known is not None and known.recipes == recipes and chunks <= MORE * known.measured_at:
            known = replace(known, chunks=chunks, until=until)
        else:
            sample = self._sample(base)
            known = Measured(
                weights=self._weights(sample, recipes),
                ties=self._trust(sample, recipes, ties),
                recipes=dict(recipes),
                chunks=chunks,
                measured_at=chunks,
                until=until,
            )
        self._known[base.key] = known
        return known

    def forget(self) -> None:
        """Forget what was measured."""
        self._known.clear()

    def _sample(self, base: Base) -> dict[int, int]:
        """Choose some chunks, always the same of the same base; return whose each is."""
        with self._database.reading() as tx:
            rows = tx.run(sql.CHUNKS_OF_BASE, base=base.key)
        chance = random.Random(SEED)  # noqa: S311 - the same sample each time is what is wanted
        return dict(chance.sample(rows, min(POOL, len(rows))))

    def _weights(self, sample: Mapping[int, int], recipes: Mapping[str, Recipe]) -> Mapping[str, float]:
        """Ask the sample questions, and weigh the channels by their answers."""
        if not all(name in recipes for name in NAMES):
            return dict.fromkeys(recipes, 1.0)
        index = cast("VectorIndex", self._indexes["vector"])
        if index.paid or not sample:
            return calibrate([], NAMES)
        pieces = {piece.chunk: piece for piece in self._builds.pieces(list(sample))}
        vectors = index.vectors(recipes["vector"], list(pieces))
        measured = [
            calibrate(samples, NAMES)
            for make in (_headings, _sentences)
            if (samples := list(_asked(list(make(pieces, sample)), pieces, vectors, index, sample)))
        ]
        # A channel that helps with one kind of question only is trusted as far as it helps with the other.
        return max(measured, key=lambda weights: weights[NAMES[0]], default=calibrate([], NAMES))

    def _trust(self, sample: Mapping[int, int], recipes: Mapping[str, Recipe], ties: Ties | None) -> float:
        """Look how many documents another one names."""
        if ties is None:
            return 0.0
        graph = cast("GraphIndex", self._indexes["graph"])
        roles = graph.named(recipes["graph"], list(sample))
        chosen: dict[int, list[tuple[str, str]]] = {}
        for chunk, owner in sample.items():
            some = [(key, role) for key, role in roles[chunk] if role != NAMED]
            if some:
                chosen.setdefault(owner, []).extend(some)
        asked = dict(list(chosen.items())[:DOCUMENTS])
        naming = ties.naming([one for some in asked.values() for one in some])
        with self._database.reading() as tx:
            rows = tx.run(sql.OWNERS_OF, [[chunk] for chunk in {one for some in naming.values() for one in some}])
        owners = dict(rows)
        named = sum(
            any(owners.get(chunk, owner) != owner for key, _ in some for chunk in naming[key])
            for owner, some in asked.items()
        )
        return trust(named, len(asked))


def _headings(pieces: Mapping[int, Piece], owners: Mapping[int, int]) -> Iterator[Question]:
    """Ask for chunks by a heading that they lose, one of each document."""
    seen: set[int] = set()
    for chunk, piece in pieces.items():
        if owners[chunk] in seen or len(seen) == QUESTIONS:
            continue
        own, body = headed(piece.text)
        asked = own or (piece.headings[-1] if piece.headings else "")
        if len(asked) >= SHORTEST:
            seen.add(owners[chunk])
            left = piece._replace(text=body) if own else piece._replace(headings=piece.headings[:-1])
            yield Question(asked[:LONGEST], left)


def _sentences(pieces: Mapping[int, Piece], owners: Mapping[int, int]) -> Iterator[Question]:
    """Ask for chunks by a sentence that they lose, one of each document."""
    chance = random.Random(SEED)  # noqa: S311 - the same questions each time
    seen: set[int] = set()
    for chunk, piece in pieces.items():
        found = _long_sentences(piece.text)
        if owners[chunk] in seen or len(seen) == QUESTIONS or len(found) < FEWEST:
            continue
        seen.add(owners[chunk])
        asked = chance.choice(found)
        yield Question(asked[:LONGEST], piece._replace(text=piece.text.replace(asked, " ", 1)))


def _long_sentences(text: str) -> list[str]:
    """Return the sentences of a text that say enough to be asked for."""
    starts = [0, *sentence_starts(text, 0, len(text)), len(text)]
    found = (text[first:past].strip() for first, past in pairwise(starts))
    return [one for one in found if len(one) > ENOUGH]


def _asked(
    questions: Sequence[Question],
    pieces: Mapping[int, Piece],
    vectors: Mapping[int, Vector],
    index: VectorIndex,
    owners: Mapping[int, int],
) -> Iterator[Sample]:
    """Ask the questions among the pieces; the other chunks of the document that is meant are no mistake."""
    if not questions:
        return
    changed = {question.piece.chunk: question.piece for question in questions}
    meant = index.embedded([question.piece.whole for question in questions])
    known = {**vectors, **dict(zip(changed, meant, strict=True))}
    with closing(_scratch({**pieces, **changed})) as words:
        for question, vector in zip(questions, index.embedded([one.asked for one in questions]), strict=True):
            target = question.piece.chunk
            beside = {chunk for chunk in pieces if owners[chunk] == owners[target] and chunk != target}
            near = {chunk: float(one @ vector) for chunk, one in known.items() if chunk not in beside}
            best = sorted(near.items(), key=lambda one: (-one[1], one[0]))
            said = [hit for hit in _found(words, question.asked) if hit[0] not in beside]
            others = {chunk: near[chunk] for chunk, _ in said if chunk in near}
            floor = sum(near.values()) / max(len(near), 1)
            yield Sample(
                target,
                [
                    Channel(name="fulltext", hits=said),
                    Channel(name="vector", hits=best[:DEPTH], floor=floor, others=others),
                ],
            )


def _scratch(pieces: Mapping[int, Piece]) -> sqlite3.Connection:
    """Index the pieces by their words, in memory."""
    words = sqlite3.connect(":memory:")
    words.execute(
        "CREATE VIRTUAL TABLE words USING fts5(headings, body, tokenize = 'porter unicode61 remove_diacritics 2')"
    )
    rows = [(chunk, *columns(piece)) for chunk, piece in pieces.items()]
    words.executemany("INSERT INTO words (rowid, headings, body) VALUES (?, ?, ?)", rows)
    return words


def _found(words: sqlite3.Connection, query: str) -> list[tuple[int, float]]:
    asked = match(terms(query))
    if not asked:
        return []
    sql = "SELECT rowid, -bm25(words, ?, ?) AS score FROM words WHERE words MATCH ? ORDER BY score DESC, rowid LIMIT ?"
    return words.execute(sql, [HEADINGS, BODY, asked, DEPTH]).fetchall()
