"""Shared fixtures: one PostgreSQL server per run, and a new database per test on SQLite and PostgreSQL."""

from __future__ import annotations

import gc
import os
import shutil
import uuid
from typing import TYPE_CHECKING

import psycopg
import pytest
from hypothesis import HealthCheck, settings

from holdfast.clock import SystemClock
from holdfast.db.connection_options import ConnectionOptions
from holdfast.engine.rules import Rules
from holdfast.engine.store.factory import open_store
from tests.support.clock import FakeClock
from tests.support.databases import Databases
from tests.support.nginx import nginx_folder
from tests.support.object_storage import ObjectStorage
from tests.support.selection import in_proof
from tests.support.servers import (
    PgBouncer,
    Postgres,
    RabbitMQ,
    SeaweedFS,
    ServerError,
    Temporal,
    Valkey,
    pgbouncer_folder,
    prometheus_folder,
    rabbitmq_folder,
    systemd_folder,
)
from tests.support.stores import open_test_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from playwright.sync_api import Browser

    from holdfast.engine.store.sql_store import SqlStore


# Machines may be busy, and every run must test the same examples. So there is no deadline and no random choice.
settings.register_profile("holdfast", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("holdfast")


@pytest.hookimpl(tryfirst=True)  # before pytest selects tests by marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Add the mark `proof` to the tests that run in `make proof`."""
    for item in items:
        if in_proof(item):
            item.add_marker("proof")


def pytest_collection_finish() -> None:
    """Run the garbage collector rarely and exclude the collected tests, which all stay in memory until the end."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


@pytest.hookimpl(optionalhook=True)
def pytest_after_fork(session: pytest.Session, name: str) -> None:
    """Give each test process its own temporary folder."""
    factory: pytest.TempPathFactory = session.config._tmp_path_factory  # type: ignore[attr-defined]
    factory._basetemp = folder = factory.getbasetemp() / name
    folder.mkdir(mode=0o700)


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    """A real PostgreSQL from the dev extra. The tests start it."""
    with Postgres(tmp_path_factory.mktemp("postgres")) as server:
        yield server


def _require_unpacked(find: Callable[[], Path]) -> None:
    """Skip the test if a program from Debian is not here; with CI=true that is an error."""
    try:
        find()
    except ServerError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def pgbouncer(postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PgBouncer]:
    """A real pgbouncer in front of PostgreSQL, in transaction mode, with three server connections."""
    _require_unpacked(pgbouncer_folder)
    with PgBouncer(tmp_path_factory.mktemp("pgbouncer"), postgres) as server:
        yield server


@pytest.fixture(scope="module")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Valkey]:
    """A real Valkey from the dev extra. Each module has its own and may stop, pause and restart it."""
    with Valkey(tmp_path_factory.mktemp("valkey")) as server:
        yield server


@pytest.fixture(scope="session")
def temporal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Temporal]:
    """A real Temporal server from the dev extra. Each test has its own task queue."""
    with Temporal(tmp_path_factory.mktemp("temporal")) as server:
        yield server


@pytest.fixture(scope="session")
def seaweedfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeaweedFS]:
    """A real S3 server from the dev extra. Each test creates its own buckets."""
    with SeaweedFS(tmp_path_factory.mktemp("seaweedfs")) as server:
        yield server


@pytest.fixture
def s3(seaweedfs: SeaweedFS, monkeypatch: pytest.MonkeyPatch) -> ObjectStorage:
    """The S3 server, with the credentials of its user in the environment of this process."""
    storage = ObjectStorage(seaweedfs)
    for name, value in storage.environment().items():
        monkeypatch.setenv(name, value)
    return storage


@pytest.fixture(scope="module")
def rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitMQ]:
    """Debian's RabbitMQ. Each module has its own and may stop and restart it."""
    _require_unpacked(rabbitmq_folder)
    with RabbitMQ(tmp_path_factory.mktemp("rabbitmq")) as server:
        yield server


@pytest.fixture(scope="session")
def systemd() -> Path:
    """The folder with Debian's systemd, of which the tests use `systemd-analyze`."""
    _require_unpacked(systemd_folder)
    return systemd_folder()


@pytest.fixture(scope="session")
def prometheus() -> Path:
    """The folder with Debian's Prometheus and promtool."""
    _require_unpacked(prometheus_folder)
    return prometheus_folder()


@pytest.fixture(scope="session")
def nginx() -> Path:
    """The folder with Debian's nginx."""
    _require_unpacked(nginx_folder)
    return nginx_folder()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A real Chromium. It is closed with the module, because it holds the event loop of this thread."""
    from tests.support.browser import launch_browser  # noqa: PLC0415 - slow to load

    with launch_browser() as browser:
        yield browser


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def empty() -> bool:
    """Whether a test begins with a database without tables. The default, a copy of a migrated database, is faster."""
    return False


@pytest.fixture(scope="session")
def sqlite_pattern(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite file that contains all tables."""
    path = tmp_path_factory.mktemp("pattern") / "holdfast.db"
    open_store(f"sqlite:///{path}", rules=Rules(), clock=SystemClock()).close()
    return path


@pytest.fixture(scope="session")
def databases(postgres: Postgres) -> Databases:
    """PostgreSQL databases that contain all tables and the vector extension."""
    open_store(postgres.create_database("pattern"), rules=Rules(), clock=SystemClock()).close()
    with psycopg.connect(postgres.dsn, dbname="pattern") as connection:
        connection.execute("CREATE EXTENSION vector")
    return Databases(postgres, "pattern")


@pytest.fixture
def sqlite_url(tmp_path: Path, request: pytest.FixtureRequest, *, empty: bool) -> str:
    path = tmp_path / "holdfast.db"
    if not empty:
        shutil.copy(request.getfixturevalue("sqlite_pattern"), path)
    return f"sqlite:///{path}"


@pytest.fixture
def postgres_url(postgres: Postgres, request: pytest.FixtureRequest, *, empty: bool) -> Iterator[str]:
    if empty:
        name = f"test_{uuid.uuid4().hex[:12]}_{os.getpid()}"
        yield postgres.create_database(name)
        postgres.drop_database(name)
    else:
        databases = request.getfixturevalue("databases")
        name = databases.lend()
        yield postgres.address(name)
        databases.take_back(name)


@pytest.fixture
def pooled_url(postgres_url: str, pgbouncer: PgBouncer) -> str:
    """The address of a new database behind pgbouncer."""
    return pgbouncer.address(postgres_url.rsplit("/", 1)[1])


@pytest.fixture
def pooler_options(postgres_url: str) -> ConnectionOptions:
    return ConnectionOptions(pooler="transaction", direct=postgres_url)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def database_url(request: pytest.FixtureRequest) -> str:
    """The address of a new database. Each test runs once on SQLite and once on PostgreSQL."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url


@pytest.fixture
def store(database_url: str, clock: FakeClock) -> Iterator[SqlStore]:
    """A store on each database. It uses the clock of the test."""
    store = open_test_store(database_url, clock)
    yield store
    store.close()
