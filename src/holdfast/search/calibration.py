"""Calibrates the channels of a base with questions that the base itself answers.

The results of the channels for these questions, among a sample of chunks, give their weights
(`search.calibration_questions`). The trust in links between names is measured on the graph.

Measuring a large base takes seconds, so the database keeps the result for other processes. A base is measured again
when its recipes change, when it has doubled, and after a week, because its documents may be others by then. A small
base is measured quickly and changes quickly, so each process measures it itself.

Where embedding costs money, nothing is measured and the prior weights apply.
"""

from __future__ import annotations

import json
import random
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

from holdfast.catalog import ChunkLists, read_chunk_owners, read_chunks_of_base
from holdfast.errors import StoreError
from holdfast.indexes.fulltext import is_stemmed
from holdfast.indexes.graph import NAMED_ROLE
from holdfast.search import statements as sql
from holdfast.search.calibration_questions import SEED, CalibrationPool
from holdfast.search.fusion import FULLTEXT, GRAPH, QUESTIONS, VECTOR, add_channel, calibrate
from holdfast.search.graph_walk import measure_link_trust

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.catalog import Base, Recipe
    from holdfast.db import Database, Transaction
    from holdfast.indexes import IndexRegistry
    from holdfast.indexes.questions import QuestionsIndex
    from holdfast.indexes.vector import VectorIndex
    from holdfast.search.graph_links import GraphLinks

SAMPLED_CHUNKS = 2_000  # chunks in which answers are searched
SAMPLED_DOCUMENTS = 200  # documents checked for mentions by others
REMEASURE_FACTOR = 2  # growth in chunks after which a base is measured again
REMEASURE_SECONDS = 7 * 86_400
CACHE_SECONDS = 60.0
KEPT_FROM_CHUNKS = 1_000  # a smaller base is not kept
VERSION = 1  # of the measurement; results that another version stored are ignored
CALIBRATED_CHANNELS = (FULLTEXT, VECTOR)  # measured on any base; the first is the baseline


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """The measurements of a base."""

    weights: Mapping[str, float]
    link_trust: float  # from 0 to 1
    recipes: Mapping[str, int]  # ids, by kind of index
    measured_chunks: int  # at the measurement
    chunks: int = 0  # at the last count
    until: float = 0.0  # valid until this monotonic time


class CalibrationCache:
    """Remembers the calibration of each base."""

    def __init__(self, database: Database, indexes: IndexRegistry) -> None:
        self._database = database
        self._indexes = indexes
        self._chunk_lists = ChunkLists(database)
        self._known: dict[str, Calibration] = {}

    def get(self, base: Base, recipes: Mapping[str, Recipe], links: GraphLinks | None) -> Calibration:
        """Return the calibration of a base; measure it if it is new or the base has doubled."""
        known = self._known.get(base.key)
        if known is not None and time.monotonic() < known.until:
            return known
        with self._database.reading() as tx:
            ((chunks,),) = tx.run(sql.COUNT_CHUNKS, base=base.key)
            known = known or (_read(tx, base) if chunks >= KEPT_FROM_CHUNKS else None)
        ids = {kind: recipe.id for kind, recipe in recipes.items()}
        if known is None or known.recipes != ids or chunks > REMEASURE_FACTOR * known.measured_chunks:
            sample = self._sample(base)
            known = Calibration(
                weights=_add_unmeasured(self._measure_weights(sample, recipes), recipes),
                link_trust=self._measure_link_trust(sample, links),
                recipes=ids,
                measured_chunks=chunks,
            )
            if chunks >= KEPT_FROM_CHUNKS:
                self._save(base, known)
        known = self._known[base.key] = replace(known, chunks=chunks, until=time.monotonic() + CACHE_SECONDS)
        return known

    def clear(self) -> None:
        self._known.clear()

    def _save(self, base: Base, measured: Calibration) -> None:
        """Keep a measurement for other processes. A search does not fail because it cannot be kept."""
        kept = {
            "version": VERSION,
            "at": time.time(),
            "recipes": measured.recipes,
            "weights": measured.weights,
            "link_trust": measured.link_trust,
        }
        row = (base.id, measured.measured_chunks, json.dumps(kept))
        with suppress(StoreError):
            self._database.write(lambda tx: tx.run(sql.SAVE_CALIBRATION, [row]), durable=False)

    def _sample(self, base: Base) -> dict[int, int]:
        """Return a random sample of chunks with their owners, always the same for the same base."""
        with self._database.reading() as tx:
            rows = read_chunks_of_base(tx, base.key)
        chance = random.Random(SEED)  # noqa: S311 - a reproducible sample
        return dict(chance.sample(rows, min(SAMPLED_CHUNKS, len(rows))))

    def _measure_weights(self, sample: Mapping[int, int], recipes: Mapping[str, Recipe]) -> Mapping[str, float]:
        """Ask the questions of the sample, and derive the weights of the channels."""
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
        answered = [list(samples) for samples in (pool.ask_headings(), pool.ask_sentences())]
        measured = [calibrate(samples, CALIBRATED_CHANNELS) for samples in answered if samples]
        # The lower weight counts: a channel must help with both kinds of questions.
        weights = max(
            measured, key=lambda weights: weights[CALIBRATED_CHANNELS[0]], default=calibrate([], CALIBRATED_CHANNELS)
        )
        if QUESTIONS not in recipes:
            return weights
        if not _have_same_model(recipes):  # while the base changes its provider
            return add_channel(weights, QUESTIONS, [])
        recipe, pairs = recipes[QUESTIONS].id, cast("QuestionsIndex", self._indexes[QUESTIONS]).pairs
        known = pairs.read_pairs(recipe, list(pool.pieces))
        vectors = pairs.read_vectors(recipe, [pair.id for stored in known.values() for pair in stored])
        return add_channel(weights, QUESTIONS, list(pool.ask_pairs(known, vectors)))

    def _measure_link_trust(self, sample: Mapping[int, int], links: GraphLinks | None) -> float:
        """Measure how many documents define a name or have a relation that another document mentions."""
        if links is None:
            return 0.0
        roles = links.read_roles(list(sample))
        chosen: dict[int, list[tuple[str, str]]] = {}
        for chunk, owner in sample.items():
            names = [(key, role) for key, role in roles[chunk] if role != NAMED_ROLE]
            if names:
                chosen.setdefault(owner, []).extend(names)
        checked = dict(list(chosen.items())[:SAMPLED_DOCUMENTS])
        naming = links.find_mentions([name for names in checked.values() for name in names])
        with self._database.reading() as tx:
            owners = dict(read_chunk_owners(tx, {chunk for chunks in naming.values() for chunk in chunks}))
        named = sum(
            any(owners.get(chunk, owner) != owner for name in names for chunk in naming[name])
            for owner, names in checked.items()
        )
        return measure_link_trust(named, len(checked))


def _read(tx: Transaction, base: Base) -> Calibration | None:
    """Read what a process has measured before, unless it is too old."""
    for chunks, text in tx.run(sql.READ_CALIBRATION, base_id=base.id):
        kept = json.loads(text)
        if kept["version"] == VERSION and time.time() - kept["at"] < REMEASURE_SECONDS:
            return Calibration(
                weights=kept["weights"],
                link_trust=kept["link_trust"],
                recipes=kept["recipes"],
                measured_chunks=chunks,
            )
    return None


def _add_unmeasured(weights: Mapping[str, float], recipes: Mapping[str, Recipe]) -> Mapping[str, float]:
    """Give the channels of other packages the prior share."""
    for name in recipes:
        if name not in weights and name != GRAPH:
            weights = add_channel(weights, name, [])
    return weights


def _have_same_model(recipes: Mapping[str, Recipe]) -> bool:
    """Return whether the same model embedded texts and questions, so that their vectors are comparable."""
    vectors, questions = (json.loads(recipes[kind].spec) for kind in (VECTOR, QUESTIONS))
    return bool(vectors["model"] == questions["embedding"])
