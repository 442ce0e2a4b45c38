"""Vectors on PostgreSQL: above a number of rows an index proposes, and it proposes nearly always the nearest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from holdfast.indexes import postgres
from holdfast.indexes.vector import VectorIndex
from tests.support.rig import Rig

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.clock import FakeClock

WORDS = ("harbour", "granite", "krill", "lantern", "meadow", "compass", "violin", "glacier", "orchard", "turbine")


@pytest.mark.postgres
def test_an_index_is_made_when_there_are_many_and_finds_the_nearest(
    postgres_url: str, tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(postgres_url, tmp_path / "blobs", clock, indexes=("vector",), chunk_size=32, chunk_overlap=0)
    texts = (f"The {one} beside the {other} number {place}." for place, one in enumerate(WORDS) for other in WORDS)
    rig.index("words.md", "\n\n".join(f"## Part {n}\n\n{text}" for n, text in enumerate(texts)))
    index = rig.library.indexes["vector"]
    assert isinstance(index, VectorIndex)
    (recipe,) = rig.library.indexes.recipes(rig.base, "vector")
    queries = [f"a {one} and a {other}" for one, other in zip(WORDS, reversed(WORDS), strict=True)]
    exact = {query: {one.chunk for one in index.find(recipe, query, 10)} for query in queries}

    def indexes() -> list[str]:
        with rig.store.database.reading() as tx:
            return [
                name for (name,) in tx.plain("SELECT indexname FROM pg_indexes WHERE position('hnsw' IN indexdef) > 0")
            ]

    for _ in range(3):
        rig.library.sweep(500)
    assert indexes() == []
    monkeypatch.setattr(postgres, "EXACT", 50)
    for _ in range(3):
        rig.library.sweep(500)
    assert indexes() == [f"vector_{recipe.id}_near"]
    found = {query: {one.chunk for one in index.find(recipe, query, 10)} for query in queries}
    assert sum(len(found[query] & exact[query]) for query in queries) >= 0.9 * 10 * len(queries)
    scores = [one.score for one in index.find(recipe, queries[0], 10)]
    assert scores == sorted(scores, reverse=True)
    rig.close()
