"""A pool of PostgreSQL databases for tests: emptying a used database is much faster than creating a new one.

Only rows, sequences and the fake clock of a test are reset. A database is dropped if its tables, triggers or functions
have changed, or if it has grown.
"""

from __future__ import annotations

import os
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psycopg
from psycopg import sql

if TYPE_CHECKING:
    from tests.support.servers import Postgres

GROWTH = 4_000_000  # bytes that a database may grow before it is dropped

SHAPE = """
SELECT md5(string_agg(part, '|' ORDER BY part)) FROM (
  SELECT 'class ' || relname || relkind::text AS part FROM pg_class WHERE relnamespace = 'public'::regnamespace
  UNION ALL
  SELECT 'column ' || attrelid::regclass::text || attname || atttypid::text || attnotnull::text FROM pg_attribute
  WHERE attnum > 0 AND attrelid IN (SELECT oid FROM pg_class WHERE relnamespace = 'public'::regnamespace)
  UNION ALL
  SELECT 'function ' || oid::regprocedure::text || md5(prosrc) FROM pg_proc WHERE pronamespace = 'public'::regnamespace
  UNION ALL
  SELECT 'trigger ' || tgrelid::regclass::text || tgname || tgenabled::text FROM pg_trigger WHERE NOT tgisinternal
  UNION ALL
  SELECT 'constraint ' || conrelid::regclass::text || conname || pg_get_constraintdef(oid) FROM pg_constraint
  WHERE connamespace = 'public'::regnamespace
) AS parts
"""
OTHER_SCHEMAS = (
    "SELECT nspname FROM pg_namespace WHERE nspname NOT IN ('public', 'information_schema') AND nspname !~ '^pg_'"
)
OTHERS = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"


@dataclass(frozen=True, slots=True)
class Pattern:
    """The state of a database that no test has used yet."""

    shape: str
    size: int
    clock: str  # definition of the function that returns the time, which tests replace
    tables: tuple[str, ...]
    rows: dict[str, bytes]  # contents of the tables that are not empty
    counters: tuple[tuple[str, int, bool], ...]


class Databases:
    """Hands out empty databases and takes them back."""

    def __init__(self, server: Postgres, pattern: str) -> None:
        self._server = server
        self._name = pattern
        self._free: list[str] = []
        with self._connect(pattern) as connection:
            self._pattern = _read(connection)

    def lend(self) -> str:
        """Return the name of an empty database."""
        if self._free:
            return self._free.pop()
        name = f"test_{uuid.uuid4().hex[:12]}_{os.getpid()}"
        self._server.create_database(name, self._name)
        return name

    def take_back(self, name: str) -> None:
        """Empty a database for the next test, or drop it."""
        try:
            with self._connect(name) as connection:
                clean = self._emptied(connection)
        except psycopg.Error:
            clean = False
        if clean:
            self._free.append(name)
        else:
            self._server.drop_database(name)

    def _connect(self, name: str) -> psycopg.Connection:
        return psycopg.connect(self._server.dsn, dbname=name, autocommit=True)

    def _emptied(self, connection: psycopg.Connection) -> bool:
        wanted = self._pattern
        connection.execute(f"SELECT pg_terminate_backend(pid, 10000) {OTHERS}")
        if _number(connection, f"SELECT count(*) {OTHERS}"):
            return False
        if _number(connection, "SELECT pg_database_size(current_database())") > wanted.size + GROWTH:
            return False
        connection.execute(wanted.clock)
        for (schema,) in connection.execute(OTHER_SCHEMAS).fetchall():
            connection.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(schema)))
        known = set(wanted.tables)
        for table in _tables(connection):
            if table not in known:
                connection.execute(sql.SQL("DROP TABLE {} CASCADE").format(sql.Identifier(table)))
        if _text(connection, SHAPE) != wanted.shape:
            return False
        with connection.transaction():
            connection.execute("SET LOCAL session_replication_role = replica")  # disables triggers and foreign keys
            for table in wanted.tables:
                connection.execute(sql.SQL("DELETE FROM {}").format(sql.Identifier(table)))
            for table, rows in wanted.rows.items():
                into = sql.SQL("COPY {} FROM STDIN").format(sql.Identifier(table))
                with connection.cursor() as cursor, cursor.copy(into) as copy:
                    copy.write(rows)
            for counter, value, called in wanted.counters:
                connection.execute("SELECT setval(%s::regclass, %s, %s)", (counter, value, called))
        return True


def _read(connection: psycopg.Connection) -> Pattern:
    tables = _tables(connection)
    rows = {}
    for table in tables:
        if _number(connection, sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(table))):
            out = sql.SQL("COPY {} TO STDOUT").format(sql.Identifier(table))
            with connection.cursor() as cursor, cursor.copy(out) as copy:
                rows[table] = b"".join(bytes(part) for part in copy)
    counters = []
    names = connection.execute("SELECT oid::regclass::text FROM pg_class WHERE relkind = 'S'").fetchall()
    for (name,) in names:
        found = connection.execute(sql.SQL("SELECT last_value, is_called FROM {}").format(sql.Identifier(name)))
        value, called = found.fetchone() or (1, False)
        counters.append((name, value, called))
    return Pattern(
        shape=_text(connection, SHAPE),
        size=_number(connection, "SELECT pg_database_size(current_database())"),
        clock=_text(connection, "SELECT pg_get_functiondef('holdfast_now'::regproc)"),
        tables=tables,
        rows=rows,
        counters=tuple(counters),
    )


def _tables(connection: psycopg.Connection) -> tuple[str, ...]:
    found = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1")
    return tuple(name for (name,) in found.fetchall())


def _number(connection: psycopg.Connection, query: str | sql.Composed) -> int:
    row = connection.execute(query).fetchone()
    assert row is not None
    return int(row[0])


def _text(connection: psycopg.Connection, query: str) -> str:
    row = connection.execute(query).fetchone()
    assert row is not None
    return str(row[0])
