"""Opens a store by its database URL."""

from __future__ import annotations

import secrets
import time
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

from holdfast.db import ConnectionOptions, Database, TableNames
from holdfast.db.migrate import migrate
from holdfast.engine.store.event_ids import skip_lost_ids
from holdfast.engine.store.own_tables import prepare_own_tables
from holdfast.engine.store.sql_store import SqlStore
from holdfast.engine.store.statements import LOCK_OWNERS
from holdfast.errors import BadSettings
from holdfast.url_secrets import MASK

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlalchemy import Engine, Table

    from holdfast.clock import Clock
    from holdfast.engine.rules import Rules

PLAIN_NAMES = TableNames()


def new_job_id() -> str:
    """Return an id that is not guessable and sorts by time, so that new index entries are appended."""
    return f"{time.time_ns():016x}{secrets.token_hex(8)}"


def open_database(
    url: str, clock: Clock, connections: ConnectionOptions | None = None, names: TableNames = PLAIN_NAMES
) -> Database:
    """Open `sqlite:///path`, `sqlite://` (memory) or `postgresql+psycopg://…`, without a query."""
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError) as error:
        shown = MASK if "@" in url else url  # it may contain a password
        raise BadSettings("database_address_invalid", address=shown) from error
    backend = parsed.get_backend_name()
    if backend == "sqlite":
        from holdfast.db.sqlite import SqliteDialect, sqlite_engine  # noqa: PLC0415 - import only one dialect

        path = Path(parsed.database) if parsed.database and parsed.database != ":memory:" else None
        return Database(sqlite_engine(path, clock), SqliteDialect(path), names)
    if backend == "postgresql":
        from holdfast.db.postgres import PostgresDialect, postgres_engine  # noqa: PLC0415 - import only one dialect

        try:
            options = connections or ConnectionOptions()
            return Database(postgres_engine(url, options), PostgresDialect(LOCK_OWNERS, options), names)
        except (ImportError, NoSuchModuleError) as error:
            raise BadSettings("database_driver_missing", driver=parsed.drivername, detail=error) from error
    raise BadSettings("database_unsupported", backend=backend)


def open_store(
    url: str,
    *,
    rules: Rules,
    clock: Clock,
    ids: Callable[[], str] = new_job_id,
    wake: Callable[[], None] = lambda: None,
    connections: ConnectionOptions | None = None,
) -> SqlStore:
    """Open a store and upgrade its schema. `connections` are the options of PostgreSQL."""
    database = open_database(url, clock, connections)
    try:
        migrate(database)
        skip_lost_ids(database)
    except BaseException:
        database.close()
        raise
    return SqlStore(database, rules, ids, wake)


def join_database(engine: Engine, connections: ConnectionOptions, names: TableNames) -> Database:
    """Use the engine of an app on PostgreSQL, with its pool and its options. Closing the database leaves it open."""
    from holdfast.db.postgres import PostgresDialect  # noqa: PLC0415 - import only one dialect

    # Statements lock rows and then read them, which another isolation level would answer from an older snapshot.
    committed = engine.execution_options(isolation_level="READ COMMITTED")
    return Database(committed, PostgresDialect(LOCK_OWNERS, connections), names, owns_engine=False)


def open_store_with_own_tables(database: Database, more: Sequence[Table], *, rules: Rules, create: bool) -> SqlStore:
    """Return a store on the engine's tables, and `more` of the caller. With `create`, they are created and upgraded."""
    try:
        prepare_own_tables(database, more, create=create)
    except BaseException:
        database.close()
        raise
    return SqlStore(database, rules, new_job_id, lambda: None)
