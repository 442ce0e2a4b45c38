"""Wake-ups between processes. They carry no data and may be lost.

SQLite: each listener creates a named pipe beside the database, and a notifier writes a byte into every pipe.
PostgreSQL: NOTIFY, at most ten per second from each process. LISTEN needs a session of its own, so behind a pooler in
transaction mode it uses the address of the server itself. In memory: an unnamed pipe per listener.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import math
import os
import select
import threading
import time
import uuid
from typing import TYPE_CHECKING, Any, Protocol

from holdfast.db.connection_options import ConnectionOptions
from holdfast.private_files import FILE_MODE, make_private_folder

if TYPE_CHECKING:
    from pathlib import Path

log = logging.getLogger("holdfast")

HIDDEN_PREFIX = "."
CLOSED_FD = -1


class Listener(Protocol):
    def wait(self, seconds: float) -> bool:
        """Wait for a notification. Return whether one arrived."""
        ...

    def wake(self) -> None:
        """Wake this listener only. Safe in a signal handler."""
        ...

    def close(self) -> None: ...


class Notifier(Protocol):
    """Wakes all listeners of the same database."""

    def notify(self) -> None:
        """Wake all listeners. Never fails and never blocks."""
        ...

    def listen(self) -> Listener:
        """Create a listener. It receives notifications from now on."""
        ...

    def close(self) -> None: ...


class PipeListener:
    """Waits on a named pipe, or on an unnamed one that only `wake` can reach."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        if path is None:
            self._read_fd, self._write_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        else:
            # Created under a hidden name: a notifier would delete a pipe that has no reader yet.
            hidden = path.with_name(HIDDEN_PREFIX + path.name)
            os.mkfifo(hidden, FILE_MODE)
            # Opened for reading and writing, so that there is no end of file when a writer closes it.
            self._read_fd = self._write_fd = os.open(hidden, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
            hidden.rename(path)

    def wait(self, seconds: float) -> bool:
        """Wait for a notification, and drain all that have arrived."""
        ready = _readable([self._read_fd], seconds)
        if ready:
            with contextlib.suppress(BlockingIOError):
                while os.read(self._read_fd, 4096):
                    pass
        return ready

    def fileno(self) -> int:
        """Return the descriptor, for `poll`."""
        return self._read_fd

    def wake(self) -> None:
        with contextlib.suppress(OSError):
            os.write(self._write_fd, b"\0")

    def close(self) -> None:
        """Remove the pipe. A later `wake` must not write to a descriptor that the process has reused."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)
        descriptors = {self._read_fd, self._write_fd}
        self._read_fd = self._write_fd = CLOSED_FD
        for descriptor in descriptors - {CLOSED_FD}:
            os.close(descriptor)


class PipeNotifier:
    """Uses named pipes in a folder beside the database file."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def notify(self) -> None:
        """Write a byte into every pipe, and remove pipes without a reader."""
        with contextlib.suppress(OSError):
            for pipe in self._folder.iterdir():
                if not pipe.name.startswith(HIDDEN_PREFIX):
                    _wake_pipe(pipe)

    def listen(self) -> PipeListener:
        make_private_folder(self._folder)
        return PipeListener(self._folder / uuid.uuid4().hex)

    def close(self) -> None:
        """Do nothing."""


def _wake_pipe(path: Path) -> None:
    try:
        pipe = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ENXIO:  # its reader was killed; after other errors it may be alive
            with contextlib.suppress(OSError):
                path.unlink()
        return
    try:
        with contextlib.suppress(OSError):  # a full pipe wakes its reader, too
            os.write(pipe, b"\0")
    finally:
        os.close(pipe)


class MemoryNotifier:
    """Wakes the listeners of this process."""

    def __init__(self) -> None:
        self._listeners: list[PipeListener] = []

    def notify(self) -> None:
        for listener in self._listeners:
            listener.wake()

    def listen(self) -> PipeListener:
        listener = PipeListener()
        self._listeners.append(listener)
        return listener

    def close(self) -> None:
        self._listeners.clear()


class PostgresNotifier:
    """Sends NOTIFY with a rate limit: the first at once, all of the next 0.1 s as one."""

    CHANNEL = "holdfast"
    SPACING = 0.1

    def __init__(self, url: str, channel: str = CHANNEL, options: ConnectionOptions | None = None) -> None:
        options = options or ConnectionOptions()
        self._url = options.direct or url
        self._channel = channel
        self._connect_seconds = options.connect_seconds
        self._listens = bool(options.direct) or not options.pooled
        self._mutex = threading.Lock()
        self._connection: Any = None
        self._last_sent = -math.inf  # monotonic; its zero is the start of the machine, which may be just now
        self._timer: threading.Timer | None = None
        self._closed = False

    def notify(self) -> None:
        with self._mutex:
            if self._timer is not None or self._closed:
                return
            early = self._last_sent + self.SPACING - time.monotonic()
            if early > 0:
                self._timer = threading.Timer(early, self._notify_late)
                self._timer.daemon = True
                self._timer.start()
                return
            self._send()

    def listen(self) -> PostgresListener | PipeListener:
        """Create a listener. Behind a pooler, without the address of the server, only `wake` and the period wake it."""
        if not self._listens:
            log.warning("listen.disabled channel=%s", self._channel)
            return PipeListener()
        return PostgresListener(self._url, self._channel, self._connect_seconds)

    def close(self) -> None:
        """Send a delayed notification now, and close the connection."""
        with self._mutex:
            self._closed = True
            timer, self._timer = self._timer, None
            if timer is not None:
                timer.cancel()
                self._send()
            if self._connection is not None:
                self._connection.close()

    def _notify_late(self) -> None:
        with self._mutex:
            if self._timer is not None:
                self._timer = None
                self._send()

    def _send(self) -> None:
        self._last_sent = time.monotonic()
        reused = self._connection is not None
        try:
            if self._connection is None:
                self._connection = _connect(self._url, self._connect_seconds)
            self._connection.execute(f"NOTIFY {self._channel}")
        except Exception:  # noqa: BLE001 - a lost notification is harmless: the reconciler also runs periodically
            _close_quietly(self._connection)
            self._connection = None
            if reused:  # the server may have closed an idle connection
                self._send()


class PostgresListener:
    """Uses LISTEN, and a pipe for `wake`. A lost connection counts as a notification and is opened again."""

    def __init__(self, url: str, channel: str, connect_seconds: int) -> None:
        self._url = url
        self._channel = channel
        self._connect_seconds = connect_seconds
        self._pipe = PipeListener()
        self._connection: Any = None
        self._reconnect()

    def wait(self, seconds: float) -> bool:
        if self._connection is None:  # notifications may have been missed, so a new connection counts as one
            return self._reconnect() or self._pipe.wait(min(seconds, 1.0))
        try:
            ready = _readable([self._connection.fileno(), self._pipe.fileno()], seconds)
            for _ in self._connection.notifies(timeout=0):
                pass
        except Exception:  # noqa: BLE001 - whatever the error is, report a notification and reconnect
            _close_quietly(self._connection)
            self._connection = None
            return True
        return self._pipe.wait(0) or ready

    def wake(self) -> None:
        self._pipe.wake()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._pipe.close()

    def _reconnect(self) -> bool:
        try:
            self._connection = _connect(self._url, self._connect_seconds)
            self._connection.execute(f"LISTEN {self._channel}")
        except Exception:  # noqa: BLE001 - the server is unavailable; `wait` tries again
            _close_quietly(self._connection)
            self._connection = None
        return self._connection is not None


def _readable(descriptors: list[int], seconds: float) -> bool:
    """Wait until a descriptor is readable. `poll` accepts any descriptor number, unlike `select`."""
    waiting = select.poll()
    for descriptor in descriptors:
        waiting.register(descriptor, select.POLLIN)
    return bool(waiting.poll(seconds * 1000))


def _connect(url: str, seconds: int) -> Any:
    """Connect within so many seconds. Nothing is prepared, because a pooler may be in between."""
    import psycopg  # noqa: PLC0415 - an extra, needed only on PostgreSQL

    return psycopg.connect(
        url.replace("postgresql+psycopg://", "postgresql://", 1),
        autocommit=True,
        prepare_threshold=None,
        connect_timeout=seconds,
        fallback_application_name="holdfast",
    )


def _close_quietly(connection: Any) -> None:
    if connection is not None:
        with contextlib.suppress(Exception):
            connection.close()
