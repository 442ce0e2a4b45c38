"""The PostgreSQL dialect: READ COMMITTED for writes, row locks on owners, error codes."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sqlalchemy import create_engine

from holdfast.errors import HoldfastError, StoreBusy, StoreFull, StoreReadOnly, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from sqlalchemy import Connection, Engine
    from sqlalchemy.sql import ClauseElement

    from holdfast.db.database import CompiledStatement, Rows, Transaction

# unique violation (two transactions created the same owner), missing referenced row, deadlock, serialization failure
RETRYABLE_SQLSTATES = frozenset({"23505", "23503", "40P01", "40001"})
LOCK_TIMEOUT_MS = 30_000


class PostgresDialect:
    """`lock_rows` is the statement that locks the rows of owners."""

    def __init__(self, lock_rows: ClauseElement) -> None:
        self._lock_rows = lock_rows

    def prepare(self) -> None:
        """Do nothing."""

    @contextmanager
    def begin_write(self, engine: Engine, *, durable: bool) -> Iterator[Connection]:  # noqa: ARG002
        """Open a transaction. Its commit is always durable.

        Workers survive a crash of the database server. If the server forgot a claim, it would issue the same fence
        twice.
        """
        with engine.begin() as connection:
            yield connection

    @contextmanager
    def begin_read(self, engine: Engine) -> Iterator[Connection]:
        """Open a snapshot: all statements see the same state."""
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
        """Lock the rows of the owners in the order of their ids, which prevents deadlocks."""
        tx.run(self._lock_rows, [[owner] for owner in sorted(set(owners))])

    def translate_error(self, error: BaseException) -> HoldfastError | None:
        detail = " ".join(str(error).split())  # the driver's message may have several lines
        match getattr(error, "sqlstate", None):
            case None:
                return StoreUnavailable(detail=detail) if _is_connection_error(error) else None
            case "55P03":  # lock_not_available
                return StoreBusy("lock_timeout", seconds=f"{LOCK_TIMEOUT_MS / 1000:g}")
            case "53100":  # disk_full
                return StoreFull(place="PostgreSQL")
            case "25006":  # read_only_sql_transaction
                return StoreReadOnly("postgres_read_only", detail=detail)
            case "42501":  # insufficient_privilege
                return StoreReadOnly("postgres_permission_denied", detail=detail)
            case state if state[:2] in ("08", "57"):  # connection exceptions, operator intervention
                return StoreUnavailable(detail=detail)
        return None

    def is_retryable(self, error: BaseException) -> bool:
        return getattr(error, "sqlstate", None) in RETRYABLE_SQLSTATES

    def overwrite(self, fts_tables: Collection[str]) -> None:
        """Do nothing: autovacuum removes dead rows. WAL and backups are not covered."""

    def compact(self, largest: int | None) -> None:
        """Do nothing, as `overwrite`."""

    def close(self) -> None:
        """Do nothing."""


def _is_connection_error(error: BaseException) -> bool:
    """Return whether an error without a code concerns the connection, and not a statement that was never sent."""
    return any(kind.__name__ in ("OperationalError", "InterfaceError") for kind in type(error).__mro__)


def postgres_engine(url: str) -> Engine:
    # A process that hangs inside a transaction must not block the others for ever.
    timeouts = f"-c lock_timeout={LOCK_TIMEOUT_MS} -c idle_in_transaction_session_timeout={2 * LOCK_TIMEOUT_MS}"
    return create_engine(
        url,
        pool_pre_ping=True,
        pool_size=8,
        max_overflow=64,
        connect_args={"options": timeouts},
        hide_parameters=True,  # logged errors must not contain text of documents
    )
