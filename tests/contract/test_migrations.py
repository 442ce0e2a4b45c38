"""Migrations create exactly the schema that the code declares, and apply completely or not at all."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import event, inspect, text
from sqlalchemy.engine import Engine

from holdfast.auth import tables as _access  # noqa: F401 - declares its tables
from holdfast.catalog import tables as _documents  # noqa: F401 - declares its tables
from holdfast.clock import SystemClock
from holdfast.db.migrate import find_head
from holdfast.engine.rules import Rules
from holdfast.engine.status import derive_status
from holdfast.engine.store.factory import open_database, open_store
from holdfast.indexes.graph import tables as _graph  # noqa: F401 - declares its tables
from holdfast.indexes.questions import tables as _questions  # noqa: F401 - declares its tables
from holdfast.webhooks import tables as _webhooks  # noqa: F401 - declares its tables
from tests.contract.steps import ask
from tests.support.schema import metadata
from tests.support.stores import open_test_store
from tests.support.timeouts import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.clock import FakeClock
    from tests.support.servers import Postgres

Schema = dict[str, Any]


def schema(url: str) -> Schema:
    """Read the schema from the database: columns, constraints, and indexes with their predicates."""
    database = open_database(url, SystemClock())
    look = inspect(database.engine)
    found: Schema = {}
    for table in look.get_table_names():
        parts: dict[str, Any] = {
            "columns": [{**column, "type": str(column["type"])} for column in look.get_columns(table)],
            "unique": look.get_unique_constraints(table),
            "checks": look.get_check_constraints(table),
            "foreign": look.get_foreign_keys(table),
            "indexes": [
                {**index, "dialect_options": {key: str(value) for key, value in index["dialect_options"].items()}}
                for index in look.get_indexes(table)
            ],
        }
        found[table] = {name: sorted(part, key=str) for name, part in parts.items()}
        found[table]["primary"] = look.get_pk_constraint(table)
    if database.engine.dialect.name == "sqlite":  # AUTOINCREMENT guarantees that ids are never used again
        with database.engine.connect() as connection:
            tables = connection.execute(text("SELECT name FROM sqlite_master WHERE sql LIKE '%AUTOINCREMENT%'"))
            found["autoincrement"] = set(tables.scalars())
    database.close()
    found.pop("holdfast_version", None)
    return found


def open_plainly(url: str) -> None:
    open_store(url, rules=Rules(), clock=SystemClock()).close()


def tables_of(url: str) -> list[str]:
    database = open_database(url, SystemClock())
    try:
        return inspect(database.engine).get_table_names()
    finally:
        database.close()


def execute(url: str, statement: str) -> Any:
    database = open_database(url, SystemClock())
    try:
        with database.engine.begin() as connection:
            result = connection.execute(text(statement))
            return result.scalar() if result.returns_rows else None
    finally:
        database.close()


@pytest.fixture
def empty() -> bool:
    return True


@pytest.fixture
def declared_url(database_url: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """Create a second database of the same kind from the declarations in `tables.py`."""
    with ExitStack() as stack:
        if database_url.startswith("sqlite"):
            url = f"sqlite:///{tmp_path / 'declared.db'}"
        else:
            server: Postgres = request.getfixturevalue("postgres")
            name = f"{database_url.rsplit('/', 1)[1]}_declared"
            url = server.create_database(name)
            stack.callback(server.drop_database, name)
        database = open_database(url, SystemClock())
        with database.engine.begin() as connection:
            metadata.create_all(connection)
        database.close()
        yield url


def test_the_migrations_create_the_schema_that_the_code_declares(database_url: str, declared_url: str) -> None:
    open_plainly(database_url)
    made, declared = schema(database_url), schema(declared_url)
    assert made == declared
    assert set(metadata.tables) == made.keys() - {"autoincrement"}


@pytest.mark.proof
@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE slots ADD COLUMN colour TEXT",
        "ALTER TABLE slots RENAME COLUMN stage TO phase",
        "DROP INDEX slots_queued",
        "DROP INDEX jobs_active",
        "CREATE INDEX more ON jobs (base)",
    ],
)
def test_the_schema_comparison_detects_a_difference(database_url: str, declared_url: str, statement: str) -> None:
    open_plainly(database_url)
    execute(database_url, statement)
    assert schema(database_url) != schema(declared_url)


@pytest.mark.proof
@pytest.mark.parametrize(
    ("index", "wrong"),
    [
        ("slots_timed", "CREATE INDEX slots_timed ON slots (due_at) WHERE state = 'running'"),
        ("jobs_active", "CREATE INDEX jobs_active ON jobs (owner_id) WHERE outcome IS NULL"),
        ("slots_queued", "CREATE INDEX slots_queued ON slots (kind, queued_at, id) WHERE state = 'queued'"),
    ],
)
def test_the_schema_comparison_detects_a_changed_index(
    database_url: str, declared_url: str, index: str, wrong: str
) -> None:
    open_plainly(database_url)
    execute(database_url, f"DROP INDEX {index}")
    execute(database_url, wrong)
    assert schema(database_url) != schema(declared_url)


@pytest.mark.proof
@pytest.mark.postgres
@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE slots DROP CONSTRAINT slots_lease_check",
        "ALTER TABLE slots ALTER COLUMN missing DROP DEFAULT",
        "ALTER TABLE slots ALTER COLUMN job DROP NOT NULL",
        "ALTER TABLE slots ALTER COLUMN priority TYPE BIGINT",
        "ALTER TABLE slots DROP CONSTRAINT slots_owner_id_fkey",
    ],
)
def test_the_schema_comparison_detects_a_changed_table(postgres_url: str, statement: str) -> None:
    open_plainly(postgres_url)
    before = schema(postgres_url)
    execute(postgres_url, statement)
    assert schema(postgres_url) != before


def test_the_version_is_recorded_and_opening_again_changes_nothing(database_url: str, clock: FakeClock) -> None:
    store = open_test_store(database_url, clock)
    ask(store)
    store.close()
    before = schema(database_url)
    assert execute(database_url, "SELECT version_num FROM holdfast_version") == find_head()
    open_plainly(database_url)
    assert schema(database_url) == before
    assert execute(database_url, "SELECT count(*) FROM slots") == 3


def test_an_up_to_date_database_is_opened_without_a_write(database_url: str) -> None:
    open_plainly(database_url)
    written: list[str] = []
    with statements() as seen:
        open_plainly(database_url)
    written = [sql for sql in seen if not sql.lstrip().upper().startswith(("SELECT", "PRAGMA", "BEGIN", "SHOW"))]
    assert seen
    assert written == []


@contextmanager
def statements(stop_at: int | None = None) -> Iterator[list[str]]:
    """Record every statement of every engine, and raise an error in place of statement number `stop_at`."""
    seen: list[str] = []

    def note(_connection: Any, _cursor: Any, sql: str, *_: Any) -> None:
        seen.append(sql)
        if len(seen) == stop_at:
            raise InterruptedError(sql)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield seen
    finally:
        event.remove(Engine, "before_cursor_execute", note)


def test_an_upgrade_that_fails_halfway_is_rolled_back_and_can_be_repeated(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise InterruptedError("halfway")

    with monkeypatch.context() as patch:
        patch.setattr("alembic.op.bulk_insert", fail)
        with pytest.raises(InterruptedError, match="halfway"):
            open_plainly(database_url)
    assert tables_of(database_url) == []
    open_plainly(database_url)
    assert set(tables_of(database_url)) == {*metadata.tables, "holdfast_version"}


STRIDE = 7  # the upgrade is one transaction, so it is enough to test every seventh statement


@pytest.mark.proof
def test_an_upgrade_interrupted_at_any_statement_is_rolled_back(database_url: str, declared_url: str) -> None:
    stop = 1
    while True:
        try:
            with statements(stop_at=stop) as seen:
                open_plainly(database_url)
            break
        except InterruptedError:
            assert tables_of(database_url) == [], f"stopped at {seen[-1]}"
            stop += STRIDE
    assert stop > len(metadata.tables), "it was stopped from the beginning to the end"
    assert schema(database_url) == schema(declared_url)


KILL_YOURSELF_HALFWAY = """
import os, signal, sys
import alembic.op
from holdfast.clock import SystemClock
from holdfast.engine.rules import Rules
from holdfast.engine.store.factory import open_store
alembic.op.bulk_insert = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
open_store(sys.argv[1], rules=Rules(), clock=SystemClock())
"""


def test_an_upgrade_whose_process_is_killed_is_rolled_back(database_url: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", KILL_YOURSELF_HALFWAY, database_url], check=False, timeout=PATIENCE_SECONDS
    )
    assert done.returncode == -signal.SIGKILL
    assert tables_of(database_url) == []
    open_plainly(database_url)
    assert set(tables_of(database_url)) == {*metadata.tables, "holdfast_version"}


OPEN_WHEN_TOLD = """
import sys
import alembic.command, alembic.config, alembic.script
from holdfast.clock import SystemClock
from holdfast.engine.rules import Rules
from holdfast.db import postgres, sqlite
from holdfast.engine.store.factory import open_store
print("waiting", flush=True)
for url in sys.stdin:
    try:
        open_store(url.strip(), rules=Rules(), clock=SystemClock()).close()
    except Exception as error:
        print(repr(error), flush=True)
    else:
        print("opened", flush=True)
"""


@contextmanager
def openers(count: int) -> Iterator[list[subprocess.Popen[str]]]:
    """Start processes that open a database as soon as they receive its address on standard input."""
    with ExitStack() as stack:
        processes = [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", OPEN_WHEN_TOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
                )
            )
            for _ in range(count)
        ]
        for process in processes:
            assert answer_of(process) == "waiting"
        yield processes
        for process in processes:
            process.communicate()


def answer_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def tell(process: subprocess.Popen[str], url: str) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{url}\n")
    process.stdin.flush()


def test_two_processes_that_open_a_new_file_simultaneously_both_succeed(tmp_path: Path) -> None:
    with openers(2) as processes:
        for attempt in range(10):
            url = f"sqlite:///{tmp_path / f'{attempt}.db'}"
            for process in processes:
                tell(process, url)
            assert [answer_of(process) for process in processes] == ["opened", "opened"]
            assert execute(url, "SELECT count(*) FROM counters") == 6


@pytest.mark.postgres
def test_two_processes_that_open_a_new_database_simultaneously_both_succeed(postgres_url: str) -> None:
    with openers(2) as processes:
        for _ in range(5):
            for process in processes:
                tell(process, postgres_url)
            assert [answer_of(process) for process in processes] == ["opened", "opened"]
            assert execute(postgres_url, "SELECT count(*) FROM counters") == 6
            execute(postgres_url, "DROP SCHEMA public CASCADE; CREATE SCHEMA public")


def test_a_database_of_the_first_version_is_upgraded_and_keeps_its_data(database_url: str, declared_url: str) -> None:
    database = open_database(database_url, SystemClock())
    database.prepare()
    config = Config()
    config.set_main_option("script_location", "holdfast:db/migrations")
    config.set_main_option("path_separator", "os")
    with database.writing(durable=True) as tx:
        config.attributes["connection"] = tx.connection
        command.upgrade(config, "0001")
    database.close()
    columns = "id, owner_id, base, owner, generation, operation, cause, requester, priority, open, created_at"
    values = "'job-1', 1, 'shelf', 'doc', 1, 'index', 'user', '', 5, 1, 77"
    execute(database_url, f"INSERT INTO jobs ({columns}) VALUES ({values})")  # noqa: S608 - constants of this test
    store = open_store(database_url, rules=Rules(), clock=SystemClock())
    job = store.job("job-1")
    store.close()
    assert (job.owner, job.payload, job.untold) == ("doc", None, False)
    assert schema(database_url) == schema(declared_url)


def test_items_from_before_the_list_tables_are_listed_with_their_status(database_url: str) -> None:
    database = open_database(database_url, SystemClock())
    database.prepare()
    config = Config()
    config.set_main_option("script_location", "holdfast:db/migrations")
    config.set_main_option("path_separator", "os")
    with database.writing(durable=True) as tx:
        config.attributes["connection"] = tx.connection
        command.upgrade(config, "0007")
        tx.run_sql("INSERT INTO library_bases (id, name, settings, created_at) VALUES (3, 'shelf', '{}', 1)")
        for number, kind, deleting in (
            (1, "file", 0),
            (2, "url", 0),
            (3, "directory", 0),
            (4, "file", 1),
            (5, "note", 0),
        ):
            tx.run_sql(
                "INSERT INTO library_items (id, base_id, kind, name, deleting, created_at) "  # noqa: S608 - constants
                f"VALUES ({number}, 3, '{kind}', 'STRASSE Ä {number}', {deleting}, 70{number})"
            )
        for base, owner, status in (
            ("3", "1", "success"), ("3", "2", "success"), ("3", "source:2", "failed"), ("3", "4", "deleting"),
            ("other", "5", "failed"),
        ):  # fmt: skip
            tx.run_sql(
                "INSERT INTO owners (base, owner, generation, status, created_at) "  # noqa: S608 - constants
                f"VALUES ('{base}', '{owner}', 1, '{status}', 1)"
            )
    database.close()
    open_plainly(database_url)
    database = open_database(database_url, SystemClock())
    with database.reading() as tx:
        listed = tx.run_sql("SELECT item_id, container, status FROM library_standings ORDER BY item_id")
        names = tx.run_sql("SELECT folded, changed_at FROM library_items ORDER BY id")
    database.close()
    assert listed == [(1, 0, "success"), (2, 0, "degraded"), (3, 1, None), (5, 0, "not_indexed")]
    assert names == [(f"strasse ä {number}", 700 + number) for number in range(1, 6)]


def test_an_upgrade_derives_the_status_of_cancelled_owners_by_the_current_rules(database_url: str) -> None:
    database = open_database(database_url, SystemClock())
    database.prepare()
    config = Config()
    config.set_main_option("script_location", "holdfast:db/migrations")
    config.set_main_option("path_separator", "os")
    slots = {  # for each owner, its slots as (state, built, missing)
        "served": [("cancelled", 1, 0), ("cancelled", 1, 0)],
        "dropping": [("cancelled", 1, 0), ("deleting", 0, 1)],
        "lacking": [("cancelled", 1, 1), ("cancelled", 1, 0)],
        "half": [("ready", 2, 0), ("cancelled", 0, 0)],
        "failed": [("ready", 2, 0), ("failed", 1, 0)],
    }
    with database.writing(durable=True) as tx:
        config.attributes["connection"] = tx.connection
        command.upgrade(config, "0010")
        for number, (owner, some) in enumerate(slots.items(), 1):
            tx.run_sql(
                "INSERT INTO owners (id, base, owner, generation, status, created_at) "  # noqa: S608 - constants
                f"VALUES ({number}, 'shelf', '{owner}', 2, 'degraded', 1)"
            )
            for kind, (state, built, missing) in enumerate(some):
                due = 1 if state == "deleting" else "NULL"
                columns = "owner_id, kind, job, wanted, built, missing, state, priority, queued_at, due_at"
                values = f"{number}, 'kind {kind}', 'job', 2, {built}, {missing}, '{state}', 5, 1, {due}"
                tx.run_sql(
                    f"INSERT INTO slots ({columns}, error_code, error_params) "  # noqa: S608 - constants
                    f"VALUES ({values}, 'provider_busy', '{{}}')"
                )
    database.close()
    open_plainly(database_url)
    store = open_store(database_url, rules=Rules(), clock=SystemClock())
    owners = {owner: store.owner("shelf", owner) for owner in slots}
    store.close()
    shown = {name: str(owner.status) for name, owner in owners.items()}
    assert shown == dict.fromkeys(slots, "degraded") | {"served": "success", "dropping": "success"}
    assert [owner.status is derive_status(owner.slots) for owner in owners.values()] == [True] * len(owners)
    errors = {(slot.state == "cancelled", slot.error_code) for owner in owners.values() for slot in owner.slots}
    assert errors == {(True, None), (False, "provider_busy")}


def test_the_alembic_version_of_another_app_in_the_same_database_is_unchanged(database_url: str) -> None:
    execute(database_url, "CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)")
    execute(database_url, "INSERT INTO alembic_version VALUES ('a-revision-of-the-app')")
    open_plainly(database_url)
    open_plainly(database_url)
    assert execute(database_url, "SELECT version_num FROM alembic_version") == "a-revision-of-the-app"
    assert execute(database_url, "SELECT version_num FROM holdfast_version") == find_head()
