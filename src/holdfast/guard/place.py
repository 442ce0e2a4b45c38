"""The database of a guard: its address or the engine of the app, and the place of the guard's tables."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from sqlalchemy import Engine
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from holdfast.db import TableNames
from holdfast.engine.store.factory import join_database, open_database, open_store_with_own_tables
from holdfast.engine.store.own_tables import list_creating_statements, list_upgrading_statements
from holdfast.errors import BadSettings
from holdfast.guard.tables import CALL_TABLES

if TYPE_CHECKING:
    from sqlalchemy import Dialect

    from holdfast.clock import Clock
    from holdfast.engine.store import SqlStore
    from holdfast.settings import Settings

DEFAULT_SCHEMA = "guard"  # on PostgreSQL
DEFAULT_PREFIX = "guard_"  # on SQLite, which has no schemas


class GuardDatabase:
    """Where the tables of a guard are, and how its processes open them."""

    def __init__(
        self, settings: Settings, engine: Engine | None, *, schema: str | None, prefix: str | None, create_tables: bool
    ) -> None:
        if engine is not None:
            _require_usable(engine)
        self._settings = settings
        self._engine = engine
        self._create_tables = create_tables
        self._engine_pid = os.getpid()
        self.names = choose_names(self.is_postgres, schema=schema, prefix=prefix)

    @property
    def is_postgres(self) -> bool:
        if self._engine is not None:
            return True
        try:
            return make_url(self._settings.database).get_backend_name() == "postgresql"
        except ArgumentError:
            return False  # opening it explains what is wrong

    def open(self, clock: Clock) -> SqlStore:
        """Open a store for this process."""
        settings = self._settings
        if self._engine is None:
            database = open_database(settings.database, clock, settings.connections, self.names)
        else:
            if os.getpid() != self._engine_pid:
                self._engine.dispose(close=False)  # its connections belong to the parent of this process
            database = join_database(self._engine, settings.connections, self.names)
        return open_store_with_own_tables(database, CALL_TABLES, rules=settings.rules, create=self._create_tables)

    def ddl(self, from_version: str | None = None) -> list[str]:
        """Return the SQL that creates the tables, or that upgrades them from a version."""
        return list_ddl(self.names, is_postgres=self.is_postgres, from_version=from_version)


def choose_names(is_postgres: bool, *, schema: str | None, prefix: str | None) -> TableNames:
    """Return the names of the tables: by default a schema on PostgreSQL, and a prefix on SQLite."""
    if is_postgres:
        default = DEFAULT_SCHEMA if prefix is None else ""
        names = TableNames(schema=default if schema is None else schema, prefix=prefix or "")
    elif schema:
        raise BadSettings("guard_schema_on_sqlite", schema=schema)
    else:
        names = TableNames(prefix=DEFAULT_PREFIX if prefix is None else prefix)
    if names.plain:
        raise BadSettings("guard_tables_unnamed")
    return names


def list_ddl(names: TableNames, *, is_postgres: bool, from_version: str | None = None) -> list[str]:
    """Return the SQL that creates the tables under these names, or that upgrades them from a version."""
    dialect: Dialect = make_url("postgresql://" if is_postgres else "sqlite://").get_dialect()()
    if from_version is None:
        return list_creating_statements(names, dialect, CALL_TABLES)
    return list_upgrading_statements(names, dialect, from_version)


def _require_usable(engine: object) -> None:
    """Refuse engines that the guard cannot use: of SQLite, of another driver, or asynchronous ones."""
    if not isinstance(engine, Engine):
        raise BadSettings("guard_engine_type", type=type(engine).__name__)
    if engine.dialect.name != "postgresql" or engine.dialect.driver != "psycopg":
        raise BadSettings("guard_engine_driver", dialect=f"{engine.dialect.name}+{engine.dialect.driver}")
