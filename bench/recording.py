"""Records the transactions of a run, and replays them with the driver alone: what is left is the price of the database.

The replay runs on an empty database with the same tables, so the rows get the same ids.
"""

from __future__ import annotations

import sqlite3
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import psycopg

from holdfast.clock import SystemClock
from holdfast.db.postgres import PostgresDialect
from holdfast.db.sqlite import PRAGMAS, SqliteDialect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

SYNCED, UNSYNCED, READ, SINGLE = "synced", "unsynced", "read", "single"  # kinds of transactions
BEGINS = {  # method of a dialect -> kind, from its options
    "begin_write": lambda options: SYNCED if options["durable"] else UNSYNCED,
    "begin_read": lambda _: READ,
    "begin_single_read": lambda _: SINGLE,
    "begin_single_write": lambda options: SYNCED if options["durable"] else UNSYNCED,
}


@dataclass
class Recorded:
    """One transaction: its kind, and the statements with their parameters."""

    kind: str
    statements: list[tuple[str, Any]] = field(default_factory=list)


class _RecordingCursor:
    def __init__(self, cursor: Any, statements: list[tuple[str, Any]]) -> None:
        self._cursor = cursor
        self._statements = statements

    def execute(self, sql: str, params: Any) -> Any:
        self._statements.append((sql, params))
        return self._cursor.execute(sql, params)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)


@contextmanager
def recording() -> Iterator[list[Recorded]]:
    """Record all transactions of this process, in the order in which they begin."""
    recorded: list[Recorded] = []
    with ExitStack() as held:
        for dialect in (SqliteDialect, PostgresDialect):
            for name, kind in BEGINS.items():
                held.enter_context(patch.object(dialect, name, _note(getattr(dialect, name), kind, recorded)))
            held.enter_context(patch.object(dialect, "run", _note_statements(dialect.run, recorded)))
        yield recorded


def _note(begin: Callable[..., Any], kind: Callable[[Any], str], recorded: list[Recorded]) -> Callable[..., Any]:
    def noted(self: Any, engine: Any, **options: Any) -> Any:
        recorded.append(Recorded(kind(options)))
        return begin(self, engine, **options)

    return noted


def _note_statements(run: Callable[..., Any], recorded: list[Recorded]) -> Callable[..., Any]:
    def noted(self: Any, cursor: Any, *arguments: Any) -> Any:
        return run(self, _RecordingCursor(cursor, recorded[-1].statements), *arguments)

    return noted


def replay(url: str, transactions: Iterable[Recorded]) -> list[float]:
    """Send the same statements with the driver alone. Return the seconds of each transaction."""
    if url.startswith("sqlite"):
        return _replay_on_sqlite(Path(url.removeprefix("sqlite:///")), transactions)
    return _replay_on_postgres(url.replace("+psycopg", ""), transactions)


def _replay_on_sqlite(path: Path, transactions: Iterable[Recorded]) -> list[float]:
    seconds = []
    connection = sqlite3.connect(path, isolation_level=None, cached_statements=512)
    for pragma in PRAGMAS:
        connection.execute(f"PRAGMA {pragma}")
    connection.create_function("holdfast_now", 0, SystemClock().now)
    synced = True
    for one in transactions:
        began = time.perf_counter()
        writes = one.kind in (SYNCED, UNSYNCED)
        if writes and synced is not (one.kind == SYNCED):
            synced = not synced
            connection.execute(f"PRAGMA synchronous={'FULL' if synced else 'NORMAL'}")
        connection.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
        for sql, params in one.statements:
            connection.execute(sql, params).fetchall()
        connection.execute("COMMIT")
        seconds.append(time.perf_counter() - began)
    connection.close()
    return seconds


def _replay_on_postgres(url: str, transactions: Iterable[Recorded]) -> list[float]:
    seconds = []
    with psycopg.connect(url, autocommit=True) as connection:
        for one in transactions:
            began = time.perf_counter()
            single = one.kind == SINGLE or len(one.statements) == 1
            if not single:
                connection.execute("BEGIN")
            for sql, params in one.statements:
                connection.execute(sql.encode(), params)
            if not single:
                connection.execute("COMMIT")
            seconds.append(time.perf_counter() - began)
    return seconds
