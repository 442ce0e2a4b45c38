"""Removes deleted data from the files of a SQLite database, in two stages. Only SQLite writes these files.

`overwrite` removes deleted rows from the database file and its write-ahead log:

1. `secure_delete`, which every connection sets, writes zeros over a row in the transaction that deletes it.
2. FTS5 keeps deleted words in its segments until it merges them. All segments of a table are merged into one, in short
   transactions; other writers run between them.
3. The write-ahead log contains earlier versions of pages. A truncating checkpoint copies the log into the file and cuts
   it to zero bytes. An open read transaction prevents that.

`compact` removes copies that SQLite made. When SQLite splits or merges pages of a table, it moves rows without
overwriting their old place; a later delete does not reach these copies. `VACUUM` writes all living rows into a
temporary database and copies that over the file. A truncating checkpoint follows.

SQLite copies living rows only. So a completed stage has removed everything that was deleted before the stage began,
even if others write meanwhile. Data that is deleted later is left for the next run.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sqlite3
from contextlib import closing, contextmanager, suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.private_files import open_private_file

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from contextlib import AbstractContextManager

    WriterTurn = Callable[[], AbstractContextManager[None]]

FTS_MERGE_PAGES = 250  # of FTS5, about a megabyte, written in one transaction
FTS_MERGE_MIN_CHANGES = 2  # FTS5 changes at least this many rows if it merged anything
READERS_SECONDS = 0.25  # how long a checkpoint waits for readers; writers wait meanwhile
CHECKPOINT_ATTEMPTS = 20  # attempts after a VACUUM, which is too expensive to repeat for one short read
HEADROOM = 1.05  # frames of the log are larger than pages
# Where SQLite creates temporary files: in the first of these folders that can be written.
TEMPORARY_SETTINGS = ("SQLITE_TMPDIR", "TMPDIR")
TEMPORARY_FOLDERS = ("/var/tmp", "/usr/tmp", "/tmp")  # noqa: S108 - SQLite's own list


class SecureDeleteStage(StrEnum):
    """The two stages, in order."""

    OVERWRITE = "overwrite"
    COMPACT = "compact"


class Obstacle(StrEnum):
    """Why a stage was not completed. The caller tries again later."""

    READER = "reader"  # a read transaction is open, so the log cannot be truncated
    WRITER = "writer"  # another program holds the write lock
    ERASER = "eraser"  # another process is erasing
    NO_SPACE = "no_space"  # VACUUM does not fit on the disk
    TOO_LARGE = "too_large"  # VACUUM would block writers for too long
    FAILED = "failed"  # an error, which is in the log of the program


def overwrite(path: Path, turn: WriterTurn, fts_tables: Collection[str]) -> Obstacle | None:
    """Remove deleted rows from the file and its log. Return what prevented it, None if it is complete.

    `turn` blocks other writers. `fts_tables` are the FTS5 tables from which rows were deleted.
    """
    with _lock_erasing(path) as alone:
        if not alone:
            return Obstacle.ERASER
        return _merge_all(path, turn, fts_tables) or _truncate_log(path, turn, 1)


def compact(path: Path, turn: WriterTurn, largest: int | None) -> Obstacle | None:
    """Remove copies of deleted rows from the file. Return what prevented it, None if it is complete.

    A file of more than `largest` bytes is not changed. Readers are not blocked; writers wait until VACUUM has ended.
    """
    with _lock_erasing(path) as alone:
        if not alone:
            return Obstacle.ERASER
        return _vacuum(path, turn, largest) or _truncate_log(path, turn, CHECKPOINT_ATTEMPTS)


@contextmanager
def _lock_erasing(path: Path) -> Iterator[bool]:
    """Yield whether this process got the lock that allows erasing. It holds the lock until the end of the block."""
    with open(path.with_name(path.name + "-erase"), "ab", opener=open_private_file) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            alone = True
        except BlockingIOError:
            alone = False
        yield alone


def _merge_all(path: Path, turn: WriterTurn, fts_tables: Collection[str]) -> Obstacle | None:
    """Merge the segments of FTS5 tables, in several transactions."""
    for table in fts_tables:
        portion = -FTS_MERGE_PAGES  # below zero: begin a merge of all segments; above zero: continue it
        more = True
        while more:
            with turn(), closing(_connect(path)) as raw:
                if not _try_begin(raw):
                    return Obstacle.WRITER
                more = _merge(raw, table, portion)
                raw.execute("COMMIT")
            portion = FTS_MERGE_PAGES
    return None


def _merge(raw: sqlite3.Connection, table: str, portion: int) -> bool:
    """Merge a part of the segments. Return whether there may be more."""
    if not raw.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", [table]).fetchall():
        return False
    before = raw.total_changes
    raw.execute(f'INSERT INTO "{table}" ("{table}", rank) VALUES (?, ?)', ["merge", portion])  # noqa: S608 - its name
    return raw.total_changes - before >= FTS_MERGE_MIN_CHANGES


def _vacuum(path: Path, turn: WriterTurn, largest: int | None) -> Obstacle | None:
    """Rewrite the file, unless it is too large, the disk is too small, or a read transaction is open."""
    with closing(_connect(path)) as raw:
        size = _living_bytes(raw)
    if largest is not None and size > largest:
        return Obstacle.TOO_LARGE
    if _lacks_space(path.absolute().parent, size):
        return Obstacle.NO_SPACE
    # With an open reader, the old log and that of VACUUM would both stay on the disk.
    if obstacle := _truncate_log(path, turn, 1):
        return obstacle
    with turn(), closing(_connect(path)) as raw:
        try:
            raw.execute("VACUUM")
        except sqlite3.OperationalError as error:
            with suppress(sqlite3.OperationalError):
                _try_truncate(raw)  # give back the space that the failed attempt took
            if _has_code(error, sqlite3.SQLITE_BUSY):
                return Obstacle.WRITER
            if _has_code(error, sqlite3.SQLITE_FULL):
                return Obstacle.NO_SPACE
            raise
    return None


def _living_bytes(raw: sqlite3.Connection) -> int:
    """Return the largest possible size of the file after VACUUM."""
    pages, free, size = (
        raw.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
    )
    return int((pages - free) * size)


def _lacks_space(folder: Path, size: int) -> bool:
    """Return whether the temporary database or the log of VACUUM does not fit on its disk."""
    needed = int(size * HEADROOM)
    places = [*(os.environ.get(name, "") for name in TEMPORARY_SETTINGS), *TEMPORARY_FOLDERS]
    temporary = next((Path(place) for place in places if place and os.access(place, os.W_OK | os.X_OK)), folder)
    if temporary.stat().st_dev == folder.stat().st_dev:
        return shutil.disk_usage(folder).free < 2 * needed
    return min(shutil.disk_usage(place).free for place in (temporary, folder)) < needed


def _truncate_log(path: Path, turn: WriterTurn, attempts: int) -> Obstacle | None:
    """Copy the log into the file and cut it to zero bytes."""
    with closing(_connect(path)) as raw:
        raw.execute("PRAGMA wal_checkpoint(PASSIVE)")  # most of the copying, while others read and write
    for _ in range(attempts):
        with turn(), closing(_connect(path)) as raw:
            if _try_truncate(raw):
                return None
    return Obstacle.READER


def _try_truncate(raw: sqlite3.Connection) -> bool:
    ((busy, _, _),) = raw.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return not busy


def _connect(path: Path) -> sqlite3.Connection:
    raw = sqlite3.connect(path, timeout=READERS_SECONDS, isolation_level=None)
    raw.execute("PRAGMA secure_delete=ON")  # VACUUM sets it on its temporary database, too
    return raw


def _try_begin(raw: sqlite3.Connection) -> bool:
    """Begin a write transaction. Return False if another program, which does not use `turn`, is writing."""
    try:
        raw.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError as error:
        if _has_code(error, sqlite3.SQLITE_BUSY):
            return False
        raise
    return True


def _has_code(error: sqlite3.OperationalError, code: int) -> bool:
    """Compare the primary result code of an error."""
    return error.sqlite_errorcode & 0xFF == code
