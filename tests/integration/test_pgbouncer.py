"""Holdfast behind pgbouncer in transaction mode, where each transaction may run on another connection of the server."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from holdfast.clock import SystemClock
from holdfast.db.connection_options import ConnectionOptions
from holdfast.db.notify import PipeListener, PostgresNotifier
from holdfast.engine.rules import Rules
from holdfast.engine.store.factory import open_database, open_store
from holdfast.errors import BadSettings, StoreBusy
from holdfast.indexes import postgres as postgres_indexes
from tests.contract.steps import finished
from tests.support.harness import Rig
from tests.support.processes import until
from tests.support.servers import PgBouncer
from tests.support.stores import ONE, open_test_store, request
from tests.support.timeouts import PATIENCE_SECONDS
from tests.support.worker_shop import Shop

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.clock import FakeClock
    from tests.support.servers import Postgres

pytestmark = pytest.mark.postgres
smoke, proof = pytest.mark.smoke, pytest.mark.proof


def read_directly(postgres_url: str, sql: str) -> list[Any]:
    with psycopg.connect(postgres_url.replace("+psycopg", "")) as connection:
        return [row[0] for row in connection.execute(sql.encode()).fetchall()]


@smoke
def test_a_document_is_indexed_found_and_deleted_behind_the_pooler(
    pooled_url: str, postgres_url: str, tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_indexes, "MAX_EXACT_ROWS", 3)
    settings = {"database_pooler": "transaction", "database_direct": postgres_url}
    rig = Rig(
        pooled_url, tmp_path / "blobs", clock, settings=settings, indexes=("vector", "fulltext"), chunk_size=32,
        chunk_overlap=0,
    )  # fmt: skip
    for number in range(8):  # more often than a statement is prepared
        rig.index(f"{number}.md", "\n\n".join(f"## Part {part}\n\nThe granite of harbour {part}." for part in range(4)))
    assert rig.owner("3.md").status == "success"
    assert len(rig.find("granite")) > 8
    for _ in range(3):
        rig.library.sweep(500)
    assert len(rig.find("harbour", "vector", 10)) == 10
    valid = "SELECT indisvalid FROM pg_index WHERE position('hnsw' IN pg_get_indexdef(indexrelid)) > 0"
    assert read_directly(postgres_url, valid) == [True]
    rig.delete(*(f"{number}.md" for number in range(8)))
    rig.work()
    assert rig.find("granite") == []
    assert read_directly(postgres_url, "SELECT mode FROM pg_locks WHERE locktype = 'advisory'") == []
    rig.close()


@proof
def test_many_threads_share_few_connections_and_leave_no_state_in_the_sessions(
    pooled_url: str, postgres_url: str, pooler_options: ConnectionOptions, clock: FakeClock
) -> None:
    store = open_test_store(pooled_url, clock, connections=pooler_options)

    def work(number: int) -> None:
        assert store.admit([request(f"doc-{number}", slots=ONE)])[0].accepted
        store.complete([finished(ticket) for ticket in store.claim_next(["cards"], f"worker-{number}", 1)])

    with ThreadPoolExecutor(12) as pool:
        list(pool.map(work, range(60)))
    store.complete([finished(ticket) for ticket in store.claim_next(["cards"], "last", 60)])  # after a lost race
    database = store.database
    with database.reading() as tx:
        assert tx.run_sql("SELECT count(*) FROM slots WHERE state = 'ready'") == [(60,)]
        assert tx.run_sql("SELECT current_setting('lock_timeout')") == [("30s",)]
        assert tx.run_sql("SELECT current_setting('idle_in_transaction_session_timeout')") == [("1min",)]
    backends = read_directly(
        postgres_url,
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()",
    )
    assert 0 < len(backends) <= 3
    with database.autocommit() as tx:
        assert tx.run_sql("SELECT current_setting('lock_timeout')") == [("0",)]
        assert tx.run_sql("SELECT count(*) FROM pg_prepared_statements") == [(0,)]
    store.close()


@proof
def test_a_pooler_that_is_not_set_is_named_in_the_error(pooled_url: str) -> None:
    with pytest.raises(BadSettings) as refused:
        open_store(pooled_url, rules=Rules(), clock=SystemClock())
    assert refused.value.subcode == "pooler_not_set"
    assert "Set HOLDFAST_DATABASE_POOLER=transaction" in str(refused.value)


@proof
def test_a_pooler_that_ignores_startup_options_is_named_when_a_prepared_statement_is_lost(
    postgres: Postgres, postgres_url: str, pgbouncer: PgBouncer, tmp_path: Path
) -> None:
    with PgBouncer(tmp_path / "ignoring", postgres, ignore_startup_parameters="options") as server:
        database = open_database(server.address(postgres_url.rsplit("/", 1)[1]), SystemClock())

        def read() -> None:
            with database.reading() as tx:
                tx.run_sql("SELECT %s::int", [1])

        for _ in range(8):  # the driver prepares the statement, on the only connection of the pooler
            read()
        with closing(psycopg.connect(server.address(postgres_url.rsplit("/", 1)[1]).replace("+psycopg", ""))) as other:
            other.execute("SELECT 1")  # a transaction takes that connection
            with pytest.raises(BadSettings) as refused:
                read()
        assert refused.value.subcode == "pooler_not_set"
        database.close()


@proof
def test_a_pooler_without_room_is_reported_as_busy(
    postgres: Postgres, postgres_url: str, pgbouncer: PgBouncer, pooler_options: ConnectionOptions, tmp_path: Path
) -> None:
    impatient = ConnectionOptions(pooler="transaction", retry=pooler_options.retry * 0)
    with PgBouncer(tmp_path / "full", postgres, max_client_conn=1) as server:
        url = server.address(postgres_url.rsplit("/", 1)[1])
        with psycopg.connect(url.replace("+psycopg", "")):
            database = open_database(url, SystemClock(), impatient)
            with pytest.raises(StoreBusy, match=r"accepts no further connections .*no more connections allowed"):
                database.write(lambda tx: tx.run_sql("SELECT 1"), durable=True)
            database.close()


@proof
def test_listening_uses_the_address_of_the_server_behind_the_pooler(
    pooled_url: str, postgres_url: str, pooler_options: ConnectionOptions
) -> None:
    bell = PostgresNotifier(pooled_url, options=pooler_options)
    listener = bell.listen()
    sender = PostgresNotifier(pooled_url, options=ConnectionOptions(pooler="transaction"))
    for _ in range(7):  # more often than a statement is prepared
        sender._last_sent = 0
        sender.notify()
        assert listener.wait(PATIENCE_SECONDS)
    for one in (listener, bell, sender):
        one.close()


@proof
def test_without_the_address_of_the_server_a_listener_only_waits_for_the_period(
    pooled_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    bell = PostgresNotifier(pooled_url, options=ConnectionOptions(pooler="transaction"))
    listener = bell.listen()
    assert isinstance(listener, PipeListener)
    assert "listen.disabled channel=holdfast" in caplog.text
    bell.notify()
    assert not listener.wait(0.05)
    listener.wake()
    assert listener.wait(PATIENCE_SECONDS)
    listener.close()
    bell.close()


@proof
@pytest.mark.parametrize("direct", [True, False])
def test_worker_processes_build_everything_behind_the_pooler(
    pooled_url: str, postgres_url: str, tmp_path: Path, *, direct: bool
) -> None:
    settings = {"database_pooler": "transaction"} | ({"database_direct": postgres_url} if direct else {})
    shop = Shop(pooled_url, tmp_path, **settings)
    with shop.program("looks"), shop.program("looks"):
        shop.add(*(f"doc-{number}" for number in range(20)))
        until(shop.quiet, "the workers build nothing")
    shop.audit()
    shop.close()
