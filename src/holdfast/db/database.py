"""Transactions, compiled statements, and translation of driver errors.

A `Dialect` contains the differences between SQLite and PostgreSQL. Code above this module is the same for both.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.selectable import SelectBase

from holdfast.db.batches import for_each
from holdfast.db.table_names import COMPILE_OPTIONS, TableNames
from holdfast.errors import BadRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from sqlalchemy import Connection, Engine
    from sqlalchemy import Dialect as SqlDialect
    from sqlalchemy.sql import ClauseElement

    from holdfast.db.notify import Notifier
    from holdfast.db.secure_delete import Obstacle
    from holdfast.errors import HoldfastError

log = logging.getLogger("holdfast")

T = TypeVar("T")
Rows = Sequence[Sequence[Any]]

# compiled statements of this process, by SQL dialect and names of tables
_COMPILED: dict[tuple[type[SqlDialect], TableNames], dict[ClauseElement, CompiledStatement]] = {}
PLAIN_NAMES = TableNames()
MAX_ATTEMPTS = 5  # runs of a transaction that conflicts with another one
FIRST_PAUSE, MAX_PAUSE = 0.1, 1.0  # seconds between two attempts to reach the database


class CompiledStatement(NamedTuple):
    """A statement in the SQL of one database."""

    sql: str
    constants: dict[str, Any]  # values that the statement itself contains
    param_order: Sequence[str]  # names of the parameters in order, for drivers with positional parameters
    reads_only: bool


class Dialect(Protocol):
    """The operations that differ between SQLite and PostgreSQL."""

    def prepare(self) -> None:
        """Prepare a new database for its first connection."""
        ...

    def begin_write(self, engine: Engine, *, durable: bool) -> AbstractContextManager[Connection]:
        """Open a transaction that may write.

        With `durable`, the commit survives a power failure. Without it, the last commits may be lost, but only if every
        process that saw them is lost, too.
        """
        ...

    def prepare_commit(self, connection: Connection, transaction_id: int | None) -> None:
        """Note what is needed to find out later whether a transaction was committed; read its id if it is None."""
        ...

    def begin_read(self, engine: Engine) -> AbstractContextManager[Connection]:
        """Open a read-only transaction on one snapshot."""
        ...

    def begin_single_read(self, engine: Engine) -> AbstractContextManager[Connection]:
        """Open a connection for one statement that only reads."""
        ...

    def begin_single_write(self, engine: Engine, *, durable: bool) -> AbstractContextManager[Connection]:
        """Open a connection for one statement that writes. See `begin_write` for `durable`."""
        ...

    def run(
        self, cursor: Any, statement: CompiledStatement, rows: Rows | None, values: dict[str, Any]
    ) -> list[tuple[Any, ...]]:
        """Execute a statement with its batch and return the result rows."""
        ...

    def lock_owners(self, tx: Transaction, owners: Collection[int]) -> None:
        """Prevent other transactions from changing the slots of these owners until the commit."""
        ...

    def translate_error(self, error: BaseException) -> HoldfastError | None:
        """Turn a driver error into one of ours. None: the error is a bug and is raised unchanged."""
        ...

    @property
    def retry_seconds(self) -> float:
        """How long a transaction is repeated while the database is unreachable."""
        ...

    def begin_autocommit(self, engine: Engine) -> AbstractContextManager[Connection]:
        """Open a connection on which each statement is its own transaction."""
        ...

    def is_retryable(self, error: BaseException) -> bool:
        """Return whether the transaction conflicted with another one and may be run again."""
        ...

    def is_unreachable(self, error: BaseException) -> bool:
        """Return whether the connection was lost or refused, so the transaction was not committed."""
        ...

    def overwrite(self, fts_tables: Collection[str]) -> Obstacle | None:
        """Remove deleted rows from the disk. Return what prevented it."""
        ...

    def compact(self, largest: int | None) -> Obstacle | None:
        """Remove copies of deleted rows from the disk, if the file has at most `largest` bytes.

        Return what prevented it.
        """
        ...

    def close(self) -> None:
        """Close resources that do not belong to the engine."""
        ...


class Transaction:
    """Runs statements. A batch is a list of rows; cells are numbers, text, bytes or None.

    SQLAlchemy compiles a statement once, and the driver executes it directly. SQLAlchemy's result objects would cost
    more than most statements.
    """

    def __init__(
        self,
        connection: Connection,
        dialect: Dialect,
        compiled: dict[ClauseElement, CompiledStatement],
        names: TableNames,
    ) -> None:
        self._connection = connection
        self._dialect = dialect
        self._compiled = compiled
        self._names = names
        self._driver: Any = connection.connection.driver_connection
        self.needs_notification = False  # wake event listeners after the commit
        self.may_have_written = False
        self.transaction_id: int | None = None  # on PostgreSQL, if a statement returned it

    @property
    def connection(self) -> Connection:
        """The connection, for code that runs statements itself, and may write."""
        self.may_have_written = True
        return self._connection

    def run(self, statement: ClauseElement, rows: Rows | None = None, **params: Any) -> list[tuple[Any, ...]]:
        """Run one statement and return its rows. An empty batch runs nothing."""
        if rows is not None and not rows:
            return []
        known = self._compiled.get(statement)
        if known is None:
            known = self._compiled[statement] = _compile(statement, self._connection.dialect, self._names)
        if not known.reads_only:
            self.may_have_written = True
        cursor = self._driver.cursor()
        try:
            return self._dialect.run(cursor, known, rows, known.constants | params)
        finally:
            cursor.close()

    def run_sql(self, sql: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> list[tuple[Any, ...]]:
        """Run SQL that only one of the databases has, and return its rows."""
        self.may_have_written = True
        cursor = self._driver.cursor()
        try:
            cursor.execute(sql, values)
            return cursor.fetchall() if cursor.description else []
        finally:
            cursor.close()

    def run_sql_many(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run SQL of one database once per row."""
        self.may_have_written = True
        cursor = self._driver.cursor()
        try:
            cursor.executemany(sql, rows)
        finally:
            cursor.close()

    def copy_in(self, sql: str, data: Iterable[bytes]) -> None:
        """Send data through COPY (PostgreSQL only)."""
        self.may_have_written = True
        with self._driver.cursor() as cursor, cursor.copy(sql) as copy:
            for part in data:
                copy.write(part)

    def copy_rows(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        """Send rows through COPY (PostgreSQL only)."""
        self.may_have_written = True
        with self._driver.cursor() as cursor, cursor.copy(sql) as copy:
            for row in rows:
                copy.write_row(row)

    def lock_owners(self, owners: Collection[int]) -> None:
        """Prevent other transactions from changing the slots of these owners until the commit."""
        self._dialect.lock_owners(self, owners)


class Database:
    """An engine, its dialect, and the statements compiled for it.

    Example:
        database.write(lambda tx: tx.run(INSERT_EVENTS, rows), durable=True)
        with database.reading() as tx:
            rows = tx.run(SELECT_JOB, job="…")
    """

    def __init__(
        self, engine: Engine, dialect: Dialect, names: TableNames = PLAIN_NAMES, *, owns_engine: bool = True
    ) -> None:
        self.engine = engine
        self.dialect = dialect
        self.names = names
        self._owns_engine = owns_engine  # else `close` leaves its connections to the caller
        self._compiled = _COMPILED.setdefault((type(engine.dialect), names), {})
        self._errors: tuple[type[Exception], ...] = (DBAPIError, PoolTimeout, engine.dialect.loaded_dbapi.Error)
        self._shared = threading.local()  # see shared_reading
        self._notifier: Notifier | None = None
        self._notifiers: tuple[Notifier, ...] = ()

    def set_notifier(self, notifier: Notifier, *others: Notifier) -> None:
        """Notify listeners after each commit with `needs_notification`. `close` closes all given notifiers."""
        self._notifier = notifier
        self._notifiers = (notifier, *others)

    def prepare(self) -> None:
        with self._translating_errors():
            self.dialect.prepare()

    def write(self, work: Callable[[Transaction], T], *, durable: bool) -> T:
        """Run `work` in one transaction.

        If it conflicts with another transaction, or loses its connection before the commit, it is rolled back and
        `work` runs again.
        """

        def attempt() -> tuple[Transaction, T]:
            with self._begin_write(durable=durable) as tx:
                return tx, work(tx)

        tx, result = self._retry(attempt)
        self._notify(tx)
        return result

    def write_single(
        self, statement: ClauseElement, rows: Rows | None = None, *, durable: bool, **params: Any
    ) -> list[tuple[Any, ...]]:
        """Run one statement that writes. On PostgreSQL this takes one round trip.

        If the connection is lost, the statement runs again, although it may have been committed. On PostgreSQL the
        commit waits for the disk, unless `UNSYNCED` is among the conditions of the statement.
        """

        def attempt() -> list[tuple[Any, ...]]:
            with self.dialect.begin_single_write(self.engine, durable=durable) as connection:
                return self.wrap_connection(connection).run(statement, rows, **params)

        return self._retry(attempt)

    def _retry(self, attempt: Callable[[], T]) -> T:
        """Repeat an attempt after a conflict with another transaction, or when its connection was lost."""
        retries = _Retries(self.dialect)
        while True:
            try:
                return attempt()
            except self._errors as error:
                pause = retries.next_pause(driver_error(error))
                if pause is None:
                    raise self._translate(error) from error
                time.sleep(pause)

    @contextmanager
    def writing(self, *, durable: bool) -> Iterator[Transaction]:
        """Open one write transaction for the block. It is not repeated on a conflict."""
        with self._translating_errors(), self._begin_write(durable=durable) as tx:
            yield tx
        self._notify(tx)

    @contextmanager
    def _begin_write(self, *, durable: bool) -> Iterator[Transaction]:
        with self.dialect.begin_write(self.engine, durable=durable) as connection:
            tx = self.wrap_connection(connection)
            yield tx
            if tx.may_have_written:
                self.dialect.prepare_commit(connection, tx.transaction_id)

    @contextmanager
    def join_transaction(self, connection: Connection) -> Iterator[Transaction]:
        """Use a transaction that the caller opened on the same PostgreSQL database, and will end."""
        if connection.engine.dialect.name != self.engine.dialect.name or connection.engine.dialect.name == "sqlite":
            raise BadRequest("connection_not_joinable")
        with self._translating_errors():
            yield self.wrap_connection(connection)

    def wrap_connection(self, connection: Connection) -> Transaction:
        """Wrap a connection of this database that has an open transaction."""
        return Transaction(connection, self.dialect, self._compiled, self.names)

    @contextmanager
    def reading(self) -> Iterator[Transaction]:
        """Open a read transaction on one snapshot, or join the shared one of this thread."""
        shared: Transaction | None = getattr(self._shared, "tx", None)
        if shared is not None:
            yield shared
            return
        with self._translating_errors(), self.dialect.begin_read(self.engine) as connection:
            yield self.wrap_connection(connection)

    def read(self, statement: ClauseElement, rows: Rows | None = None, **params: Any) -> list[tuple[Any, ...]]:
        """Run one statement that only reads. On PostgreSQL this takes one round trip, and `reading` at least three."""
        shared: Transaction | None = getattr(self._shared, "tx", None)
        if shared is not None:
            return shared.run(statement, rows, **params)
        with self._translating_errors(), self.dialect.begin_single_read(self.engine) as connection:
            return self.wrap_connection(connection).run(statement, rows, **params)

    @contextmanager
    def autocommit(self) -> Iterator[Transaction]:
        """Run each statement on its own, for those that PostgreSQL does not allow in a transaction."""
        with self._translating_errors(), self.dialect.begin_autocommit(self.engine) as connection:
            yield self.wrap_connection(connection)

    @contextmanager
    def shared_reading(self) -> Iterator[Transaction]:
        """Let every `reading` of this thread join one read transaction. The block must not write.

        A caller that uses many parts of the program gets one snapshot of all, for the price of one transaction.
        """
        with self.reading() as tx:
            before = getattr(self._shared, "tx", None)
            self._shared.tx = tx
            try:
                yield tx
            finally:
                self._shared.tx = before

    def overwrite(self, fts_tables: Collection[str]) -> Obstacle | None:
        """Remove deleted rows from the disk, including these FTS5 tables. Return what prevented it.

        Must not be called inside a transaction.
        """
        with self._translating_errors():
            return self.dialect.overwrite(fts_tables)

    def compact(self, largest: int | None) -> Obstacle | None:
        """Remove copies of deleted rows from the disk, if the file has at most `largest` bytes.

        Return what prevented it. Must not be called inside a transaction.
        """
        with self._translating_errors():
            return self.dialect.compact(largest)

    def close(self) -> None:
        for notifier in self._notifiers:
            notifier.close()
        if self._owns_engine:
            self.engine.dispose()
        self.dialect.close()

    def _notify(self, tx: Transaction) -> None:
        if tx.needs_notification and self._notifier is not None:
            self._notifier.notify()

    @contextmanager
    def _translating_errors(self) -> Iterator[None]:
        try:
            yield
        except self._errors as error:
            raise self._translate(error) from error

    def _translate(self, error: Exception) -> Exception:
        return self.dialect.translate_error(driver_error(error)) or error


class _Retries:
    """Decides whether a failed transaction runs again, and after which pause."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._conflicts = 0
        self._pause = FIRST_PAUSE
        self._deadline: float | None = None  # since the database is unreachable

    def next_pause(self, error: BaseException) -> float | None:
        """Return the seconds until the next attempt; None: give up."""
        if self._dialect.is_retryable(error):
            self._conflicts += 1
            return 0.0 if self._conflicts < MAX_ATTEMPTS else None
        if not self._dialect.is_unreachable(error):
            return None
        now = time.monotonic()
        if self._deadline is None:
            self._deadline = now + self._dialect.retry_seconds
        if now >= self._deadline:
            return None
        pause, self._pause = self._pause, min(2 * self._pause, MAX_PAUSE)
        log.info("transaction.repeated pause=%s error=%s", pause, type(error).__name__)
        return pause


def driver_error(error: Exception) -> BaseException:
    """Return the driver error that SQLAlchemy wrapped."""
    return error.orig if isinstance(error, DBAPIError) and error.orig is not None else error


def _compile(statement: ClauseElement, dialect: SqlDialect, names: TableNames) -> CompiledStatement:
    compiled = statement.compile(dialect=dialect, **({} if names.plain else COMPILE_OPTIONS))
    assert isinstance(compiled, SQLCompiler)  # noqa: S101 - only statements are run
    constants = {
        name: parameter.effective_value for parameter, name in compiled.bind_names.items() if not parameter.required
    }
    reads_only = isinstance(statement, SelectBase | for_each) and not any(
        cte.element.is_dml for cte in compiled.ctes or ()
    )
    sql = str(compiled) if names.plain else names.localise(str(compiled), postgres=dialect.name == "postgresql")
    return CompiledStatement(sql, constants, compiled.positiontup or (), reads_only)
