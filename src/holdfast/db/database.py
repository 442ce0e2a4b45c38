"""One database: transactions, statements by name, and errors that people can act on.

What SQLite and PostgreSQL do differently is a `Dialect`; everything above this module is the same for both.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from sqlalchemy.exc import DBAPIError
from sqlalchemy.sql.compiler import SQLCompiler

from holdfast.errors import BadRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator
    from contextlib import AbstractContextManager

    from sqlalchemy import Connection, Engine
    from sqlalchemy import Dialect as SqlDialect
    from sqlalchemy.sql import ClauseElement

    from holdfast.db.notify import Notifier
    from holdfast.db.secure_delete import Obstacle
    from holdfast.errors import HoldfastError

T = TypeVar("T")
Rows = Sequence[Sequence[Any]]

# What a process has compiled, by kind of database: the statements are the same for all of a kind.
_COMPILED: dict[type[SqlDialect], dict[ClauseElement, CompiledStatement]] = {}
MAX_ATTEMPTS = 5  # how often a transaction is tried again when another one got in its way


class CompiledStatement(NamedTuple):
    """A statement as one database reads it."""

    sql: str
    constants: dict[str, Any]  # the values that are part of the statement
    param_order: Sequence[str]  # the names of all values as they occur in the text, where the driver has no names


class Dialect(Protocol):
    """What one kind of database does in its own way."""

    def prepare(self) -> None:
        """Make an empty or new database ready for its first connection."""
        ...

    def begin_write(self, engine: Engine, *, durable: bool) -> AbstractContextManager[Connection]:
        """Open a transaction that may write.

        `durable` means that its commit survives a power cut; without it the last moments may be lost, but only
        together with every process that knew of them.
        """
        ...

    def begin_read(self, engine: Engine) -> AbstractContextManager[Connection]:
        """Open a transaction that sees one snapshot and writes nothing."""
        ...

    def run(
        self, cursor: Any, statement: CompiledStatement, rows: Rows | None, values: dict[str, Any]
    ) -> list[tuple[Any, ...]]:
        """Send a statement with its batch; return the rows it returns."""
        ...

    def lock_owners(self, tx: Transaction, owners: Collection[int]) -> None:
        """Keep others from moving the slots of these owners until we commit."""
        ...

    def translate_error(self, error: BaseException) -> HoldfastError | None:
        """Turn a driver's error into one of ours; None means that it is a bug, to be seen as it is."""
        ...

    def is_retryable(self, error: BaseException) -> bool:
        """Tell whether the transaction lost against another one and may simply be run again."""
        ...

    def overwrite(self, fts_tables: Collection[str]) -> Obstacle | None:
        """Remove deleted rows from the disk; return what prevented it."""
        ...

    def compact(self, largest: int | None) -> Obstacle | None:
        """Remove copies of deleted rows from the disk, unless the file is larger; return what prevented it."""
        ...

    def close(self) -> None:
        """Close what is kept outside the engine."""
        ...


class Transaction:
    """Runs statements, each with its batch: a list of rows whose cells are numbers, plain text, bytes or None.

    SQLAlchemy writes the SQL, once; the driver runs it. Building result objects for a handful of integers would
    cost more than the statements themselves.
    """

    def __init__(
        self, connection: Connection, dialect: Dialect, compiled: dict[ClauseElement, CompiledStatement]
    ) -> None:
        self.connection = connection
        self._dialect = dialect
        self._compiled = compiled
        self._driver: Any = connection.connection.driver_connection
        self.needs_notification = False  # whether somebody who looks on will want to know when this is committed

    def run(self, statement: ClauseElement, rows: Rows | None = None, **params: Any) -> list[tuple[Any, ...]]:
        """Run one statement; return the rows it returns. An empty batch runs nothing."""
        if rows is not None and not rows:
            return []
        known = self._compiled.get(statement)
        if known is None:
            known = self._compiled[statement] = _compile(statement, self.connection.dialect)
        cursor = self._driver.cursor()
        try:
            return self._dialect.run(cursor, known, rows, known.constants | params)
        finally:
            cursor.close()

    def run_sql(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run SQL of one kind of database, where it has what others lack; return its rows."""
        cursor = self._driver.cursor()
        try:
            cursor.execute(sql, values)
            return cursor.fetchall() if cursor.description else []
        finally:
            cursor.close()

    def run_sql_many(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run SQL of one kind of database once for each row."""
        cursor = self._driver.cursor()
        try:
            cursor.executemany(sql, rows)
        finally:
            cursor.close()

    def copy_in(self, sql: str, data: Iterable[bytes]) -> None:
        """Send data through COPY, which only PostgreSQL has."""
        with self._driver.cursor() as cursor, cursor.copy(sql) as copy:
            for part in data:
                copy.write(part)

    def lock_owners(self, owners: Collection[int]) -> None:
        """Keep others from moving the slots of these owners until we commit."""
        self._dialect.lock_owners(self, owners)


class Database:
    """An engine, its dialect, and the statements compiled for it."""

    def __init__(self, engine: Engine, dialect: Dialect) -> None:
        self.engine = engine
        self.dialect = dialect
        self._compiled = _COMPILED.setdefault(type(engine.dialect), {})
        self._errors: tuple[type[Exception], ...] = (DBAPIError, engine.dialect.loaded_dbapi.Error)
        self._shared = threading.local()  # the read transaction that everybody in this thread joins
        self._notifier: Notifier | None = None
        self._notifiers: tuple[Notifier, ...] = ()

    def set_notifier(self, bell: Notifier, *others: Notifier) -> None:
        """Ring this bell after each commit that has news for whoever looks on; all are closed with the database."""
        self._notifier = bell
        self._notifiers = (bell, *others)

    def prepare(self) -> None:
        """Make the database ready for its first connection."""
        with self._translating_errors():
            self.dialect.prepare()

    def write(self, work: Callable[[Transaction], T], *, durable: bool) -> T:
        """Run `work` in one transaction; all of it is kept or none."""
        for rounds in range(1, MAX_ATTEMPTS + 1):
            try:
                with self.dialect.begin_write(self.engine, durable=durable) as connection:
                    tx = self.wrap_connection(connection)
                    result = work(tx)
            except self._errors as error:
                if not self.dialect.is_retryable(_cause(error)) or rounds == MAX_ATTEMPTS:
                    raise self._translate(error) from error
            else:
                self._notify(tx)
                return result
        raise AssertionError("unreachable: the last round returns or raises")

    @contextmanager
    def writing(self, *, durable: bool) -> Iterator[Transaction]:
        """Open one write transaction for a caller's own statements; it is not run again by itself."""
        with self._translating_errors(), self.dialect.begin_write(self.engine, durable=durable) as connection:
            tx = self.wrap_connection(connection)
            yield tx
        self._notify(tx)

    @contextmanager
    def join_transaction(self, connection: Connection) -> Iterator[Transaction]:
        """Write within a transaction that somebody else opened on the same database, and will end."""
        if connection.engine.dialect.name != self.engine.dialect.name or connection.engine.dialect.name == "sqlite":
            raise BadRequest(
                "Only a connection to the same PostgreSQL database can be joined. On SQLite write your rows through "
                "the connection that Holdfast opens."
            )
        with self._translating_errors():
            yield self.wrap_connection(connection)

    def wrap_connection(self, connection: Connection) -> Transaction:
        """Run statements by name in a transaction that this database has opened."""
        return Transaction(connection, self.dialect, self._compiled)

    @contextmanager
    def reading(self) -> Iterator[Transaction]:
        """Open one read transaction, or join the one that is shared: all it sees belongs together."""
        shared: Transaction | None = getattr(self._shared, "tx", None)
        if shared is not None:
            yield shared
            return
        with self._translating_errors(), self.dialect.begin_read(self.engine) as connection:
            yield self.wrap_connection(connection)

    @contextmanager
    def autocommit(self) -> Iterator[Transaction]:
        """Run statements each for itself, for what PostgreSQL does in no transaction."""
        with (
            self._translating_errors(),
            self.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection,
        ):
            yield self.wrap_connection(connection)

    @contextmanager
    def shared_reading(self) -> Iterator[Transaction]:
        """Open a read transaction that every `reading` of this thread joins until it ends: for work that never writes.

        So whoever asks many parts of the program has one snapshot of them all, and pays for one transaction.
        """
        with self.reading() as tx:
            before = getattr(self._shared, "tx", None)
            self._shared.tx = tx
            try:
                yield tx
            finally:
                self._shared.tx = before

    def overwrite(self, fts_tables: Collection[str]) -> Obstacle | None:
        """Remove deleted rows from the disk, from these FTS5 tables and all others; return what prevented it.

        Never called within a transaction.
        """
        with self._translating_errors():
            return self.dialect.overwrite(fts_tables)

    def compact(self, largest: int | None) -> Obstacle | None:
        """Remove copies of deleted rows from the disk, unless the file has more than `largest` bytes.

        Returns what prevented it. Never called within a transaction.
        """
        with self._translating_errors():
            return self.dialect.compact(largest)

    def close(self) -> None:
        """Close every connection."""
        for bell in self._notifiers:
            bell.close()
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
        return self.dialect.translate_error(_cause(error)) or error


def _cause(error: Exception) -> BaseException:
    """Return the driver's own error."""
    return error.orig if isinstance(error, DBAPIError) and error.orig is not None else error


def _compile(statement: ClauseElement, dialect: SqlDialect) -> CompiledStatement:
    """Compile a statement once; running it then costs no more than the driver does."""
    compiled = statement.compile(dialect=dialect)
    assert isinstance(compiled, SQLCompiler)  # noqa: S101 - only statements are run
    constants = {
        name: parameter.effective_value for parameter, name in compiled.bind_names.items() if not parameter.required
    }
    return CompiledStatement(str(compiled), constants, compiled.positiontup or ())
