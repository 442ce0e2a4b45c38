"""The vector cache returns the same rows in the same order as brute force after any adds and discards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.indexes.sqlite import COMPARED_AGAIN
from holdfast.indexes.vector import vector_cache as matrix
from holdfast.indexes.vector.vector_cache import VectorCache

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast.llm.base import Matrix, Vector

DIMENSION = 5
NUMBERS = st.integers(-3, 3).map(float)  # few values make equal scores and zero vectors likely
VECTORS = st.lists(NUMBERS, min_size=DIMENSION, max_size=DIMENSION)
CHUNKS = st.integers(1, 12)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.dictionaries(CHUNKS, VECTORS, max_size=6)),
        st.tuples(st.just("discard"), st.lists(CHUNKS, max_size=4)),
    ),
    max_size=8,
)


def vectors(*given: Sequence[float]) -> Matrix:
    return np.array(given, dtype=np.float32).reshape(len(given), -1)


def brute(known: Mapping[int, Sequence[float]], query: Sequence[float]) -> dict[int, float]:
    """Score every row against the query, one by one."""
    asked = np.array(query, dtype=np.float64)
    scores = {}
    for chunk, one in known.items():
        length = float(np.linalg.norm(one) * np.linalg.norm(asked))
        scores[chunk] = float(np.dot(one, asked)) / length if length else 0.0
    return scores


def assert_best(found: list[tuple[int, float]], scores: Mapping[int, float], limit: int) -> None:
    """Check that `found` has the best rows in order, each once and with its score."""
    assert len(found) == min(limit, len(scores))
    assert len({chunk for chunk, _ in found}) == len(found)
    assert [score for _, score in found] == sorted((score for _, score in found), reverse=True)
    for chunk, score in found:
        assert score == pytest.approx(scores[chunk], abs=1e-5)
    left = [score for chunk, score in scores.items() if chunk not in dict(found)]
    assert max(left, default=-2.0) <= min((score for _, score in found), default=2.0) + 1e-5


def after(steps: Sequence[tuple[str, Any]]) -> tuple[VectorCache, dict[int, Sequence[float]]]:
    """Apply the steps to a vector cache and to a dictionary."""
    rows, known = VectorCache(DIMENSION), dict[int, "Sequence[float]"]()
    for verb, what in steps:
        if verb == "add":
            rows.add(list(what), vectors(*what.values()) if what else np.zeros((0, DIMENSION), dtype=np.float32))
            known |= what
        else:
            rows.discard(what)
            known = {chunk: one for chunk, one in known.items() if chunk not in what}
    return rows, known


@given(steps=STEPS, query=VECTORS, limit=st.integers(1, 15))
def test_the_cache_finds_the_same_rows_as_brute_force(
    steps: Sequence[tuple[str, Any]], query: list[float], limit: int
) -> None:
    rows, known = after(steps)
    assert len(rows) == len(known)
    found = rows.find(np.array(query, dtype=np.float32), limit)
    assert_best(found, brute(known, query) if any(query) else {}, limit)


@given(steps=STEPS, query=VECTORS, within=st.lists(st.integers(1, 20), unique=True), limit=st.integers(1, 15))
def test_a_search_within_given_chunks_returns_only_these(
    steps: Sequence[tuple[str, Any]], query: list[float], within: list[int], limit: int
) -> None:
    rows, known = after(steps)
    found = rows.find(np.array(query, dtype=np.float32), limit, within)
    chosen = {chunk: one for chunk, one in known.items() if chunk in within}
    assert_best(found, brute(chosen, query) if any(query) else {}, limit)
    assert rows.scores(np.array(query, dtype=np.float32), within) == dict(
        rows.find(np.array(query, dtype=np.float32), len(within) or 1, within)
    )


@given(steps=STEPS, query=VECTORS)
def test_the_mean_score_is_that_of_brute_force(steps: Sequence[tuple[str, Any]], query: list[float]) -> None:
    rows, known = after(steps)
    scores = brute(known, query) if any(query) else {}
    expected = sum(scores.values()) / len(scores) if scores else 0.0
    assert rows.mean_score(np.array(query, dtype=np.float32)) == pytest.approx(expected, abs=1e-5)
    assert len(rows) == len(known)


def test_a_query_of_zeros_or_an_empty_cache_finds_nothing() -> None:
    rows = VectorCache(2)
    rows.add([1], vectors([1, 0]))
    assert rows.find(np.zeros(2, dtype=np.float32), 10) == []
    assert VectorCache(2).find(np.ones(2, dtype=np.float32), 10) == []


def test_a_vector_of_zeros_scores_zero_and_does_not_affect_others() -> None:
    rows = VectorCache(2)
    rows.add([1, 2, 3], vectors([0, 0], [0, 2], [0, -2]))
    assert rows.find(np.array([0, 1], dtype=np.float32), 2) == [(2, 1.0), (1, 0.0)]


def test_equal_scores_are_ordered_by_chunk() -> None:
    rows = VectorCache(2)
    rows.add([9, 3, 7, 1], vectors(*[[1, 1]] * 4))
    assert [chunk for chunk, _ in rows.find(np.ones(2, dtype=np.float32), 10)] == [1, 3, 7, 9]


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_equal_scores_at_the_limit_are_ordered_by_chunk_too(limit: int) -> None:
    rows = VectorCache(2)
    rows.add([9, 3, 7, 1, 5, 2], vectors(*[[1, 1]] * 6))
    assert [chunk for chunk, _ in rows.find(np.ones(2, dtype=np.float32), limit)] == [1, 2, 3][:limit]


def test_a_replaced_row_is_found_once_with_its_new_vector() -> None:
    rows = VectorCache(2)
    rows.add([1, 2], vectors([1, 0], [0, 1]))
    rows.add([1], vectors([0, -1]))
    assert rows.find(np.array([1, 0], dtype=np.float32), 10) == [(1, 0.0), (2, 0.0)]
    assert len(rows) == 2


def test_the_cache_grows_beyond_its_initial_size_and_loses_no_row() -> None:
    generator = np.random.default_rng(7)
    count = 3 * matrix.INITIAL_ROWS + 5
    all_of_them = generator.standard_normal((count, 4)).astype(np.float32)
    rows = VectorCache(4)
    for first in range(0, count, 700):
        rows.add(list(range(first, min(first + 700, count))), all_of_them[first : first + 700])
    for chunk in (0, matrix.INITIAL_ROWS - 1, matrix.INITIAL_ROWS, count - 1):
        assert rows.find(all_of_them[chunk], 1)[0][0] == chunk


def clustered(count: int, dimension: int, seed: int) -> Matrix:
    """Make vectors with a distribution like that of embeddings: around a common mean and around topics."""
    generator = np.random.default_rng(seed)
    topics = generator.standard_normal((40, dimension))
    picked = topics[generator.integers(0, len(topics), count)]
    drift = generator.standard_normal(dimension) * 6  # the mean of real embeddings is far from zero
    made: Matrix = (picked + generator.standard_normal((count, dimension)) + drift).astype(np.float32)
    return made


def test_a_first_pass_by_signs_finds_at_least_95_percent_of_the_best_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matrix, "MAX_EXACT_ROWS", 1_000)
    monkeypatch.setattr(matrix, "RESCORED", 400)
    data = clustered(8_000, 256, 1)
    rows = VectorCache(256)
    rows.add(list(range(len(data))), data)
    gone = list(range(0, 4_000, 2))
    rows.discard(gone)
    alive = np.setdiff1d(np.arange(len(data)), gone)
    unit = data / np.linalg.norm(data, axis=1, keepdims=True)
    noise = 0.3 * np.random.default_rng(9).standard_normal((50, 256)).astype(np.float32)
    kept = 0
    queries: Sequence[Vector] = list(clustered(8_000, 256, 1)[::160] + noise)
    for query in queries:
        found = {chunk for chunk, _ in rows.find(query, 10 + COMPARED_AGAIN)}  # as the store does
        assert found <= set(alive.tolist())
        best = alive[np.argsort(-(unit[alive] @ query), kind="stable")[:10]]
        kept += len(found & set(best.tolist()))
    assert kept / (10 * len(queries)) >= 0.95


def test_signs_are_computed_again_when_rows_are_added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matrix, "MAX_EXACT_ROWS", 100)
    monkeypatch.setattr(matrix, "RESCORED", 20)
    data = clustered(300, 64, 2)
    rows = VectorCache(64)
    rows.add(list(range(200)), data[:200])
    rows.find(data[0], 1)
    rows.add(list(range(200, 300)), data[200:])
    for chunk in (0, 250, 299):
        assert rows.find(data[chunk], 1)[0][0] == chunk


def test_signs_are_computed_around_a_new_mean_when_the_number_of_rows_has_doubled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(matrix, "MAX_EXACT_ROWS", 10)
    monkeypatch.setattr(matrix, "RESCORED", 20)
    elsewhere = clustered(1_000, 64, 5) + 50  # relative to the first rows, all of these lie in the same direction
    rows = VectorCache(64)
    rows.add(list(range(12)), clustered(12, 64, 4) - 50)
    rows.find(elsewhere[0], 1)
    rows.add(list(range(100, 1_100)), elsewhere)
    assert rows.find(elsewhere[7], 1)[0][0] == 107
    assert len(rows._find_candidates(elsewhere[7] / np.linalg.norm(elsewhere[7]), 20)) < 200


def test_a_limit_above_the_number_of_rows_returns_all_rows_when_signs_are_compared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(matrix, "MAX_EXACT_ROWS", 10)
    monkeypatch.setattr(matrix, "RESCORED", 2)
    rows = VectorCache(64)
    rows.add(list(range(50)), clustered(50, 64, 3))
    rows.discard(list(range(40)))
    assert {chunk for chunk, _ in rows.find(np.ones(64, dtype=np.float32), 100)} == set(range(40, 50))


def test_compressed_vectors_have_nearly_the_same_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matrix, "MAX_EXACT_ROWS", 500)
    data = clustered(2_000, 256, 6)
    rows = VectorCache(256)
    for first in range(0, len(data), 300):
        rows.add(list(range(first, min(first + 300, len(data)))), data[first : first + 300])
    assert not rows.is_exact
    unit = data / np.linalg.norm(data, axis=1, keepdims=True)
    for query in unit[::400]:
        exact = unit @ query
        scores = rows.scores(query, range(len(data)))
        assert max(abs(score - exact[chunk]) for chunk, score in scores.items()) < 0.005
        assert rows.mean_score(query) == pytest.approx(float(exact.mean()), abs=0.005)
