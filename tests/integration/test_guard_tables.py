"""The guard's own tables: where they are, how teams create them, engines of an app, and rows of older versions."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import QueuePool, column, create_engine, inspect, select, text
from sqlalchemy.ext.asyncio import create_async_engine

from holdfast.clock import SystemClock
from holdfast.db.migrate import find_head
from holdfast.engine.admission import Request
from holdfast.engine.dependencies import SlotSpec
from holdfast.engine.rules import Rules
from holdfast.engine.slot import BuildResult
from holdfast.engine.states import Operation, Outcome, Status
from holdfast.engine.store import Completion
from holdfast.engine.store.factory import open_store
from holdfast.engine.store.tables import ENGINE_TABLES
from holdfast.errors import BadSettings, StoreTooNew
from holdfast.guard import Guard
from holdfast.guard.alembic import drop_guard, upgrade_guard
from holdfast.guard.tables import CALL_TABLES
from tests.support.processes import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine

    from holdfast.guard import Run

NAMES = {table.name for table in (*ENGINE_TABLES, *CALL_TABLES)} | {"holdfast_version"}


@pytest.fixture
def empty() -> bool:
    return True


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    made = create_engine(database_url)
    yield made
    made.dispose()


@pytest.fixture
def app_engine(postgres_url: str) -> Iterator[Engine]:
    """The engine of an app, with two connections and a schema of its own."""
    made = create_engine(postgres_url, pool_size=2, max_overflow=0, connect_args={"options": "-c search_path=shop"})
    with made.begin() as connection:
        connection.execute(text("CREATE SCHEMA shop"))
        connection.execute(text("CREATE TABLE shop.jobs (body TEXT)"))  # named as a table of the engine
    yield made
    made.dispose()


def tables(engine: Engine, schema: str | None = None) -> set[str]:
    return set(inspect(engine).get_table_names(schema=schema))


def use(guard: Guard, key: str = "42") -> Outcome | None:
    work = guard.works.get("cards") or guard.work("cards")
    admission = work.admit(key, operation="force")
    assert admission.job is not None
    done = work.perform(admission.job, lambda _run: "built")
    guard.reconcile()
    return done.outcome


def test_a_guard_creates_only_its_own_tables(engine: Engine, database_url: str) -> None:
    guard = Guard(database_url)
    assert use(guard) is Outcome.SUCCESS
    guard.close()
    if engine.dialect.name == "sqlite":
        assert tables(engine) == {f"guard_{name}" for name in NAMES}
    else:
        assert tables(engine) == set()
        assert tables(engine, "guard") == NAMES


def shape(engine: Engine, schema: str | None, prefix: str = "") -> dict[tuple[str, str], Any]:
    """Read columns, constraints and indexes of the engine's tables, without schema and prefix."""
    look = inspect(engine)

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {
                key: plain(part)
                for key, part in value.items()
                if key not in ("referred_schema", "duplicates_constraint")
            }
        if isinstance(value, list):
            return sorted(map(plain, value), key=str)
        shown = str(value)
        for part in (f"{schema}.", f'"{schema}".', "public.", prefix):
            shown = shown.replace(part, "")
        return shown

    return {
        (name, part): read
        for name in (table.name for table in ENGINE_TABLES)
        for part, read in {
            "columns": plain(look.get_columns(prefix + name, schema)),
            "unique": plain(look.get_unique_constraints(prefix + name, schema)),
            "checks": plain(look.get_check_constraints(prefix + name, schema)),
            "foreign": plain(look.get_foreign_keys(prefix + name, schema)),
            "primary": plain(look.get_pk_constraint(prefix + name, schema)),
            "indexes": plain(look.get_indexes(prefix + name, schema)),
        }.items()
    }


@pytest.mark.parametrize("prefix", ["", "hf_"])
def test_the_tables_equal_those_that_the_migrations_of_holdfast_create(
    engine: Engine, database_url: str, prefix: str
) -> None:
    open_store(database_url, rules=Rules(), clock=SystemClock()).close()
    sqlite = engine.dialect.name == "sqlite"
    guard = Guard(database_url, prefix=prefix or None, schema="" if prefix or sqlite else "guard")
    assert guard.store.database.names.table("jobs") == (
        f"{prefix or 'guard_'}jobs" if sqlite or prefix else "guard.jobs"
    )
    guard.close()
    own_schema = None if sqlite or prefix else "guard"
    own_prefix = prefix or ("guard_" if sqlite else "")
    ours, theirs = shape(engine, own_schema, own_prefix), shape(engine, None if sqlite else "public")
    for part, found in ours.items():
        assert found == theirs[part], part
    with engine.connect() as connection:
        for seeded in ("counters", "event_marks", "holdfast_version"):
            own = f"guard.{seeded}" if own_schema else own_prefix + seeded
            read = [
                sorted(map(tuple, connection.execute(select(text("*")).select_from(text(name)))))
                for name in (own, seeded)
            ]
            assert read[0] == read[1]
        if sqlite:  # AUTOINCREMENT guarantees that ids are never used again
            ids = text("SELECT name FROM sqlite_master WHERE sql LIKE '%AUTOINCREMENT%'")
            found = set(connection.execute(ids).scalars())
            assert {name for name in NAMES if own_prefix + name in found} == found & NAMES
        else:
            options = text(
                "SELECT replace(relname, :prefix, ''), reloptions FROM pg_class JOIN pg_namespace n ON n.oid = "
                "relnamespace WHERE nspname = :schema AND relkind = 'r' AND reloptions IS NOT NULL"
            )
            theirs, ours = (
                {
                    name: sorted(values)
                    for name, values in connection.execute(options, {"schema": place, "prefix": own_prefix})
                    if name in NAMES
                }
                for place in ("public", own_schema or "public")
            )
            assert ours == theirs


def test_two_guards_with_different_prefixes_share_a_database(engine: Engine, database_url: str) -> None:
    one, two = Guard(database_url, prefix="one_"), Guard(database_url, prefix="two_")
    assert use(one) is use(two) is Outcome.SUCCESS
    assert one.works["cards"].status("42").served is not None
    assert {"one_slots", "two_slots"} <= tables(engine)
    one.close()
    two.close()


def test_many_processes_that_create_the_tables_at_once_do_not_fail(database_url: str) -> None:
    guards = [Guard(database_url) for _ in range(6)]
    with ThreadPoolExecutor(len(guards)) as pool:
        assert list(pool.map(lambda guard: use(guard, str(id(guard))), guards)) == [Outcome.SUCCESS] * 6
    for guard in guards:
        guard.close()


def test_a_guard_that_may_not_create_its_tables_says_how_to_create_them(engine: Engine, database_url: str) -> None:
    guard = Guard(database_url, create_tables=False)
    with pytest.raises(BadSettings, match="holdfast guard ddl"):
        _ = guard.store
    with engine.begin() as connection:
        for statement in guard.place.ddl():
            connection.exec_driver_sql(statement)
    assert use(guard) is Outcome.SUCCESS
    guard.close()


def set_version(engine: Engine, guard: Guard, version: str) -> None:
    with engine.begin() as connection:
        name = guard.place.names.table("holdfast_version")
        connection.execute(text(f"UPDATE {name} SET version_num = :version"), {"version": version})  # noqa: S608


def test_tables_of_a_newer_version_are_refused_and_old_ones_upgraded(engine: Engine, database_url: str) -> None:
    guard = Guard(database_url)
    use(guard)
    guard.close()
    set_version(engine, guard, "9999")
    with pytest.raises(StoreTooNew, match="9999"):
        _ = guard.store
    with pytest.raises(StoreTooNew, match="9999"):
        _ = Guard(database_url, create_tables=False).store
    set_version(engine, guard, "0001")
    with pytest.raises(BadSettings, match="0001"):
        _ = guard.store


def test_a_running_process_claims_nothing_after_a_newer_version_upgraded_the_tables(
    engine: Engine, database_url: str
) -> None:
    guard = Guard(database_url)
    work = guard.work("cards")
    job = work.admit("42").job
    assert job is not None
    set_version(engine, guard, "9999")
    with pytest.raises(StoreTooNew):
        work.perform(job, lambda _run: "built")
    guard.close()


@pytest.mark.parametrize("name", ["Guard", "a b", "1st", 'x"; DROP TABLE y; --', "g" * 31])
def test_a_schema_or_prefix_that_needs_quotes_is_refused(name: str) -> None:
    with pytest.raises(BadSettings, match="lower-case"):
        Guard("postgresql+psycopg://nowhere/db", schema=name)
    with pytest.raises(BadSettings, match="lower-case"):
        Guard("sqlite://", prefix=name)


def test_names_that_a_database_cannot_have_are_refused() -> None:
    with pytest.raises(BadSettings, match="SQLite has no schemas"):
        Guard("sqlite://", schema="guard")
    with pytest.raises(BadSettings, match="schema or a prefix"):
        Guard("sqlite://", prefix="")


FIRST_TABLES = Path(__file__).with_name("guard_tables")


@pytest.mark.parametrize("way", ["guard", "ddl", "alembic"])
def test_tables_of_the_first_version_are_upgraded_to_the_present_ones(
    engine: Engine, database_url: str, way: str
) -> None:
    """The files were written by `holdfast guard ddl` of that version. They never change."""
    sqlite = engine.dialect.name == "sqlite"
    with engine.begin() as connection:
        for statement in (FIRST_TABLES / f"0023_{engine.dialect.name}.sql").read_text().split(";\n"):
            if statement:
                connection.exec_driver_sql(statement)
    guard = Guard(database_url, create_tables=way == "guard")
    if way != "guard":
        with pytest.raises(BadSettings, match="older version"):
            _ = guard.store
        with engine.begin() as connection:
            if way == "alembic":
                upgrade_guard(operations(connection))
            else:
                for statement in guard.place.ddl("0023"):
                    connection.exec_driver_sql(statement)
    assert use(guard) is Outcome.SUCCESS
    guard.close()
    open_store(database_url, rules=Rules(), clock=SystemClock()).close()
    ours = shape(engine, None if sqlite else "guard", "guard_" if sqlite else "")
    for part, found in shape(engine, None if sqlite else "public").items():
        assert ours[part] == found, part


# Alembic


def operations(connection: Any, **options: Any) -> Operations:
    return Operations(MigrationContext.configure(connection, **options))


def test_a_migration_of_the_app_creates_and_drops_the_tables(engine: Engine, database_url: str) -> None:
    with engine.begin() as connection:
        upgrade_guard(operations(connection))
        upgrade_guard(operations(connection))  # a second call changes nothing
    guard = Guard(database_url, create_tables=False)
    assert use(guard) is Outcome.SUCCESS
    guard.close()
    with engine.begin() as connection:
        drop_guard(operations(connection))
    assert tables(engine, None if engine.dialect.name == "sqlite" else "guard") == set()


def test_a_migration_without_a_database_prints_the_statements(database_url: str, tmp_path: Path) -> None:
    printed = tmp_path / "printed.sql"
    dialect = database_url.partition(":")[0].partition("+")[0]
    with printed.open("w") as out:
        context = MigrationContext.configure(dialect_name=dialect, opts={"as_sql": True, "output_buffer": out})
        upgrade_guard(Operations(context), prefix="hf_")
    assert "CREATE TABLE hf_slots" in printed.read_text()
    assert find_head() in printed.read_text()


# The engine of an app


@pytest.mark.postgres
def test_the_engine_of_the_app_is_used_with_its_pool_and_its_search_path(app_engine: Engine) -> None:
    guard = Guard(engine=app_engine)
    work = guard.work("cards")
    pool = app_engine.pool
    assert isinstance(pool, QueuePool)

    def build(run: Run) -> None:
        assert pool.checkedout() == 0
        with run.commit() as connection:
            assert pool.checkedout() == 1
            connection.execute(text("INSERT INTO jobs VALUES ('forty-two')"))  # of the app, by its search_path

    job = work.admit("42").job
    assert job is not None
    assert work.perform(job, build).outcome is Outcome.SUCCESS
    guard.close()
    with app_engine.connect() as connection:  # closing the guard leaves the engine open
        assert connection.execute(text("SELECT body FROM shop.jobs")).scalars().all() == ["forty-two"]
        assert connection.execute(text("SHOW search_path")).scalar() == "shop"
    assert tables(app_engine, "public") == set()
    assert tables(app_engine, "shop") == {"jobs"}
    assert tables(app_engine, "guard") == NAMES


@pytest.mark.postgres
def test_a_transaction_of_the_app_publishes_with_its_own_engine(app_engine: Engine) -> None:
    guard = Guard(engine=app_engine)
    work = guard.work("cards")

    def build(run: Run) -> None:
        with app_engine.begin() as connection:
            connection.execute(text("INSERT INTO jobs VALUES ('ours')"))
            run.commit_in(connection)

    def late(run: Run) -> None:
        work.admit("42", operation="change", fingerprint="new")
        with app_engine.begin() as connection:
            connection.execute(text("INSERT INTO jobs VALUES ('late')"))
            run.commit_in(connection)

    assert work.perform(str(work.admit("42").job), build).outcome is Outcome.SUCCESS
    refused = work.perform(str(work.admit("42", operation="force").job), late)
    assert refused.outcome is Outcome.SUPERSEDED
    with app_engine.connect() as connection:
        assert connection.execute(text("SELECT body FROM jobs")).scalars().all() == ["ours"]
    guard.close()


@pytest.mark.postgres
def test_an_engine_with_a_stricter_isolation_level_works(postgres_url: str) -> None:
    engine = create_engine(postgres_url, isolation_level="SERIALIZABLE")
    guard = Guard(engine=engine)
    with ThreadPoolExecutor(8) as pool:
        work = guard.work("cards")
        found = list(pool.map(lambda n: work.admit("42", requester=str(n)).accepted, range(16)))
    assert sorted(found) == [False] * 15 + [True]
    guard.close()
    engine.dispose()


FORKED = """
import os, sys
from sqlalchemy import create_engine
from holdfast.guard import Guard

engine = create_engine(sys.argv[1])
guard = Guard(engine=engine)
work = guard.work("cards")
job = work.admit("42").job

def session():
    with engine.connect() as connection:
        return connection.exec_driver_sql("SELECT pg_backend_pid()").scalar()

mine = session()
child = os.fork()
if child == 0:
    done = work.perform(job, lambda run: "built in the child")
    os._exit(0 if done.outcome == "success" and session() != mine else 1)
assert os.waitpid(child, 0)[1] == 0, "the child could not use the guard"
assert work.status("42").status == "success", "the parent cannot use it any more"
guard.close()
print("both")
"""


@pytest.mark.postgres
def test_a_forked_child_does_not_use_the_connections_of_the_parents_engine(postgres_url: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKED, postgres_url], capture_output=True, text=True, check=False
    )
    assert (ran.stdout, ran.returncode) == ("both\n", 0), ran.stderr


def test_an_engine_that_the_guard_cannot_use_is_refused() -> None:
    with pytest.raises(BadSettings, match=r"sqlite\+pysqlite"):
        Guard(engine=create_engine("sqlite://"))
    with pytest.raises(BadSettings, match="AsyncEngine"):
        Guard(engine=create_async_engine("postgresql+psycopg://nowhere/db"))  # type: ignore[arg-type]


@pytest.mark.postgres
def test_a_search_path_in_the_address_counts(postgres_url: str, app_engine: Engine) -> None:
    """Before, the timeouts of Holdfast replaced the options of the address."""
    guard = Guard(f"{postgres_url}?options=-csearch_path%3Dshop")
    work = guard.work("cards")

    def build(run: Run) -> None:
        with run.commit() as connection:
            assert connection.execute(text("SHOW lock_timeout")).scalar() == "30s"
            connection.execute(text("INSERT INTO jobs VALUES ('found')"))

    assert work.perform(str(work.admit("42").job), build).outcome is Outcome.SUCCESS
    guard.close()
    with app_engine.connect() as connection:
        assert connection.execute(text("SELECT body FROM shop.jobs")).scalars().all() == ["found"]


# Rows of older versions


def make_old_rows(url: str) -> tuple[str, int]:
    """Write rows as older versions did, and a document beside them. Return a queued job and the served fence."""
    store = open_store(url, rules=Rules(), clock=SystemClock())
    document = Request(base="7", owner="1", operation=Operation.INDEX, slots=(SlotSpec("content"),))
    done, queued = (
        Request(base="cards", owner=key, operation=Operation.INDEX, slots=(SlotSpec("cards"),), payload="{}")
        for key in ("done", "queued")
    )
    store.admit([document, done])
    (ticket,) = store.claim_next(("cards",), "somebody", 1)
    store.complete([Completion(ticket=ticket, built=BuildResult())])
    (admitted,) = store.admit([queued])
    store.admit([queued])  # a refusal
    store.close()
    assert admitted.job is not None
    return admitted.job, ticket.fence


def test_rows_of_an_older_version_move_to_the_own_tables(engine: Engine, database_url: str) -> None:
    job, fence = make_old_rows(database_url)
    guard = Guard(database_url)
    work = guard.work("cards")
    assert (work.status("done").status, work.served("done")) == (Status.SUCCESS, fence)
    assert [refusal.reason for refusal in work.refusals("queued")] == ["already_in_progress"]
    assert work.perform(job, lambda _run: "built").outcome is Outcome.SUCCESS
    assert guard.store.find_wrong_slot_totals() == {}
    with engine.connect() as connection:
        assert connection.execute(text("SELECT base FROM owners")).scalars().all() == ["7"]
        assert connection.execute(text("SELECT kind FROM slots")).scalars().all() == ["content"]
        old = max(connection.execute(text("SELECT id FROM slots")).scalars())
        new = guard.place.names.table("slots")
        assert guard.store.slot("cards", "done", "cards").id > old
        work.admit("new")
        ids: list[int] = sorted(connection.execute(select(column("id")).select_from(text(new))).scalars())
    assert len(set(ids)) == 3
    guard.close()
    again = Guard(database_url)
    assert again.work("cards").status("queued").status is Status.SUCCESS
    again.close()


def test_a_database_of_holdfast_alone_keeps_its_rows(engine: Engine, database_url: str) -> None:
    store = open_store(database_url, rules=Rules(), clock=SystemClock())
    store.admit([Request(base="7", owner="1", operation=Operation.INDEX, slots=(SlotSpec("content"),))])
    store.close()
    use_guard = Guard(database_url)
    use(use_guard)
    use_guard.close()
    with engine.connect() as connection:
        assert connection.execute(text("SELECT base FROM owners")).scalars().all() == ["7"]


def test_a_command_prints_the_statements_for_a_team_that_runs_them_itself(
    engine: Engine, database_url: str, tmp_path: Path
) -> None:
    (tmp_path / "shop.py").write_text(
        f"from holdfast.guard import Guard\nguard = Guard({database_url!r}, prefix='hf_', create_tables=False)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-m", "holdfast.cli", "guard", "ddl", "shop:guard"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT / "src")}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    with engine.begin() as connection:
        for statement in ran.stdout.split(";\n"):
            if statement:
                connection.exec_driver_sql(statement)
    guard = Guard(database_url, prefix="hf_", create_tables=False)
    assert use(guard) is Outcome.SUCCESS
    guard.close()
