"""PostgreSQL goes away, is full or is slow: transactions are repeated, and an unknown commit is looked up."""

from __future__ import annotations

import threading
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from sqlalchemy import func, select

from holdfast.clock import SystemClock
from holdfast.db import postgres as postgres_dialect
from holdfast.db.connection_options import ConnectionOptions
from holdfast.db.database import MAX_ATTEMPTS
from holdfast.db.migrate import ADVISORY_LOCK_ID, migrate
from holdfast.engine.store.factory import open_database
from holdfast.errors import StoreBusy, StoreUnavailable
from tests.contract.steps import finished
from tests.support.cutting_proxy import Cut, CuttingProxy
from tests.support.servers import Postgres
from tests.support.stores import ONE, open_test_store, request
from tests.support.timeouts import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from holdfast.db import Database, Transaction
    from tests.support.clock import FakeClock

pytestmark = pytest.mark.postgres
SECOND = timedelta(seconds=1)
PATIENT = ConnectionOptions(retry=PATIENCE_SECONDS * SECOND)
IMPATIENT = ConnectionOptions(retry=timedelta())


@pytest.fixture
def proxy(postgres: Postgres) -> Iterator[CuttingProxy]:
    with CuttingProxy(postgres.port) as proxy:
        yield proxy


@pytest.fixture
def database(postgres_url: str, proxy: CuttingProxy) -> Iterator[Database]:
    """A database with the table `notes`, through the proxy."""
    with psycopg.connect(postgres_url.replace("+psycopg", "")) as connection:
        connection.execute("CREATE TABLE notes (text TEXT)")
    with closing(open_database(proxy.address(postgres_url), SystemClock(), PATIENT)) as database:
        yield database


class Note:
    """Writes one row, and counts how often it runs."""

    def __init__(self) -> None:
        self.runs = 0

    def __call__(self, tx: Transaction) -> str:
        self.runs += 1
        tx.run_sql("INSERT INTO notes VALUES ('one')")
        return "written"


def count_notes(database: Database) -> int:
    with database.reading() as tx:
        ((count,),) = tx.run_sql("SELECT count(*) FROM notes")
    return int(count)


@pytest.mark.parametrize("when", Cut)
def test_a_commit_without_a_reply_is_looked_up_and_repeated_only_if_it_was_rolled_back(
    database: Database, proxy: CuttingProxy, caplog: pytest.LogCaptureFixture, when: Cut
) -> None:
    caplog.set_level("INFO")
    proxy.cut_next_commit(when)
    note = Note()
    assert database.write(note, durable=True) == "written"
    assert not proxy.armed
    assert note.runs == (1 if when is Cut.AFTER else 2)
    assert count_notes(database) == 1
    assert f"status={'committed' if when is Cut.AFTER else 'aborted'}" in caplog.text


@pytest.mark.proof
@pytest.mark.parametrize("when", Cut)
def test_a_commit_that_cannot_be_looked_up_is_reported_as_unknown_and_never_repeated(
    postgres_url: str, database: Database, proxy: CuttingProxy, when: Cut
) -> None:
    impatient = open_database(proxy.address(postgres_url), SystemClock(), IMPATIENT)
    proxy.refuse_after_cut = True
    proxy.cut_next_commit(when)
    note = Note()
    with pytest.raises(StoreUnavailable) as unknown:
        impatient.write(note, durable=True)
    impatient.close()
    assert unknown.value.subcode == "commit_unknown"
    assert note.runs == 1
    proxy._refusing = False
    assert count_notes(database) == (1 if when is Cut.AFTER else 0)


def test_a_transaction_that_conflicts_with_another_one_runs_again(database: Database, postgres_url: str) -> None:
    database.write(lambda tx: tx.run_sql("CREATE UNIQUE INDEX one_note ON notes (text)"), durable=True)
    runs: list[bool] = []

    def work(tx: Transaction) -> None:
        runs.append(bool(tx.run_sql("SELECT 1 FROM notes WHERE text = 'one'")))
        if not runs[-1]:
            with psycopg.connect(postgres_url.replace("+psycopg", "")) as other:
                other.execute("INSERT INTO notes VALUES ('one')")
            tx.run_sql("INSERT INTO notes VALUES ('one')")

    database.write(work, durable=True)
    assert runs == [False, True]


def test_a_transaction_that_conflicts_every_time_ends_with_its_error(database: Database) -> None:
    database.write(lambda tx: tx.run_sql("CREATE UNIQUE INDEX one_note ON notes (text)"), durable=True)
    note = Note()
    database.write(note, durable=True)
    with pytest.raises(psycopg.errors.UniqueViolation):
        database.write(note, durable=True)
    assert note.runs == 1 + MAX_ATTEMPTS


def test_an_error_of_a_statement_is_not_repeated(database: Database) -> None:
    note = Note()

    def work(tx: Transaction) -> None:
        note(tx)
        tx.run_sql("SELECT 1 / 0")

    with pytest.raises(psycopg.errors.DivisionByZero):
        database.write(work, durable=True)
    assert (note.runs, count_notes(database)) == (1, 0)


def test_a_transaction_that_only_reads_needs_no_lookup(
    database: Database, proxy: CuttingProxy, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    database.write(Note(), durable=True)  # the id of this transaction must not be used for the next one
    proxy.cut_next_commit(Cut.AFTER)
    runs = []

    def read(tx: Transaction) -> int:
        runs.append(1)
        return int(tx.run(select(func.count()))[0][0])

    assert database.write(read, durable=True) == 1
    assert len(runs) == 2
    assert "commit.connection_lost" not in caplog.text


def test_what_code_writes_by_the_connection_itself_is_looked_up(database: Database, proxy: CuttingProxy) -> None:
    def write(tx: Transaction) -> None:
        tx.connection.exec_driver_sql("INSERT INTO notes VALUES ('one')")

    proxy.cut_next_commit(Cut.AFTER)
    database.write(write, durable=True)
    assert count_notes(database) == 1


@pytest.mark.parametrize("idle", [False, True])
def test_a_connection_that_the_server_has_closed_is_replaced_before_a_read(
    database: Database, postgres_url: str, monkeypatch: pytest.MonkeyPatch, *, idle: bool
) -> None:
    """A server that loses its power says nothing, so a connection that was idle for long is tested anyway."""
    assert count_notes(database) == 0
    with psycopg.connect(postgres_url.replace("+psycopg", ""), autocommit=True) as admin:
        others = "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = current_database()"
        admin.execute(f"{others} AND pid <> pg_backend_pid()")
    if idle:
        monkeypatch.setattr(postgres_dialect, "_is_readable", lambda _: False)
        monkeypatch.setattr(postgres_dialect, "PING_AFTER_SECONDS", 0.0)
    assert count_notes(database) == 0


def test_a_connection_in_use_is_not_tested_each_time(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    assert count_notes(database) == 0
    monkeypatch.setattr(database.engine.dialect, "do_ping", lambda _: pytest.fail("a round trip"))
    assert count_notes(database) == 0
    database.write(Note(), durable=True)


@pytest.mark.proof
@pytest.mark.parametrize("when", Cut)
def test_a_block_is_not_repeated_and_its_commit_is_looked_up(
    database: Database, proxy: CuttingProxy, when: Cut
) -> None:
    proxy.cut_next_commit(when)

    def write() -> None:
        with database.writing(durable=True) as tx:
            Note()(tx)

    if when is Cut.AFTER:
        write()
    else:
        with pytest.raises(StoreUnavailable):
            write()
    assert count_notes(database) == (1 if when is Cut.AFTER else 0)


@pytest.mark.proof
@pytest.mark.parametrize("when", Cut)
def test_a_request_and_a_result_are_recorded_once_although_their_commits_get_no_reply(
    postgres_url: str, proxy: CuttingProxy, clock: FakeClock, when: Cut
) -> None:
    store = open_test_store(proxy.address(postgres_url), clock, connections=PATIENT)
    proxy.cut_next_commit(when)
    (reply,) = store.admit([request("doc", slots=ONE)])
    assert reply.accepted
    proxy.cut_next_commit(when)
    (ticket,) = store.claim_next(["cards"], "worker", 10)
    assert ticket.fence == store.slot("shelf", "doc", "cards").fence == 1
    proxy.cut_next_commit(when)
    store.complete([finished(ticket)])
    assert not proxy.armed
    slot = store.slot("shelf", "doc", "cards")
    assert (slot.state, slot.built, slot.attempts) == ("ready", 1, 1)
    assert [one.outcome for one in store.list_jobs_of_owner(store.owner("shelf", "doc").id)] == ["success"]
    ends = [one.event.type for one in store.events() if one.event.type.startswith("job.")]
    assert len(ends) == 1
    assert store.refusals() == []
    assert {name: count for name, count in store.counters().items() if count} == {}
    store.close()


@pytest.mark.proof
def test_a_transaction_whose_session_is_terminated_runs_again(database: Database, postgres_url: str) -> None:
    pids: list[int] = []

    def work(tx: Transaction) -> None:
        ((pid,),) = tx.run_sql("SELECT pg_backend_pid()")
        tx.run_sql("INSERT INTO notes VALUES ('one')")
        if not pids:
            with psycopg.connect(postgres_url.replace("+psycopg", ""), autocommit=True) as other:
                other.execute("SELECT pg_terminate_backend(%s, 10000)", [pid])
        pids.append(pid)
        tx.run_sql("INSERT INTO notes VALUES ('two')")

    database.write(work, durable=True)
    assert len(set(pids)) == len(pids)
    assert count_notes(database) == 2


@pytest.mark.proof
def test_writes_wait_for_a_server_that_crashed_and_reads_work_after_it(tmp_path: Path) -> None:
    with Postgres(tmp_path / "server") as server:
        database = open_database(server.url, SystemClock(), PATIENT)
        database.write(lambda tx: tx.run_sql("CREATE TABLE notes (text TEXT)"), durable=True)
        assert count_notes(database) == 0
        server.crash()
        with pytest.raises(StoreUnavailable):
            count_notes(database)
        starting = threading.Thread(target=server.restart)
        starting.start()
        assert database.write(Note(), durable=True) == "written"
        starting.join()
        assert count_notes(database) == 1
        database.close()


@pytest.mark.proof
def test_a_server_that_stays_away_is_reported_after_the_time_for_repeats() -> None:
    away = "postgresql+psycopg://postgres@127.0.0.1:1/none"
    nothing = open_database(away, SystemClock(), ConnectionOptions(retry=0.3 * SECOND))
    with pytest.raises(StoreUnavailable, match="PostgreSQL refused or lost the connection"):
        nothing.write(Note(), durable=True)


@pytest.mark.proof
def test_a_process_whose_connections_are_all_in_use_is_reported(postgres_url: str) -> None:
    small = ConnectionOptions(pool=1, overflow=1, wait=0.1 * SECOND)
    database = open_database(postgres_url, SystemClock(), small)
    with database.reading(), database.engine.connect():
        for use in (lambda: database.write(Note(), durable=True), database.writing(durable=True).__enter__):
            with pytest.raises(StoreBusy) as busy:
                use()
            assert busy.value.subcode == "pool_exhausted"
            assert str(busy.value).startswith(
                "All 2 connections of this process to PostgreSQL were in use for 0.1 s. Nothing was written."
            )
    database.close()


@pytest.mark.proof
@pytest.mark.parametrize("limit", ["ROLE", "DATABASE"])
def test_a_server_without_free_connections_is_reported_as_busy(postgres_url: str, limit: str) -> None:
    name = postgres_url.rsplit("/", 1)[1]
    admin = psycopg.connect(postgres_url.replace("+psycopg", ""), autocommit=True)
    role = f"crowd_{name}"
    admin.execute(f'CREATE ROLE "{role}" LOGIN'.encode())
    target = role if limit == "ROLE" else name
    admin.execute(f'ALTER {limit} "{target}" CONNECTION LIMIT 0'.encode())
    try:
        crowded = postgres_url.replace("postgres@", f"{role}@")
        database = open_database(crowded, SystemClock(), IMPATIENT)
        with pytest.raises(StoreBusy) as busy:
            database.write(Note(), durable=True)
        assert busy.value.subcode == "database_connections_exhausted"
        assert "too many connections for" in str(busy.value)
    finally:
        admin.execute(f'ALTER {limit} "{target}" CONNECTION LIMIT -1'.encode())
        admin.execute(f'DROP ROLE "{role}"'.encode())
        admin.close()


@pytest.mark.proof
def test_the_timeouts_of_the_settings_apply_and_are_named(postgres_url: str, database: Database) -> None:
    short = ConnectionOptions(lock=0.1 * SECOND, statement=0.4 * SECOND, idle=0.2 * SECOND, retry=timedelta())
    with closing(open_database(postgres_url, SystemClock(), short)) as hasty:
        with pytest.raises(StoreBusy, match=r"HOLDFAST_DATABASE_STATEMENT is 0\.4 s") as slow:
            hasty.write(lambda tx: tx.run_sql("SELECT pg_sleep(10)"), durable=True)
        assert slow.value.subcode == "statement_timeout"
        with database.writing(durable=True) as tx:
            tx.run_sql("LOCK TABLE notes")
            with pytest.raises(StoreBusy, match=r"locked for more than 0\.1 s"):
                hasty.write(Note(), durable=True)
        with hasty.autocommit() as tx:  # an index is built without a limit
            tx.run_sql("SELECT pg_sleep(0.6)")
        with hasty.reading() as tx:
            assert tx.run_sql("SHOW statement_timeout") == [("400ms",)]

        def sleep(tx: Transaction) -> None:
            tx.run_sql("INSERT INTO notes VALUES ('one')")
            threading.Event().wait(0.6)
            tx.run_sql("INSERT INTO notes VALUES ('two')")

        with pytest.raises(StoreUnavailable, match="Nothing was written"):
            hasty.write(sleep, durable=True)
    assert count_notes(database) == 0


@pytest.mark.proof
def test_a_process_waits_for_another_that_migrates_longer_than_a_lock_may_take(postgres: Postgres) -> None:
    name = "slow_migration"
    url = postgres.create_database(name)
    options = replace(PATIENT, lock=0.05 * SECOND, statement=0.2 * SECOND)
    errors: list[Any] = []

    def upgrade() -> None:
        with closing(open_database(url, SystemClock(), options)) as database:
            try:
                migrate(database)
            except Exception as error:  # noqa: BLE001 - the test reports it
                errors.append(error)

    with psycopg.connect(url.replace("+psycopg", "")) as other:
        other.execute("SELECT pg_advisory_xact_lock(%s)", [ADVISORY_LOCK_ID])
        thread = threading.Thread(target=upgrade)
        thread.start()
        thread.join(0.5)
        assert thread.is_alive()
    thread.join(PATIENCE_SECONDS)
    assert errors == []
    with psycopg.connect(url.replace("+psycopg", "")) as other:
        assert other.execute("SELECT count(*) FROM holdfast_version").fetchone() == (1,)
    postgres.drop_database(name)
