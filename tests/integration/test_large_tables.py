"""Frequent statements read few rows of large tables. `python -m bench.scale` measures more of them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg import sql

from holdfast.auth.principal import KEYLESS_CALLER
from holdfast.catalog.repository import BaseSettings
from holdfast.documents import lists, queries
from holdfast.documents.lists import Order
from holdfast.engine.store import queue_queries
from holdfast.engine.store.statements import LOCK_OWNERS_BY_NAME
from holdfast.events.statements import POSTGRES_STATEMENTS, SELECT_FOREIGN_EVENT
from holdfast.service.local import LocalService
from tests.support.explain import Explained, ExplainingDialect, SqliteExplainingDialect
from tests.support.generated_documents import FIRST_DOCUMENT, FIRST_FOLDER, generate_documents
from tests.support.harness import Rig
from tests.support.stores import open_test_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from sqlalchemy.sql import ClauseElement

    from holdfast.engine.store.sql_store import SqlStore
    from tests.support.clock import FakeClock

EVENTS = """INSERT INTO events (at, type, base, owner, data, xid)
SELECT i, 'slot.claimed', 'shelf', 'doc', '{}', 1 + i / 100 FROM generate_series(1, 20000) AS i"""
HOT = ("owners", "slots", "jobs", "library_standings", "webhook_deliveries", "events", "duplicates")


@pytest.fixture
def store(postgres_url: str, clock: FakeClock) -> Iterator[SqlStore]:
    store = open_test_store(postgres_url, clock)
    yield store
    store.close()


def explain(store: SqlStore, statement: ClauseElement, **values: Any) -> str:
    compiled = str(statement.compile(dialect=store.database.engine.dialect))
    with store.database.reading() as tx:
        rows = tx.connection.exec_driver_sql(f"EXPLAIN {compiled}", values | {"param_1": 1})
        return "\n".join(rows.scalars())


@pytest.mark.postgres
def test_a_reader_without_new_events_does_not_scan_the_log(store: SqlStore) -> None:
    store.database.write(lambda tx: tx.run_sql(EVENTS), durable=False)
    store.database.write(lambda tx: tx.run_sql("ANALYZE events"), durable=False)
    unreadable = POSTGRES_STATEMENTS.unreadable
    assert unreadable is not None
    for statement in (unreadable, SELECT_FOREIGN_EVENT, POSTGRES_STATEMENTS.newest):
        plan = explain(store, statement)
        assert "events_order" in plan
        assert "Seq Scan" not in plan
    plan = explain(store, POSTGRES_STATEMENTS.after, xid=190, id=19_500, limit=500)
    assert "events_order" in plan


@pytest.mark.postgres
@pytest.mark.parametrize("table", HOT)
def test_a_hot_table_is_vacuumed_early(store: SqlStore, table: str) -> None:
    with store.database.reading() as tx:
        ((options,),) = tx.run_sql("SELECT reloptions FROM pg_class WHERE relname = %s", [table])
    assert "autovacuum_vacuum_scale_factor=0.02" in options


DOCUMENTS = 20_000
LAST_QUEUED = FIRST_DOCUMENT + DOCUMENTS - 9
FEW_ROWS = 1_500
FEW_ROWS_ON_SQLITE = 3_000  # estimated from instructions: a row with many columns counts as several
# Operations of pages that users open often.
PAGES: dict[str, Callable[[LocalService], object]] = {
    "documents": lambda service: service.documents.list("shelf"),
    "documents by name": lambda service: service.documents.list("shelf", order=Order.NAME),
    "failed documents": lambda service: service.documents.list("shelf", states=["failed"]),
    "documents in a folder": lambda service: service.documents.list("shelf", parent=FIRST_FOLDER),
    "folders": lambda service: service.documents.list("shelf", kinds=["directory"]),
    "a queued document": lambda service: service.documents.get("shelf", LAST_QUEUED),
    "counts": lambda service: service.bases.counts("shelf"),
    "counts of a small base": lambda service: service.bases.counts("attic"),
    "jobs": lambda service: service.jobs.list(),
    "jobs of a base": lambda service: service.jobs.list("shelf"),
    "running jobs": lambda service: service.jobs.list("shelf", states=["indexing"]),
    "failed jobs": lambda service: service.jobs.list("shelf", states=["failed"]),
    "the queue": lambda service: service.jobs.overview(),
    "the queue of a base": lambda service: service.jobs.overview("shelf"),
    "delete": lambda service: service.documents.delete("shelf", LAST_QUEUED + 1),
}


@pytest.fixture
def ssd_url(postgres_url: str) -> Iterator[str]:
    """A database with the setting that docs/postgres.md recommends."""
    with psycopg.connect(postgres_url.replace("+psycopg", ""), autocommit=True) as admin:
        change = sql.SQL("ALTER DATABASE {} {} random_page_cost")
        name = sql.Identifier(admin.info.dbname)
        admin.execute(change.format(name, sql.SQL("SET")) + sql.SQL(" = 1.1"))
        yield postgres_url
        admin.execute(change.format(name, sql.SQL("RESET")))


@pytest.mark.postgres
def test_a_page_reads_few_rows_of_a_large_base(
    ssd_url: str, tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(ssd_url, tmp_path / "blobs", clock, indexes=("fulltext",))
    dialect = ExplainingDialect(rig.store.database.dialect)
    assert find_large_reads(rig, dialect, FEW_ROWS, monkeypatch) == {}


def test_a_page_reads_few_rows_of_a_large_base_on_sqlite(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(f"sqlite:///{tmp_path / 'holdfast.db'}", tmp_path / "blobs", clock, indexes=("fulltext",))
    dialect = SqliteExplainingDialect(rig.store.database.dialect)
    assert find_large_reads(rig, dialect, FEW_ROWS_ON_SQLITE, monkeypatch) == {}


def find_large_reads(
    rig: Rig, dialect: ExplainingDialect, few: int, monkeypatch: pytest.MonkeyPatch
) -> dict[str, list[tuple[str, int]]]:
    """Return the operations that read many rows of a large base, with their largest statement."""
    rig.index("seed.md", "# Seed")
    rig.library.catalog.create_base("attic", BaseSettings())
    with rig.store.database.writing(durable=False) as tx:
        generate_documents(tx, rig.base, 1, DOCUMENTS)
    if rig.store.database.engine.dialect.name == "postgresql":
        with rig.store.database.autocommit() as tx:
            tx.run_sql("VACUUM ANALYZE")
    for module in (lists, queries, queue_queries):
        monkeypatch.setattr(module, "MAX_COUNT", 50)
    monkeypatch.setattr(queue_queries, "OLDEST_JOBS", 50)
    monkeypatch.setattr(rig.store.database, "dialect", dialect)
    service = LocalService(rig.library, KEYLESS_CALLER)
    found = {}
    for name, operation in PAGES.items():
        dialect.explained = explained = Explained()
        operation(service)
        if explained.rows > few:
            found[name] = explained.rows_by_statement.most_common(1)
    rig.store.close()
    return found


@pytest.mark.postgres
def test_a_small_batch_uses_the_index_of_a_table_that_was_never_analysed(store: SqlStore) -> None:
    """The planner expects few rows of a batch. With more it would read the whole table for each small batch."""
    owners = """INSERT INTO owners (base, owner, generation, status, created_at)
    SELECT 'shelf', CAST(i AS TEXT), 1, 'success', 1 FROM generate_series(1, 2000) AS i"""
    store.database.write(lambda tx: tx.run_sql(owners), durable=False)
    plan = explain(store, LOCK_OWNERS_BY_NAME, rows=json.dumps([["shelf", "7"]]))
    assert "Index" in plan
    assert "Seq Scan" not in plan
