"""Vectors on PostgreSQL: above a number of rows an approximate index finds nearly all nearest vectors."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Self

import pytest

from holdfast.catalog.repository import BaseSettings
from holdfast.documents.requests import Upload
from holdfast.errors import StoreError
from holdfast.indexes import postgres
from holdfast.indexes.postgres import PostgresVectorStore
from holdfast.indexes.vector.index import VectorIndex
from tests.support.harness import Rig
from tests.support.processes import until
from tests.support.timeouts import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.clock import FakeClock

WORDS = ("harbour", "granite", "krill", "lantern", "meadow", "compass", "violin", "glacier", "orchard", "turbine")


@pytest.fixture
def rig(postgres_url: str, tmp_path: Path, clock: FakeClock) -> Iterator[Rig]:
    rig = Rig(postgres_url, tmp_path / "blobs", clock, indexes=("vector",), chunk_size=32, chunk_overlap=0)
    texts = (f"The {one} beside the {other} number {place}." for place, one in enumerate(WORDS) for other in WORDS)
    rig.index("words.md", "\n\n".join(f"## Part {n}\n\n{text}" for n, text in enumerate(texts)))
    yield rig
    rig.close()


def indexes(rig: Rig) -> dict[str, bool]:
    """Return the vector indexes, and whether each is valid."""
    sql = (
        "SELECT relname, indisvalid FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid "
        "WHERE position('hnsw' IN pg_get_indexdef(indexrelid)) > 0"
    )
    with rig.store.database.reading() as tx:
        return dict(tx.run_sql(sql))


@pytest.mark.postgres
def test_an_index_is_built_above_a_number_of_rows_and_finds_the_nearest(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = rig.library.indexes["vector"]
    assert isinstance(index, VectorIndex)
    (recipe,) = rig.library.indexes.recipes(rig.base, "vector")
    queries = [f"a {one} and a {other}" for one, other in zip(WORDS, reversed(WORDS), strict=True)]
    exact = {query: {one.chunk for one in index.find(recipe, query, 10)} for query in queries}
    for _ in range(3):
        rig.library.sweep(500)
    assert indexes(rig) == {}
    monkeypatch.setattr(postgres, "MAX_EXACT_ROWS", 50)
    for _ in range(3):
        rig.library.sweep(500)
    assert indexes(rig) == {f"vector_{recipe.id}_near": True}
    found = {query: {one.chunk for one in index.find(recipe, query, 10)} for query in queries}
    assert sum(len(found[query] & exact[query]) for query in queries) >= 0.9 * 10 * len(queries)
    scores = [one.score for one in index.find(recipe, queries[0], 10)]
    assert scores == sorted(scores, reverse=True)


def test_bases_that_are_published_together_keep_their_vectors_apart(
    database_url: str, tmp_path: Path, clock: FakeClock
) -> None:
    """Found by chaos: vectors of one base were also written to the other one, and stayed when their document went."""
    rig = Rig(database_url, tmp_path / "blobs", clock, indexes=("vector",))
    other = rig.library.bases.create("other", BaseSettings(indexes=("vector",)))
    for base in (rig.base, other):
        rig.library.adder.put(base, [Upload(f"{base.name}.md", f"The tide of {base.name}.".encode())])
    rig.work()
    rows = {}
    for base in (rig.base, other):
        (recipe,) = rig.library.indexes.recipes(base, "vector")
        rows[base.name] = rig.library.indexes["vector"].scan(recipe, 0, 100)
    assert [len(chunks) for chunks in rows.values()] == [1, 1]
    rig.delete(f"{rig.base.name}.md")
    rig.work()
    assert rig.library.doctor.check(deep=True) == []
    rig.close()


class Making:
    """Builds the index in a thread, and blocks it until `end` with a lock on the table."""

    def __init__(self, rig: Rig, recipe: int) -> None:
        self._rig = rig
        self._recipe = recipe
        self._other = rig.store.database.engine.connect()
        self._thread = threading.Thread(target=self._make)
        self.failure: StoreError | None = None

    def __enter__(self) -> Self:
        self._other.exec_driver_sql(f"LOCK TABLE vector_{self._recipe} IN ROW EXCLUSIVE MODE")
        self._thread.start()
        until(self._backends, "the index is not being made")
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def kill(self) -> None:
        """Terminate the session that builds the index, like a crash."""
        (backend,) = self._backends()
        with self._rig.store.database.reading() as tx:
            tx.run_sql("SELECT pg_terminate_backend(%s)", [backend])
        self._thread.join(PATIENCE_SECONDS)

    def end(self) -> None:
        """Release the lock and wait for the build."""
        self._other.close()
        self._thread.join(PATIENCE_SECONDS)
        assert not self._thread.is_alive()

    def _make(self) -> None:
        try:
            PostgresVectorStore(self._rig.store.database).tend(self._recipe)
        except StoreError as error:
            self.failure = error

    def _backends(self) -> list[int]:
        sql = (
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' "
            "AND starts_with(query, 'CREATE INDEX CONCURRENTLY')"
        )
        with self._rig.store.database.reading() as tx:
            return [pid for (pid,) in tx.run_sql(sql)]


@pytest.mark.postgres
def test_an_index_left_invalid_by_a_crash_is_built_again(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "MAX_EXACT_ROWS", 50)
    (recipe,) = rig.library.indexes.recipes(rig.base, "vector")
    with Making(rig, recipe.id) as making:
        making.kill()
    assert making.failure is not None
    assert indexes(rig) == {f"vector_{recipe.id}_near": False}
    for _ in range(3):
        rig.library.sweep(500)
    assert indexes(rig) == {f"vector_{recipe.id}_near": True}


@pytest.mark.postgres
def test_an_index_that_is_being_built_is_not_touched(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "MAX_EXACT_ROWS", 50)
    (recipe,) = rig.library.indexes.recipes(rig.base, "vector")
    with Making(rig, recipe.id) as making:
        before = number(rig, recipe.id)
        assert indexes(rig) == {f"vector_{recipe.id}_near": False}
        PostgresVectorStore(rig.store.database).tend(recipe.id)  # returns immediately and removes nothing
        making.end()
    assert making.failure is None
    assert indexes(rig) == {f"vector_{recipe.id}_near": True}
    assert number(rig, recipe.id) == before


def number(rig: Rig, recipe: int) -> object:
    """Return the oid, which distinguishes an index from its successor of the same name."""
    with rig.store.database.reading() as tx:
        return tx.run_sql("SELECT to_regclass(%s)::oid", [f"vector_{recipe}_near"])
