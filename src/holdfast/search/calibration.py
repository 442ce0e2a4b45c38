"""How far each channel is trusted on a base, measured on questions that the base itself answers.

What the channels make of these questions, among a sample of chunks, tells their weights
(`search.calibration_questions`). How far names lead anywhere is measured on the graph itself. Measured once in a
process, and again when a base has doubled.

Where embedding costs money nothing is asked: the weights are then what is assumed before anything is measured.
"""

from __future__ import annotations

import json
import random
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

from holdfast.catalog import ChunkLists, read_chunk_owners, read_chunks_of_base
from holdfast.indexes.fulltext import is_stemmed
from holdfast.indexes.graph import NAMED_ROLE
from holdfast.search import statements as sql
from holdfast.search.calibration_questions import SEED, CalibrationPool
from holdfast.search.fusion import FULLTEXT, GRAPH, QUESTIONS, VECTOR, add_channel, calibrate
from holdfast.search.graph_walk import measure_link_trust

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.catalog import Base, Recipe
    from holdfast.db import Database
    from holdfast.indexes import IndexRegistry
    from holdfast.indexes.questions import QuestionsIndex
    from holdfast.indexes.vector.index import VectorIndex
    from holdfast.search.graph_links import GraphLinks

SAMPLED_CHUNKS = 2_000  # chunks among which the answers are looked for
SAMPLED_DOCUMENTS = 200  # that are looked at for whether another one names them
REMEASURE_FACTOR = 2  # times as many chunks: then it is measured again
CACHE_SECONDS = 60.0
CALIBRATED_CHANNELS = (FULLTEXT, VECTOR)  # measured on any base; the first is the one to beat


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What was measured of a base."""

    weights: Mapping[str, float]
    link_trust: float  # how far names lead anywhere
    recipes: Mapping[str, Recipe]
    chunks: int  # a moment ago
    measured_chunks: int  # chunks when it was measured
    until: float  # it is believed until then


class CalibrationCache:
    """Remembers what was measured of each base."""

    def __init__(self, database: Database, indexes: IndexRegistry) -> None:
        self._database = database
        self._indexes = indexes
        self._chunk_lists = ChunkLists(database)
        self._known: dict[str, Calibration] = {}

    def get(self, base: Base, recipes: Mapping[str, Recipe], ties: GraphLinks | None) -> Calibration:
        """Return what is known of a base; measure it if it is new or has doubled."""
        known = self._known.get(base.key)
        if known is not None and time.monotonic() < known.until:
            return known
        with self._database.reading() as tx:
            ((chunks,),) = tx.run(sql.COUNT_CHUNKS, base=base.key)
        until = time.monotonic() + CACHE_SECONDS
        if known is not None and known.recipes == recipes and chunks <= REMEASURE_FACTOR * known.measured_chunks:
            known = replace(known, chunks=chunks, until=until)
        else:
            sample = self._sample(base)
            known = Calibration(
                weights=_add_unmeasured(self._measure_weights(sample, recipes), recipes),
                link_trust=self._measure_link_trust(sample, ties),
                recipes=dict(recipes),
                chunks=chunks,
                measured_chunks=chunks,
                until=until,
            )
        self._known[base.key] = known
        return known

    def clear(self) -> None:
        """Forget what was measured."""
        self._known.clear()

    def _sample(self, base: Base) -> dict[int, int]:
        """Choose some chunks, always the same of the same base; return whose each is."""
        with self._database.reading() as tx:
            rows = read_chunks_of_base(tx, base.key)
        chance = random.Random(SEED)  # noqa: S311 - the same sample each time is what is wanted
        return dict(chance.sample(rows, min(SAMPLED_CHUNKS, len(rows))))

    def _measure_weights(self, sample: Mapping[int, int], recipes: Mapping[str, Recipe]) -> Mapping[str, float]:
        """Ask the sample questions, and weigh the channels by their answers."""
        index = cast("VectorIndex", self._indexes[VECTOR])
        names = [name for name in (*CALIBRATED_CHANNELS, QUESTIONS) if name in recipes]
        embed = (
            index.get_free_embedder(recipes[VECTOR])
            if sample and names[: len(CALIBRATED_CHANNELS)] == list(CALIBRATED_CHANNELS)
            else None
        )
        if embed is None:
            return calibrate([], names)
        pool = CalibrationPool(
            pieces={piece.chunk: piece for piece in self._chunk_lists.read_texts(list(sample))},
            owners=sample,
            vectors=index.read_vectors(recipes[VECTOR], list(sample)),
            embed=embed,
            stemmed=is_stemmed(recipes[FULLTEXT].spec),
        )
        asked = [list(samples) for samples in (pool.ask_headings(), pool.ask_sentences())]
        measured = [calibrate(samples, CALIBRATED_CHANNELS) for samples in asked if samples]
        # A channel that helps with one kind of question only is trusted as far as it helps with the other.
        weights = max(
            measured, key=lambda weights: weights[CALIBRATED_CHANNELS[0]], default=calibrate([], CALIBRATED_CHANNELS)
        )
        if QUESTIONS not in recipes:
            return weights
        if not _have_same_model(recipes):  # on the way from one provider to another
            return add_channel(weights, QUESTIONS, [])
        recipe, pairs = recipes[QUESTIONS].id, cast("QuestionsIndex", self._indexes[QUESTIONS]).pairs
        known = pairs.read_pairs(recipe, list(pool.pieces))
        vectors = pairs.read_vectors(recipe, [one.id for some in known.values() for one in some])
        return add_channel(weights, QUESTIONS, list(pool.ask_pairs(known, vectors)))

    def _measure_link_trust(self, sample: Mapping[int, int], ties: GraphLinks | None) -> float:
        """Look how many documents another one names, or tells more of."""
        if ties is None:
            return 0.0
        roles = ties.read_roles(list(sample))
        chosen: dict[int, list[tuple[str, str]]] = {}
        for chunk, owner in sample.items():
            some = [(key, role) for key, role in roles[chunk] if role != NAMED_ROLE]
            if some:
                chosen.setdefault(owner, []).extend(some)
        asked = dict(list(chosen.items())[:SAMPLED_DOCUMENTS])
        naming = ties.find_mentions([one for some in asked.values() for one in some])
        with self._database.reading() as tx:
            owners = dict(read_chunk_owners(tx, {one for some in naming.values() for one in some}))
        named = sum(
            any(owners.get(chunk, owner) != owner for one in some for chunk in naming[one])
            for owner, some in asked.items()
        )
        return measure_link_trust(named, len(asked))


def _add_unmeasured(weights: Mapping[str, float], recipes: Mapping[str, Recipe]) -> Mapping[str, float]:
    """Give the channels of other packages the share that is assumed before anything is measured."""
    for name in recipes:
        if name not in weights and name != GRAPH:
            weights = add_channel(weights, name, [])
    return weights


def _have_same_model(recipes: Mapping[str, Recipe]) -> bool:
    """Tell whether texts and questions were embedded by the same model, so that their vectors compare."""
    vectors, questions = (json.loads(recipes[kind].spec) for kind in (VECTOR, QUESTIONS))
    return bool(vectors["model"] == questions["embedding"])
