"""How SQLite is made to forget: what is deleted stays on the disk in three places, and each is cleaned by its own step.

1. *Tables of words.* FTS5 notes a delete beside the words, and takes both out only when it merges its segments into
   one. That is done in small transactions; others write between them.
2. *The log.* It has copies of pages as they were. It can be cut when all of it is in the file and nobody reads from it.
3. *Gaps in pages*, see `gaps`. Everything else in the file is overwritten when it is deleted (`secure_delete`). The
   file is gone through in portions; during each the log is empty and nobody writes. At the end of each something is
   committed, so that every connection, of any process, drops the pages it remembers: one of these, written later, would
   bring back what was in its gap.

What others write meanwhile brings back nothing that was deleted before the first step: copies are made of living rows
only. So when all steps are done, all of that is gone; what was deleted since is left for the next time.
"""

from __future__ import annotations

import fcntl
import select
import sqlite3
import subprocess
import sys
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Self

from holdfast.errors import StoreError
from holdfast.stores import gaps
from holdfast.stores.private import private_file

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    Turn = Callable[[], AbstractContextManager[None]]

MERGED_PAGES = 250  # of FTS5, about a megabyte, written in one transaction
PORTION = 16_384  # pages of the file, 64 MB, looked at while nobody writes
READERS_SECONDS = 0.25  # how long it is waited for those who read, and writers wait meanwhile
CLEARING_SECONDS = 30.0  # far more than a portion takes
WORKED = 2  # rows that FTS5 changes at least when it has merged anything
STEP = "UPDATE erasures SET step = step + 1 WHERE place = 'rows'"


def shred(path: Path, turn: Turn, words: Collection[str]) -> bool:
    """Take off the disk what was deleted; False if somebody reads, or does the same, and it has to be tried again.

    `turn` keeps other writers waiting, and `words` are the tables of words from which something was deleted.
    """
    with _alone(path.with_name(path.name + "-erase")) as alone:
        return alone and _merged(path, turn, words) and _cleared(path, turn)


@contextmanager
def _alone(path: Path) -> Iterator[bool]:
    """Tell whether nobody else shreds; then nobody begins before the end of the block."""
    with open(path, "ab", opener=private_file) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            alone = True
        except BlockingIOError:
            alone = False
        yield alone


def _merged(path: Path, turn: Turn, words: Collection[str]) -> bool:
    """Merge the segments of tables of words, a portion at a time; return whether all are merged."""
    for table in words:
        portion = -MERGED_PAGES  # below zero: begin with all segments there are; above: go on with what was begun
        going_on = True
        while going_on:
            with turn(), closing(_connect(path)) as raw:
                if not _begun(raw):
                    return False
                going_on = _merge(raw, table, portion)
                raw.execute("COMMIT")
            portion = MERGED_PAGES
    return True


def _merge(raw: sqlite3.Connection, table: str, portion: int) -> bool:
    """Merge a portion; return whether there may be more."""
    if not raw.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", [table]).fetchall():
        return False
    before = raw.total_changes
    raw.execute(f'INSERT INTO "{table}" ("{table}", rank) VALUES (?, ?)', ["merge", portion])  # noqa: S608 - its name
    return raw.total_changes - before >= WORKED


def _cleared(path: Path, turn: Turn) -> bool:
    """Cut the log and overwrite the gaps, a portion at a time; return whether all of it is done."""
    with closing(_connect(path)) as raw:
        raw.execute("PRAGMA wal_checkpoint(PASSIVE)")  # most of the copying, while others read and write
    with Clearer(path) as clearer:
        page = 1
        while page:
            with turn(), closing(_connect(path)) as raw:
                if not _cut(raw, path):
                    return False
                page = clearer.clear(page)
                raw.execute(STEP)
                raw.execute("COMMIT")
    return True


def _cut(raw: sqlite3.Connection, path: Path) -> bool:
    """Cut the log and begin to write, so that it stays empty; False if somebody still reads from it."""
    ((busy, _, _),) = raw.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    if busy or not _begun(raw):
        return False
    log = path.with_name(path.name + "-wal")
    return not log.exists() or log.stat().st_size == 0  # another program may have come between


class Clearer:
    """The process that overwrites gaps; it is there before anybody has to wait for it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        command = [sys.executable, "-I", "-S", gaps.__file__, str(path)]
        pipe = subprocess.PIPE
        self._child = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe)  # noqa: S603 - our own program

    def __enter__(self) -> Self:
        try:
            self._heard()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def clear(self, page: int) -> int:
        """Overwrite the gaps of a portion; return where the next one begins, 0 at the end."""
        assert self._child.stdin is not None  # noqa: S101 - it is a pipe
        self._child.stdin.write(f"{page} {PORTION}\n".encode())
        self._child.stdin.flush()
        return int(self._heard())

    def _heard(self) -> bytes:
        """Return what the child says, or raise what it complains of."""
        assert self._child.stdout is not None  # noqa: S101 - it is a pipe
        waiting = select.poll()
        waiting.register(self._child.stdout, select.POLLIN)
        said = self._child.stdout.readline() if waiting.poll(CLEARING_SECONDS * 1000) else b""
        if said:
            return said
        self._child.kill()
        complaint = self._child.communicate()[1].decode(errors="replace").strip().rpartition("\n")[2]
        raise StoreError(f"What was deleted is still in gaps of {self._path}; it will be tried again. ({complaint})")

    def _end(self) -> None:
        self._child.kill()
        self._child.communicate()


def _connect(path: Path) -> sqlite3.Connection:
    raw = sqlite3.connect(path, timeout=READERS_SECONDS, isolation_level=None)
    raw.execute("PRAGMA secure_delete=ON")
    return raw


def _begun(raw: sqlite3.Connection) -> bool:
    """Begin to write; False if another program does, which takes no turns."""
    try:
        raw.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY:
            return False
        raise
    return True
