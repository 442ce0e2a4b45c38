"""Writers of one SQLite file take turns before they ask SQLite.

SQLite's own waiting is a sleep of growing length, in which a newcomer overtakes those who wait; ours is a queue in each
process and a file lock between processes. It is about order and waiting alone: what keeps two writers apart is SQLite.
"""

from __future__ import annotations

import errno
import fcntl
import os
import threading
import time
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING

from holdfast.errors import StoreBusy, StoreError, StoreFull, StoreReadOnly, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BUSY_SECONDS = 30  # a writer that waited so long for others is told, and writes nothing


class Turns:
    """Writers go one after the other, in the order they came.

    Within a process the order is exact. Between processes the kernel decides among the first of each.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._file: int | None = None
        self._mutex = threading.Lock()
        self._taken = False
        self._waiting: deque[threading.Lock] = deque()

    @contextmanager
    def one(self) -> Iterator[None]:
        """Wait for a turn, and give it to the next; raise `StoreBusy` when it does not come."""
        deadline = time.monotonic() + BUSY_SECONDS
        self._enter(deadline)
        try:
            if self._path is not None:
                _lock(self._descriptor(self._path), deadline)
            yield
        finally:
            if self._file is not None:
                fcntl.flock(self._file, fcntl.LOCK_UN)
            self._leave()

    def close(self) -> None:
        """Close the lock file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _descriptor(self, path: Path) -> int:
        if self._file is None:
            try:
                self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            except OSError as error:
                raise _unwritable(path, error) from error
        return self._file

    def _enter(self, deadline: float) -> None:
        with self._mutex:
            if not self._taken:
                self._taken = True
                return
            gate = threading.Lock()
            gate.acquire()
            self._waiting.append(gate)
        if gate.acquire(timeout=max(0, deadline - time.monotonic())):  # released by whoever leaves, straight to us
            return
        with self._mutex:
            if gate in self._waiting:
                self._waiting.remove(gate)
                raise _busy()

    def _leave(self) -> None:
        with self._mutex:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._taken = False


def _lock(file: int, deadline: float) -> None:
    """Lock the file; where somebody else has it, wait in a thread, since a lock of the kernel has no time limit."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        waiting = _Waiting(os.dup(file))
        if not waiting.came(deadline - time.monotonic()):
            raise _busy() from None


class _Waiting:
    """A thread that waits for the lock; one that was given up lets go of it as soon as it comes."""

    def __init__(self, file: int) -> None:
        self._file = file  # a copy: the lock is the same, and closing the other does not harm the thread
        self._mutex = threading.Lock()
        self._came = threading.Event()
        self._given_up = False
        threading.Thread(target=self._wait, name="holdfast-turn", daemon=True).start()

    def came(self, seconds: float) -> bool:
        """Wait for it; False means that it was given up."""
        if self._came.wait(max(0, seconds)):
            return True
        with self._mutex:
            self._given_up = not self._came.is_set()
            return not self._given_up

    def _wait(self) -> None:
        fcntl.flock(self._file, fcntl.LOCK_EX)
        with self._mutex:
            if self._given_up:
                fcntl.flock(self._file, fcntl.LOCK_UN)
            self._came.set()
        os.close(self._file)


def _busy() -> StoreBusy:
    return StoreBusy(
        f"Another program has kept the database for {BUSY_SECONDS} s. Nothing was written; look for a process that is "
        "stopped or hangs, and try again."
    )


def _unwritable(path: Path, error: OSError) -> StoreError:
    """Say why the file beside the database, through which writers take turns, cannot be made."""
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return StoreUnavailable(
            f"The database cannot be opened. Check that its folder exists and may be written. ({error})"
        )
    if error.errno == errno.ENOSPC:
        return StoreFull(f"The disk is full. Nothing was written; free some space and try again. ({error})")
    return StoreReadOnly(
        f"The database cannot be written. Nothing was written; check the owner and mode of {path.parent}. ({error})"
    )
