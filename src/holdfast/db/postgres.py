"""What PostgreSQL does in its own way: READ COMMITTED, row locks on owners, and its own error codes."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sqlalchemy import create_engine

from holdfast.errors import HoldfastError, StoreBusy, StoreError, StoreFull, StoreReadOnly, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from sqlalchemy import Connection, Engine
    from sqlalchemy.sql import ClauseElement

    from holdfast.db.database import CompiledStatement, Rows, Transaction

# Unique violation (two made the same owner), a referenced row that is gone, deadlock, serialization failure: run the
# transaction again.
RETRYABLE_SQLSTATES = frozenset({"23505", "23503", "40P01", "40001"})


class PostgresDialect:
    """Transactions and errors of PostgreSQL; `lock_rows` is the statement that locks the rows of owners."""

    def __init__(self, lock_rows: ClauseElement) -> None:
        self._lock_rows = lock_rows

    def prepare(self) -> None:
        """Nothing needs to be made ready."""

    @contextmanager
    def begin_write(self, engine: Engine, *, durable: bool) -> Iterator[Connection]:  # noqa: ARG002
        """Open a transaction; its commit is always durable.

        Workers outlive a crash of this server. A claim it forgot would hand the same fence out twice.
        """
        with engine.begin() as connection:
            yield connection

    @contextmanager
    def begin_read(self, engine: Engine) -> Iterator[Connection]:
        """Open a snapshot: all statements of one read see the same state."""
        with (
            engine.connect().execution_options(isolation_level="REPEATABLE READ") as connection,
            connection.begin(),
        ):
            yield connection

    def run(
        self, cursor: Any, statement: CompiledStatement, rows: Rows | None, values: dict[str, Any]
    ) -> list[tuple[Any, ...]]:
        """Send the batch as one JSON array."""
        if rows is not None:
            values["rows"] = json.dumps(rows, default=bytes.hex)
        cursor.execute(statement.sql, values)
        return cursor.fetchall() if cursor.description else []

    def lock_owners(self, tx: Transaction, owners: Collection[int]) -> None:
        """Lock the rows of the owners, always in the same order, so that nobody waits in a circle."""
        tx.run(self._lock_rows, [[owner] for owner in sorted(set(owners))])

    def translate_error(self, error: BaseException) -> HoldfastError | None:
        """Say what PostgreSQL's error means for a person."""
        state = getattr(error, "sqlstate", None)
        if state in _EXPLANATIONS:
            kind, sentence = _EXPLANATIONS[state]
            return kind(f"{sentence} ({error})")
        if _is_connection_error(error) if state is None else state[:2] in ("08", "57"):
            return StoreUnavailable(
                "The connection to PostgreSQL was lost or refused. Whether the last commit was kept is decided by "
                f"the database alone; try again when it can be reached. ({error})"
            )
        return None

    def is_retryable(self, error: BaseException) -> bool:
        """Tell whether the transaction may simply be run again."""
        return getattr(error, "sqlstate", None) in RETRYABLE_SQLSTATES

    def overwrite(self, fts_tables: Collection[str]) -> None:
        """Do nothing: autovacuum removes dead rows from tables and indexes. Nothing is promised of WAL and backups."""

    def compact(self, largest: int | None) -> None:
        """Do nothing, as `overwrite`."""

    def close(self) -> None:
        """Nothing is kept outside the engine."""


def _is_connection_error(error: BaseException) -> bool:
    """Tell whether an error without a code is of the connection, and not of a statement that never left."""
    return any(kind.__name__ in ("OperationalError", "InterfaceError") for kind in type(error).__mro__)


LOCK_TIMEOUT_MS = 30_000
_EXPLANATIONS: dict[str | None, tuple[type[StoreError], str]] = {
    "55P03": (
        StoreBusy,
        "Another transaction has kept what this one needs locked for 30 s. Nothing was written; try again.",
    ),
    "53100": (
        StoreFull,
        "The disk of PostgreSQL is full. Nothing was written; free some space and try again.",
    ),
    "25006": (
        StoreReadOnly,
        "PostgreSQL accepts no writes (a standby, or default_transaction_read_only). Connect to the primary.",
    ),
    "42501": (
        StoreReadOnly,
        "This PostgreSQL user may not write here. Grant it rights on the schema, or use another user.",
    ),
}


def postgres_engine(url: str) -> Engine:
    """Open a pool of connections."""
    # A process that is stopped inside a transaction must not keep the others waiting for ever.
    timeouts = f"-c lock_timeout={LOCK_TIMEOUT_MS} -c idle_in_transaction_session_timeout={2 * LOCK_TIMEOUT_MS}"
    return create_engine(
        url,
        pool_pre_ping=True,
        pool_size=8,
        max_overflow=64,
        connect_args={"options": timeouts},
        hide_parameters=True,  # an error that is logged must not hold the words of a document
    )
