"""Measures the calibration of bases in the background, with questions that a base itself answers.

The results of the channels for these questions, among a sample of chunks, give their weights
(`search.calibration_questions`). The trust in links between names is measured on the graph.

Measuring a large base takes seconds, so workers do it and store the result, and searches only read it. A base is
measured again when its recipes change, when it has doubled or halved (a small one: at any change), and after a week,
because its documents may be others by then. Where embedding costs money, no weight is measured and the prior weights
apply.
"""

from __future__ import annotations

import json
import random
import time
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from holdfast.catalog import ChunkLists, read_chunk_owners, read_chunks_of_base, served_recipes_of_base
from holdfast.indexes.fulltext import is_stemmed
from holdfast.indexes.graph import NAMED_ROLE
from holdfast.search import statements as sql
from holdfast.search.calibration import (
    CALIBRATED_CHANNELS,
    Calibration,
    complete_weights,
    count_chunks,
    read_calibration,
)
from holdfast.search.calibration_questions import SEED, CalibrationPool
from holdfast.search.fusion import FULLTEXT, GRAPH, QUESTIONS, VECTOR, add_channel, calibrate
from holdfast.search.graph_links import GraphLinks
from holdfast.search.graph_walk import measure_link_trust

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.catalog import Base, Catalog, Recipe
    from holdfast.db import Database
    from holdfast.indexes import IndexRegistry
    from holdfast.indexes.fulltext import FulltextIndex
    from holdfast.indexes.graph import GraphIndex
    from holdfast.indexes.questions import QuestionsIndex
    from holdfast.indexes.vector import VectorIndex

SAMPLED_CHUNKS = 2_000  # chunks in which answers are searched
SAMPLED_DOCUMENTS = 200  # documents checked for mentions by others
REMEASURE_FACTOR = 2  # change in the number of chunks after which a base is measured again
SMALL_BASE_CHUNKS = 1_000  # a smaller base is measured quickly and changes quickly, so it is measured at any change
RECOUNT_SHARE = 0.1  # change in the number of chunks that is stored without a measurement
REMEASURE_SECONDS = 7 * 86_400
CHECK_SECONDS = 60.0  # at least, between two checks of a base
CHECK_SHARE = 0.001  # of its time a worker spends on counting the chunks of a base, at most


class Calibrator:
    """Measures the bases of one database when they have changed enough."""

    def __init__(self, database: Database, indexes: IndexRegistry, catalogue: Catalog) -> None:
        self._database = database
        self._indexes = indexes
        self._catalogue = catalogue
        self._chunk_lists = ChunkLists(database)
        self._next_checks: dict[int, float] = {}  # base id -> monotonic time

    def refresh_due(self) -> None:
        """Measure every base that has changed enough since its last measurement."""
        for base in self._catalogue.bases():
            started = time.monotonic()
            if started >= self._next_checks.get(base.id, 0.0):
                self.refresh(base)
                pause = max(CHECK_SECONDS, (time.monotonic() - started) / CHECK_SHARE)
                self._next_checks[base.id] = time.monotonic() + pause

    def refresh(self, base: Base) -> None:
        """Measure a base if it has changed enough since its last measurement."""
        with self._database.reading() as tx:
            served = served_recipes_of_base(tx, base.key)
            known, chunks = read_calibration(tx, base), count_chunks(tx, base)
        recipes = {kind: some[0] for kind, some in served.items() if kind in self._indexes.kinds}
        if not recipes or not chunks:
            return
        if known is None or _is_outdated(known, recipes, chunks):
            self._save(base, self._measure(base, recipes, chunks))
        elif abs(chunks - known.chunks) > RECOUNT_SHARE * known.chunks:
            self._save(base, replace(known, chunks=chunks))

    def _measure(self, base: Base, recipes: Mapping[str, Recipe], chunks: int) -> Calibration:
        sample = self._sample(base)
        measured = Calibration(
            weights=self._measure_weights(sample, recipes),
            link_trust=self._measure_link_trust(sample, recipes),
            recipes={kind: recipe.id for kind, recipe in recipes.items()},
            measured_chunks=chunks,
            measured_at=time.time(),
            chunks=chunks,
        )
        return complete_weights(measured, recipes)

    def _save(self, base: Base, measured: Calibration) -> None:
        row = (base.id, measured.chunks, measured.to_json())
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

    def _measure_link_trust(self, sample: Mapping[int, int], recipes: Mapping[str, Recipe]) -> float:
        """Measure how many documents define a name or have a relation that another document mentions."""
        if GRAPH not in recipes:
            return 0.0
        words = (cast("FulltextIndex", self._indexes[FULLTEXT]), recipes[FULLTEXT]) if FULLTEXT in recipes else None
        links = GraphLinks(cast("GraphIndex", self._indexes[GRAPH]), recipes[GRAPH], self._chunk_lists, words)
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


def _is_outdated(known: Calibration, recipes: Mapping[str, Recipe], chunks: int) -> bool:
    return (
        known.recipes != {kind: recipe.id for kind, recipe in recipes.items()}
        or (chunks < SMALL_BASE_CHUNKS and chunks != known.measured_chunks)
        or not known.measured_chunks / REMEASURE_FACTOR <= chunks <= known.measured_chunks * REMEASURE_FACTOR
        or time.time() - known.measured_at >= REMEASURE_SECONDS
    )


def _have_same_model(recipes: Mapping[str, Recipe]) -> bool:
    """Return whether the same model embedded texts and questions, so that their vectors are comparable."""
    vectors, questions = (json.loads(recipes[kind].spec) for kind in (VECTOR, QUESTIONS))
    return bool(vectors["model"] == questions["embedding"])
