"""Wake-ups between processes: a bell may be lost, never believed.

SQLite: each listener has a named pipe beside the database; to ring is to write a byte into all of them.
PostgreSQL: NOTIFY, at most ten a second from each process. In memory: an event.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import threading
import time
import uuid
from typing import TYPE_CHECKING, Any, Protocol

from holdfast.private_files import FILE_MODE, make_private_folder

if TYPE_CHECKING:
    from pathlib import Path

HIDDEN_PREFIX = "."
CLOSED_FD = -1


class Listener(Protocol):
    """One who waits."""

    def wait(self, seconds: float) -> bool:
        """Wait for a ring; return whether there was one."""
        ...

    def wake(self) -> None:
        """Wake this listener only; safe in a signal handler."""
        ...

    def close(self) -> None:
        """Listen no more."""
        ...


class Notifier(Protocol):
    """Rings everybody who listens on the same database."""

    def notify(self) -> None:
        """Wake all listeners; never fails and never waits."""
        ...

    def listen(self) -> Listener:
        """Start to listen; rings from now on are heard."""
        ...

    def close(self) -> None:
        """Ring no more."""
        ...


class PipeListener:
    """A named pipe, or an unnamed one that only `poke` can reach."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        if path is None:
            self._read_fd, self._write_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        else:
            # Made under a hidden name: a pipe that is seen before it is opened would be taken for a dead one.
            hidden = path.with_name(HIDDEN_PREFIX + path.name)
            os.mkfifo(hidden, FILE_MODE)
            # Opened for both ways, so that it never reads as ended when a writer closes.
            self._read_fd = self._write_fd = os.open(hidden, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
            hidden.rename(path)

    def wait(self, seconds: float) -> bool:
        """Wait for a ring and swallow all that came."""
        ready = _readable([self._read_fd], seconds)
        if ready:
            with contextlib.suppress(BlockingIOError):
                while os.read(self._read_fd, 4096):
                    pass
        return ready

    def fileno(self) -> int:
        """Let others wait for this pipe."""
        return self._read_fd

    def wake(self) -> None:
        """Wake this listener only."""
        with contextlib.suppress(OSError):
            os.write(self._write_fd, b"\0")

    def close(self) -> None:
        """Remove the pipe; a late `poke` reaches nobody, least of all the next owner of the descriptor."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)
        descriptors = {self._read_fd, self._write_fd}
        self._read_fd = self._write_fd = CLOSED_FD
        for descriptor in descriptors - {CLOSED_FD}:
            os.close(descriptor)


class PipeNotifier:
    """Pipes in a folder beside the database file."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def notify(self) -> None:
        """Write a byte into every pipe; one that nobody reads any more is removed."""
        with contextlib.suppress(OSError):
            for pipe in self._folder.iterdir():
                if not pipe.name.startswith(HIDDEN_PREFIX):
                    _wake_pipe(pipe)

    def listen(self) -> PipeListener:
        """Make a pipe of our own."""
        make_private_folder(self._folder)
        return PipeListener(self._folder / uuid.uuid4().hex)

    def close(self) -> None:
        """Nothing is kept open."""


def _wake_pipe(path: Path) -> None:
    try:
        pipe = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ENXIO:  # its reader was killed; any other error tells nothing about it
            with contextlib.suppress(OSError):
                path.unlink()
        return
    try:
        with contextlib.suppress(OSError):  # full: the reader has enough to wake up for
            os.write(pipe, b"\0")
    finally:
        os.close(pipe)


class MemoryNotifier:
    """Wakes the listeners of this process."""

    def __init__(self) -> None:
        self._listeners: list[PipeListener] = []

    def notify(self) -> None:
        """Wake all."""
        for listener in self._listeners:
            listener.wake()

    def listen(self) -> PipeListener:
        """Add a listener."""
        listener = PipeListener()
        self._listeners.append(listener)
        return listener

    def close(self) -> None:
        """Forget the listeners."""
        self._listeners.clear()


class PostgresNotifier:
    """NOTIFY, thinned out: the first ring goes at once, those of the next tenth of a second become one."""

    CHANNEL = "holdfast"
    SPACING = 0.1

    def __init__(self, url: str, channel: str = CHANNEL) -> None:
        self._url = url
        self._channel = channel
        self._mutex = threading.Lock()
        self._connection: Any = None
        self._last_sent = 0.0
        self._timer: threading.Timer | None = None
        self._closed = False

    def notify(self) -> None:
        """Notify now, or a little later together with others."""
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

    def listen(self) -> PostgresListener:
        """LISTEN on a connection of its own."""
        return PostgresListener(self._url, self._channel)

    def close(self) -> None:
        """Ring what is due and close the connection."""
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
        kept = self._connection is not None
        try:
            if self._connection is None:
                self._connection = _connect(self._url)
            self._connection.execute(f"NOTIFY {self._channel}")
        except Exception:  # noqa: BLE001 - a bell may be lost; the reconciler's period is the net
            _close_quietly(self._connection)
            self._connection = None
            if kept:  # the server closed a connection that was idle: a new one may do
                self._send()


class PostgresListener:
    """LISTEN, beside a pipe that `poke` can reach; a lost connection counts as a ring and is made anew."""

    def __init__(self, url: str, channel: str) -> None:
        self._url = url
        self._channel = channel
        self._pipe = PipeListener()
        self._connection: Any = None
        self._reconnect()

    def wait(self, seconds: float) -> bool:
        """Wait for a notification or a poke."""
        if self._connection is None:  # what was rung meanwhile was not heard, so a new connection is a ring
            return self._reconnect() or self._pipe.wait(min(seconds, 1.0))
        try:
            ready = _readable([self._connection.fileno(), self._pipe.fileno()], seconds)
            for _ in self._connection.notifies(timeout=0):
                pass
        except Exception:  # noqa: BLE001 - whatever it was, look for work and connect again
            _close_quietly(self._connection)
            self._connection = None
            return True
        return self._pipe.wait(0) or ready

    def wake(self) -> None:
        """Wake this listener only."""
        self._pipe.wake()

    def close(self) -> None:
        """Close the connection and the pipe."""
        if self._connection is not None:
            self._connection.close()
        self._pipe.close()

    def _reconnect(self) -> bool:
        try:
            self._connection = _connect(self._url)
            self._connection.execute(f"LISTEN {self._channel}")
        except Exception:  # noqa: BLE001 - the server is away; the caller waits and asks again
            _close_quietly(self._connection)
            self._connection = None
        return self._connection is not None


def _readable(descriptors: list[int], seconds: float) -> bool:
    """Wait until one of these can be read; unlike `select` this takes descriptors of any number."""
    waiting = select.poll()
    for descriptor in descriptors:
        waiting.register(descriptor, select.POLLIN)
    return bool(waiting.poll(seconds * 1000))


def _connect(url: str) -> Any:
    import psycopg  # noqa: PLC0415 - an extra, needed only on PostgreSQL

    return psycopg.connect(url.replace("postgresql+psycopg://", "postgresql://", 1), autocommit=True)


def _close_quietly(connection: Any) -> None:
    """Close a connection that failed, as far as it still can be."""
    if connection is not None:
        with contextlib.suppress(Exception):
            connection.close()
