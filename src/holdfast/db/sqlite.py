"""The SQLite dialect.

Every write transaction begins with BEGIN IMMEDIATE. With a deferred BEGIN two writers could read the same value, and
one update would fail. SQLite itself waits for a lock with growing sleeps, so a newcomer can overtake waiting writers.
To avoid that, writers queue first: in order within a process, by a file lock between processes.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import stat
import threading
from collections import deque
from contextlib import closing, contextmanager, suppress
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Any

from sqlalchemy import create_engine, event
from sqlalchemy.pool import QueuePool, StaticPool

from holdfast.db.closing import explain_refused_write
from holdfast.db.secure_delete import compact, overwrite
from holdfast.disk import DISK_FULL_ERRNOS
from holdfast.errors import HoldfastError, StoreBusy, StoreError, StoreFull, StoreReadOnly, StoreUnavailable
from holdfast.private_files import open_private_file, restrict_to_owner

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from sqlalchemy import Connection, Engine

    from holdfast.clock import Clock
    from holdfast.db.database import CompiledStatement, Rows, Transaction
    from holdfast.db.secure_delete import Obstacle

OLDEST_VERSION = (3, 38, 0)  # RETURNING, UPDATE FROM and JSON functions
BUSY_SECONDS = 30
PRAGMAS = (
    "foreign_keys=ON",
    "secure_delete=ON",  # overwrite deleted rows
    "synchronous=FULL",
    "wal_autocheckpoint=4000",  # 16 MB: copy pages that change often less often
    "cache_size=-8000",  # 8 MB per connection
)
BATCH_SIZES = (64, 16, 4, 1)  # a batch is split into these sizes, so that SQLite parses only a few different statements
SMALLEST_PAGE = 512  # the size of a database file is a multiple of the page size


class WriterQueue:
    """Lets the writers of one database run one after the other, by a lock file beside it.

    Within a process they run in order of arrival. Between processes the kernel chooses among the first of each.
    """

    def __init__(self, database: Path | None) -> None:
        self._database = database
        self._lock_fd: int | None = None
        self._mutex = threading.Lock()
        self._busy = False
        self._waiting: deque[threading.Lock] = deque()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Wait for the turn of this thread. The end of the block passes it on."""
        self._wait_turn()
        try:
            if self._database is not None:
                fcntl.flock(self._open_lock_file(self._database), fcntl.LOCK_EX)
            yield
        finally:
            if self._lock_fd is not None:
                fcntl.flock(self._lock_fd, fcntl.LOCK_UN)
            self._pass_turn()

    def close(self) -> None:
        if self._lock_fd is not None:
            os.close(self._lock_fd)
            self._lock_fd = None

    def _open_lock_file(self, database: Path) -> int:
        if self._lock_fd is None:
            try:
                self._lock_fd = open_private_file(database.with_name(database.name + "-turn"), os.O_RDWR | os.O_CREAT)
            except OSError as error:
                raise _make_lock_file_error(database, error) from error
        return self._lock_fd

    def _wait_turn(self) -> None:
        with self._mutex:
            if not self._busy:
                self._busy = True
                return
            gate = threading.Lock()
            gate.acquire()
            self._waiting.append(gate)
        gate.acquire()  # the leaving writer releases it

    def _pass_turn(self) -> None:
        with self._mutex:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._busy = False


class SqliteDialect:
    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._writers = WriterQueue(path)

    def prepare(self) -> None:
        """Create the file and switch it to write-ahead logging, one process at a time.

        SQLite does not wait if two processes switch at the same moment; it rejects the second one.
        """
        if self._path is None:
            return
        _require_database(self._path)
        with suppress(OSError):  # the file exists, or SQLite reports the problem below
            os.close(open_private_file(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL))
        with self._writers.turn(), closing(sqlite3.connect(self._path, timeout=BUSY_SECONDS)) as raw:
            raw.execute("PRAGMA journal_mode=WAL")
            for ending in ("", "-wal", "-shm"):  # SQLite creates the others with the mode of the database file
                restrict_to_owner(self._path.with_name(self._path.name + ending))

    @contextmanager
    def begin_write(self, engine: Engine, *, durable: bool) -> Iterator[Connection]:
        """Open BEGIN IMMEDIATE. With `durable`, the commit syncs the disk."""
        with self._writers.turn(), engine.connect() as connection:
            _set_synchronous(connection, "FULL" if durable else "NORMAL")
            with connection.begin():
                yield connection

    def prepare_commit(self, connection: Connection, transaction_id: int | None) -> None:
        """Do nothing: there is no connection to lose."""

    @contextmanager
    def begin_read(self, engine: Engine) -> Iterator[Connection]:
        """Open a deferred transaction. Readers and the writer do not block each other."""
        with engine.connect().execution_options(holdfast_reads=True) as connection, connection.begin():
            yield connection

    def begin_single_read(self, engine: Engine) -> AbstractContextManager[Connection]:
        return self.begin_read(engine)

    def begin_single_write(self, engine: Engine, *, durable: bool) -> AbstractContextManager[Connection]:
        return self.begin_write(engine, durable=durable)

    def run(
        self, cursor: Any, statement: CompiledStatement, rows: Rows | None, values: dict[str, Any]
    ) -> list[tuple[Any, ...]]:
        """Send the batch as VALUES, one parameter per cell."""
        if rows is None:
            cursor.execute(statement.sql, [values[name] for name in statement.param_order])
            return cursor.fetchall()  # type: ignore[no-any-return]
        position = statement.param_order.index("rows")
        before = [values[name] for name in statement.param_order[:position]]
        after = [values[name] for name in statement.param_order[position + 1 :]]
        result: list[tuple[Any, ...]] = []
        for part in _split_batch(rows):
            sql = _expand_values(statement.sql, len(part), len(part[0]))
            cursor.execute(sql, [*before, *chain.from_iterable(part), *after])
            result += cursor.fetchall()
        return result

    def lock_owners(self, tx: Transaction, owners: Collection[int]) -> None:
        """Do nothing: BEGIN IMMEDIATE excludes other writers."""

    def translate_error(self, error: BaseException) -> HoldfastError | None:
        code = getattr(error, "sqlite_errorcode", None)
        path = str(self._path or ":memory:")
        if code == sqlite3.SQLITE_IOERR_SHMSIZE:  # no space for the shared-memory file
            return StoreFull(place=path)
        if code == sqlite3.SQLITE_CONSTRAINT_TRIGGER:
            return explain_refused_write(error)
        match None if code is None else code & 0xFF:  # the primary result code
            case sqlite3.SQLITE_BUSY:
                return StoreBusy(path=path, seconds=BUSY_SECONDS)
            case sqlite3.SQLITE_READONLY:
                return StoreReadOnly("database_read_only", path=path)
            case sqlite3.SQLITE_FULL:
                return StoreFull(place=path)
            case sqlite3.SQLITE_IOERR:
                return StoreError("database_io_error", path=path, detail=error)
            case sqlite3.SQLITE_CANTOPEN:
                return StoreUnavailable("database_not_opened", path=path, detail=error)
            case sqlite3.SQLITE_NOTADB:
                return StoreError("not_a_database", path=path)
            case sqlite3.SQLITE_CORRUPT:
                return StoreError("database_damaged", path=path, detail=error)
        return None

    @property
    def retry_seconds(self) -> float:
        return 0.0

    @contextmanager
    def begin_autocommit(self, engine: Engine) -> Iterator[Connection]:
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            yield connection

    def is_retryable(self, error: BaseException) -> bool:  # noqa: ARG002 - writers never conflict
        return False

    def is_unreachable(self, error: BaseException) -> bool:  # noqa: ARG002 - a file has no connection to lose
        return False

    def overwrite(self, fts_tables: Collection[str]) -> Obstacle | None:
        """Remove deleted rows from the files. A database in memory has none."""
        return None if self._path is None else overwrite(self._path, self._writers.turn, fts_tables)

    def compact(self, largest: int | None) -> Obstacle | None:
        """Remove copies of deleted rows from the files. A database in memory has none."""
        return None if self._path is None else compact(self._path, self._writers.turn, largest)

    def close(self) -> None:
        self._writers.close()


def _split_batch(rows: Rows) -> Iterator[Rows]:
    """Split a batch into the sizes of BATCH_SIZES."""
    first = 0
    for size in BATCH_SIZES:
        while len(rows) - first >= size:
            yield rows[first : first + size]
            first += size


@lru_cache(maxsize=1024)
def _expand_values(sql: str, count: int, width: int) -> str:
    """Return the statement with parameters for this many rows."""
    row = f"({', '.join('?' * width)})"
    return sql.replace("(VALUES (?))", f"(VALUES {', '.join([row] * count)})")


def _require_database(path: Path) -> None:
    """Refuse a path that cannot be a database, by its type and size. SQLite checks the contents later.

    The function does not open the file: closing it would release all locks that this process holds on it through
    SQLite. Another process would then treat the log of a live database as abandoned.
    """
    try:
        status = path.stat()
    except OSError:
        return  # SQLite reports the problem later
    if not stat.S_ISREG(status.st_mode):  # its size means nothing
        is_folder = stat.S_ISDIR(status.st_mode)
        raise StoreUnavailable("database_is_folder" if is_folder else "database_not_regular", path=path)
    if status.st_size % SMALLEST_PAGE:
        raise StoreError("not_a_database", path=path)


def _make_lock_file_error(database: Path, error: OSError) -> StoreError:
    """Explain why the lock file beside the database cannot be created."""
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return StoreUnavailable("database_not_opened", path=database, detail=error.strerror)
    if error.errno in DISK_FULL_ERRNOS:
        return StoreFull(place=database)
    return StoreReadOnly("database_read_only", path=database)


def sqlite_engine(path: Path | None, clock: Clock) -> Engine:
    """Open a file, or a database in memory if `path` is None."""
    if sqlite3.sqlite_version_info < OLDEST_VERSION:
        oldest = ".".join(map(str, OLDEST_VERSION))
        raise StoreError("sqlite_too_old", version=sqlite3.sqlite_version, oldest=oldest)
    url = f"sqlite:///{path}" if path else "sqlite://"
    connect_args = {"timeout": BUSY_SECONDS, "check_same_thread": False, "cached_statements": 512}
    if path:
        engine = create_engine(
            url,
            connect_args=connect_args,
            poolclass=QueuePool,
            pool_size=8,
            max_overflow=-1,
            hide_parameters=True,  # logged errors must not contain text of documents
        )
    else:
        engine = create_engine(url, connect_args=connect_args, poolclass=StaticPool, hide_parameters=True)

    @event.listens_for(engine, "connect")
    def _prepare(raw: sqlite3.Connection, _record: Any) -> None:
        raw.isolation_level = None  # `_begin` sends BEGIN
        for pragma in PRAGMAS:
            raw.execute(f"PRAGMA {pragma}")
        raw.create_function("holdfast_now", 0, clock.now)

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        reads = connection.get_execution_options().get("holdfast_reads", False)
        _get_driver(connection).execute("BEGIN" if reads else "BEGIN IMMEDIATE")  # SQLAlchemy takes ten times as long

    return engine


def _set_synchronous(connection: Connection, level: str) -> None:
    """Set how a commit is synced. Only possible between transactions."""
    if connection.info.get("synchronous") != level:
        _get_driver(connection).execute(f"PRAGMA synchronous={level}")
        connection.info["synchronous"] = level


def _get_driver(connection: Connection) -> sqlite3.Connection:
    driver = connection.connection.driver_connection
    assert isinstance(driver, sqlite3.Connection)  # noqa: S101 - this is the SQLite dialect
    return driver
