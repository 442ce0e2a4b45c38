"""The PostgreSQL dialect: READ COMMITTED for writes, row locks on owners, error codes, lost connections."""

from __future__ import annotations

import json
import logging
import select
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sqlalchemy import create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError, InvalidatePoolError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from holdfast.db.closing import explain_refused_write
from holdfast.db.connection_options import ConnectionOptions
from holdfast.db.database import driver_error
from holdfast.errors import BadSettings, HoldfastError, StoreBusy, StoreFull, StoreReadOnly, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from datetime import timedelta

    from sqlalchemy import Connection, Engine
    from sqlalchemy.pool import ConnectionPoolEntry
    from sqlalchemy.sql import ClauseElement

    from holdfast.db.database import CompiledStatement, Rows, Transaction

log = logging.getLogger("holdfast")

# unique violation (two transactions created the same owner), missing referenced row, deadlock, serialization failure
RETRYABLE_SQLSTATES = frozenset({"23505", "23503", "40P01", "40001"})
SHUTDOWN_SQLSTATES = frozenset({"57P01", "57P02", "57P03"})  # shutdown by an administrator, after a crash, starting up
# A refused connection has no SQLSTATE in libpq, only a text. These are of PostgreSQL and of pgbouncer.
TOO_MANY_CONNECTIONS = (
    "too many clients already",
    "too many connections for",
    "remaining connection slots are reserved",
    "no more connections allowed",
)
# Signs of a pooler that nobody has set: pgbouncer refuses the startup option, or a prepared statement is unknown.
UNSUPPORTED_STARTUP_PARAMETER = "unsupported startup parameter"
PREPARED_STATEMENT_SQLSTATES = frozenset({"26000", "42P05"})
SELECT_TRANSACTION_ID = "SELECT CAST(CAST(pg_current_xact_id_if_assigned() AS TEXT) AS BIGINT)"
SELECT_TRANSACTION_STATUS = "SELECT pg_xact_status(CAST(CAST(%s AS TEXT) AS xid8))"
TRANSACTION_ID = "holdfast_transaction_id"  # in `Connection.info`
RECHECK_SECONDS = 0.1
PING_AFTER_SECONDS = 10.0  # a connection that was idle for longer is tested before it is used
IDLE_SINCE = "holdfast_idle_since"  # in `Connection.info`


class PostgresDialect:
    """`lock_rows` is the statement that locks the rows of owners."""

    def __init__(self, lock_rows: ClauseElement, options: ConnectionOptions | None = None) -> None:
        self._lock_rows = lock_rows
        self._options = options or ConnectionOptions()

    @property
    def retry_seconds(self) -> float:
        return self._options.retry.total_seconds()

    def prepare(self) -> None:
        """Do nothing."""

    @contextmanager
    def begin_write(self, engine: Engine, *, durable: bool) -> Iterator[Connection]:  # noqa: ARG002
        """Open a transaction. Its commit is always durable.

        Workers survive a crash of the database server. If the server forgot a claim, it would issue the same fence
        twice.

        If the connection is lost between COMMIT and its reply, a new connection asks the server for the outcome.
        """
        with engine.connect() as connection, connection.begin() as transaction:
            connection.info.pop(TRANSACTION_ID, None)
            yield connection
            number = connection.info.get(TRANSACTION_ID)  # None: nothing was written
            try:
                transaction.commit()
            except DBAPIError as error:
                if number is None or not self.is_unreachable(driver_error(error)):
                    raise
                self._resolve_commit(engine, number, error)

    def prepare_commit(self, connection: Connection, transaction_id: int | None) -> None:
        """Note the id of a transaction that may have written. Read it by the driver: SQLAlchemy takes twice as long."""
        if transaction_id is None:
            driver: Any = connection.connection.driver_connection
            (transaction_id,) = driver.execute(SELECT_TRANSACTION_ID).fetchone()
        connection.info[TRANSACTION_ID] = transaction_id

    def _resolve_commit(self, engine: Engine, number: int, error: DBAPIError) -> None:
        """Return if the transaction was committed. Raise the error if it was rolled back, so that it may be repeated.

        Raises `StoreUnavailable` if the server does not tell in time.
        """
        log.warning("commit.connection_lost transaction=%s", number)
        deadline = time.monotonic() + self.retry_seconds
        while (status := self._read_status(engine, number)) not in ("committed", "aborted"):
            if time.monotonic() > deadline:
                raise StoreUnavailable("commit_unknown", detail=_one_line(driver_error(error))) from error
            time.sleep(RECHECK_SECONDS)
        log.info("commit.resolved transaction=%s status=%s", number, status)
        if status == "aborted":
            raise error

    def _read_status(self, engine: Engine, number: int) -> str | None:
        """Return `committed`, `aborted` or `in progress`; None while the server is unreachable."""
        try:
            with engine.connect() as connection:
                status: str | None = connection.exec_driver_sql(SELECT_TRANSACTION_STATUS, (number,)).scalar()
                return status
        except (DBAPIError, PoolTimeout):
            return None

    @contextmanager
    def begin_autocommit(self, engine: Engine) -> Iterator[Connection]:
        """Run each statement on its own and without a statement timeout, such as CREATE INDEX CONCURRENTLY."""
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            if not self._options.pooled:  # behind a pooler, the session has no timeout of ours
                connection.exec_driver_sql("SET statement_timeout = 0")
            yield connection
            if not self._options.pooled:
                connection.exec_driver_sql("RESET statement_timeout")

    @contextmanager
    def begin_read(self, engine: Engine) -> Iterator[Connection]:
        """Open a snapshot: all statements see the same state."""
        with (
            engine.connect().execution_options(isolation_level="REPEATABLE READ") as connection,
            connection.begin(),
        ):
            yield connection

    @contextmanager
    def begin_single_read(self, engine: Engine) -> Iterator[Connection]:
        """Open no transaction, because each statement sees one snapshot.

        Behind a pooler it needs one, for the timeouts.
        """
        with self.begin_read(engine) if self._options.pooled else self._begin_implicit(engine) as connection:
            yield connection

    @contextmanager
    def begin_single_write(self, engine: Engine, *, durable: bool) -> Iterator[Connection]:  # noqa: ARG002
        """Open no transaction: the statement commits itself. Behind a pooler it needs one, for the timeouts."""
        with engine.begin() if self._options.pooled else self._begin_implicit(engine) as connection:
            yield connection

    @contextmanager
    def _begin_implicit(self, engine: Engine) -> Iterator[Connection]:
        """Make each statement its own transaction."""
        with (
            engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection,
            connection.begin(),  # sends nothing
        ):
            yield connection

    def run(
        self, cursor: Any, statement: CompiledStatement, rows: Rows | None, values: dict[str, Any]
    ) -> list[tuple[Any, ...]]:
        """Send the batch as one JSON array."""
        if rows is not None:
            values["rows"] = json.dumps(rows, default=bytes.hex)
        cursor.execute(statement.sql, values)
        result = cursor.pgresult
        # `description` would build an object for each column.
        return cursor.fetchall() if result is not None and result.nfields else []

    def lock_owners(self, tx: Transaction, owners: Collection[int]) -> None:
        """Lock the rows of the owners in the order of their ids, which prevents deadlocks."""
        tx.run(self._lock_rows, [[owner] for owner in sorted(set(owners))])

    def translate_error(self, error: BaseException) -> HoldfastError | None:
        return explain_refused_write(error) or self._translate_error(error)

    def _translate_error(self, error: BaseException) -> HoldfastError | None:
        options, detail = self._options, _one_line(error)
        match getattr(error, "sqlstate", None):
            case None:
                return self._translate_connection_error(error, detail)
            case "55P03":  # lock_not_available
                return StoreBusy("lock_timeout", seconds=_format_seconds(options.lock))
            case "57014":  # query_canceled
                return StoreBusy("statement_timeout", seconds=_format_seconds(options.statement), detail=detail)
            case "53300":  # too_many_connections
                return StoreBusy("database_connections_exhausted", detail=detail)
            case "53100":  # disk_full
                return StoreFull(place="PostgreSQL")
            case "25006":  # read_only_sql_transaction
                return StoreReadOnly("postgres_read_only", detail=detail)
            case "42501":  # insufficient_privilege
                return StoreReadOnly("postgres_permission_denied", detail=detail)
            case state if state in PREPARED_STATEMENT_SQLSTATES:
                return BadSettings("pooler_not_set", detail=detail)
            case state if state[:2] in ("08", "57"):  # connection exceptions, operator intervention
                return StoreUnavailable(detail=detail)
        return None

    def _translate_connection_error(self, error: BaseException, detail: str) -> HoldfastError | None:
        """Translate an error without a code: no connection could be opened, or it was lost."""
        options = self._options
        if isinstance(error, PoolTimeout):
            most = options.pool + options.overflow
            return StoreBusy("pool_exhausted", connections=most, seconds=_format_seconds(options.wait))
        if UNSUPPORTED_STARTUP_PARAMETER in detail:
            return BadSettings("pooler_not_set", detail=detail)
        if any(part in detail for part in TOO_MANY_CONNECTIONS):
            return StoreBusy("database_connections_exhausted", detail=detail)
        return StoreUnavailable(detail=detail) if _is_connection_error(error) else None

    def is_retryable(self, error: BaseException) -> bool:
        return getattr(error, "sqlstate", None) in RETRYABLE_SQLSTATES

    def is_unreachable(self, error: BaseException) -> bool:
        """Return whether the connection was lost or refused. A statement that waited too long is not meant."""
        if isinstance(error, PoolTimeout) or UNSUPPORTED_STARTUP_PARAMETER in str(error):
            return False
        state = getattr(error, "sqlstate", None)
        if state is None:
            return _is_connection_error(error)
        return state in SHUTDOWN_SQLSTATES or state[:2] == "08" or state == "53300"

    def overwrite(self, fts_tables: Collection[str]) -> None:
        """Do nothing: autovacuum removes dead rows. WAL and backups are not covered."""

    def compact(self, largest: int | None) -> None:
        """Do nothing, as `overwrite`."""

    def close(self) -> None:
        """Do nothing."""


def _is_connection_error(error: BaseException) -> bool:
    """Return whether an error without a code concerns the connection, and not a statement that was never sent."""
    return any(kind.__name__ in ("OperationalError", "InterfaceError") for kind in type(error).__mro__)


def _one_line(error: BaseException) -> str:
    """Return the message of the driver, which may have several lines, on one line."""
    return " ".join(str(error).split())


def _format_seconds(duration: timedelta) -> str:
    return f"{duration.total_seconds():g}"


def postgres_engine(url: str, options: ConnectionOptions) -> Engine:
    """Return an engine whose sessions have our timeouts: a process that hangs must not block the others for ever."""
    connect_args: dict[str, Any] = {
        "connect_timeout": options.connect_seconds,
        "fallback_application_name": "holdfast",  # in pg_stat_activity
    }
    if options.pooled:
        connect_args["prepare_threshold"] = None  # the next transaction may run on another connection
    else:
        # An option in the address, such as a search_path, is kept and overrides ours.
        own = [f"-c {name}={value}" for name, value in options.session_settings.items()]
        connect_args["options"] = " ".join([*own, *_options_in(url)])
    engine = create_engine(
        url,
        pool_size=options.pool,
        max_overflow=options.overflow,
        pool_timeout=options.wait.total_seconds(),
        connect_args=connect_args,
        hide_parameters=True,  # logged errors must not contain text of documents
    )
    _test_doubtful_connections(engine)
    if options.pooled:
        _set_timeouts_per_transaction(engine, options)
    return engine


def _options_in(url: str) -> list[str]:
    given = make_url(url).query.get("options", ())
    return [given] if isinstance(given, str) else list(given)


def _test_doubtful_connections(engine: Engine) -> None:
    """Test a pooled connection before it is used, if it was idle for long or has received something meanwhile.

    A server that shuts down or crashes closes its connections, so their sockets are readable. Testing every connection
    would cost a round trip for each transaction.
    """

    @event.listens_for(engine, "checkin")
    def _note_time(_driver: Any, record: ConnectionPoolEntry) -> None:
        record.info[IDLE_SINCE] = time.monotonic()

    @event.listens_for(engine, "checkout")
    def _test(driver: Any, record: ConnectionPoolEntry, _fairy: Any) -> None:
        since = record.info.get(IDLE_SINCE)
        if since is None or (time.monotonic() - since < PING_AFTER_SECONDS and not _is_readable(driver)):
            return
        try:
            engine.dialect.do_ping(driver)
        except engine.dialect.loaded_dbapi.Error as error:
            raise InvalidatePoolError from error  # SQLAlchemy opens new connections


def _is_readable(driver: Any) -> bool:
    """Return whether the server has closed an idle connection, or sent something."""
    waiting = select.poll()
    waiting.register(driver.fileno(), select.POLLIN)
    return bool(waiting.poll(0))


def _set_timeouts_per_transaction(engine: Engine, options: ConnectionOptions) -> None:
    """Set the timeouts at the start of each transaction: a pooler gives settings of a session to other clients."""
    settings = "; ".join(f"SET LOCAL {name} = {value}" for name, value in options.session_settings.items())

    @event.listens_for(engine, "begin")
    def _set_timeouts(connection: Connection) -> None:
        if connection.get_execution_options().get("isolation_level") != "AUTOCOMMIT":
            connection.exec_driver_sql(settings)
