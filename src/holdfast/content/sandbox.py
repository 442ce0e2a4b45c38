"""Runs untrusted parsers in child processes that can be killed.

A child serves one request after the other. The sandbox kills it with its whole process group and replaces it when a
request takes too long, needs too much memory or crashes the child. A child starts in a private folder (see `scratch`),
the only folder its environment names. The folder is removed when the child is ready, so a file can leave nothing there.
Then the child applies the limits of `sandbox_child`. A reply is a short JSON head and a body of bounded length.

A broken child must not make good files look damaged. A child that reports itself broken (`reader_broken`) is replaced.
A reply that blames the file or the child (`DOUBTFUL_CODES`) counts only from a child that has read nothing before.
Otherwise a new child repeats the request.

A sandbox can be used from many threads; as many requests run at once as it has children. After a fork the new process
starts its own children. All children end with the process, however it ends.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from holdfast.content import errors
from holdfast.content.framing import OverlongFrame, receive, send
from holdfast.content.sandbox_child import MAX_WRITTEN_FILE_BYTES, READY
from holdfast.content.scratch import create_reader_folder
from holdfast.errors import Permanent, Transient, WorkError
from holdfast.process_usage import ProcessUsage, read_cpu_ms, read_peak_kb, reset_peak

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

START_SECONDS = 60.0  # far more than the imports take, even on a busy machine
HEAD_BYTES = 1 << 20
MAX_CALLS_PER_CHILD = 200  # then the child is replaced, because its libraries leak memory
MAX_RETAINED_BYTES = 256 << 20  # a child that keeps more after a reply is replaced
# Sent by users and the kernel; a file cannot cause them.
EXTERNAL_SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
OUT_OF_MEMORY = (b"memory allocation of", b"bad_alloc", b"MemoryError", b"allocate memory")
MEMORY_POLL_SECONDS = 0.05
BROKEN_CHILD_CODES = frozenset({"reader_broken"})  # the child reports itself broken
DOUBTFUL_CODES = BROKEN_CHILD_CODES | {"unreadable", "reader_failed", "reader_crashed", "file_unavailable"}
SUSPECT_MEMORY_SHARE = 0.5  # a child that used more of its limit when it died is assumed to have died of it
MEMORY_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
BOOT = (
    "import sys; channel, lifeline, target, prepare, *sys.path = sys.argv[1:];"
    "from holdfast.content.sandbox_child import serve; serve(int(channel), int(lifeline), target, prepare)"
)


class SandboxReply(NamedTuple):
    head: dict[str, Any]
    body: bytearray


class _CallLimits(NamedTuple):
    """The limits of one request: time, memory in bytes, and bytes of the reply."""

    seconds: float
    memory: int
    most: int


class Sandbox:
    """Up to `children` processes that serve requests by calling `target`, given as `module:function`.

    Each process first calls `prepare`, given in the same way, before its limits apply.
    """

    def __init__(self, target: str, *, prepare: str = "", children: int = 1) -> None:
        self._target = target
        self._prepare = prepare
        self._size = children
        self._closed = False
        self._idle: list[_Child] = []
        self._busy: set[_Child] = set()
        self._start_over()
        _sandboxes.add(self)

    def call(
        self,
        request: Mapping[str, Any],
        *,
        seconds: float,
        memory: int,
        most: int,
        spare: Path | None = None,
        report: Callable[[ProcessUsage], None] = lambda _: None,
    ) -> SandboxReply:
        """Serve one request; the body of the reply has at most `most` bytes.

        `seconds` does not include the wait for a free child. A new child starts in `spare` if the temporary folder is
        not suitable. `report` receives what each child used, also if it failed. Raises the error of the target, or
        `Permanent`: too_slow, too_much_memory, reader_crashed.
        """
        limits = _CallLimits(seconds, memory, most)
        with self._permits:
            child = self._take(spare)
            new = not child.used
            try:
                return self._call_child(child, request, limits, report)
            except WorkError as error:
                if new or error.code not in DOUBTFUL_CODES:
                    raise
            return self._call_child(self._start_child(spare), request, limits, report)

    def _call_child(
        self,
        child: _Child,
        request: Mapping[str, Any],
        limits: _CallLimits,
        report: Callable[[ProcessUsage], None],
    ) -> SandboxReply:
        """Call this child, and keep it for the next request if it is healthy."""
        distrusted = DOUBTFUL_CODES if child.used else BROKEN_CHILD_CODES
        healthy = False
        try:
            reply = child.call(request, limits)
            healthy = not child.needs_replacement
        except TargetRefused as refused:
            healthy = refused.error.code not in distrusted and not child.needs_replacement
            raise refused.error from None
        finally:
            report(child.usage)
            self._give_back(child, healthy=healthy)
        return reply

    def close(self) -> None:
        """Kill all children; waiting callers get `reader_unavailable`."""
        with self._mutex:
            self._closed = True
            idle, busy = self._idle, self._busy
            self._idle, self._busy = [], set()
            for child in busy:  # reaped by the thread that called it
                child.send_kill_signal()
        for child in idle:
            child.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _take(self, spare: Path | None) -> _Child:
        with self._mutex:
            if self._closed:
                raise errors.reader_unavailable()
            child = self._idle.pop() if self._idle else None
        if child is not None and child.alive and self._mark_busy(child):
            return child
        if child is not None:
            child.kill()
        return self._start_child(spare)

    def _start_child(self, spare: Path | None) -> _Child:
        child = _Child(self._target, self._prepare, spare)
        if not self._mark_busy(child):
            child.kill()
            raise errors.reader_unavailable()
        return child

    def _mark_busy(self, child: _Child) -> bool:
        """Count a child as busy; return False if the sandbox was closed meanwhile."""
        with self._mutex:
            if not self._closed:
                self._busy.add(child)
            return not self._closed

    def _give_back(self, child: _Child, *, healthy: bool) -> None:
        with self._mutex:
            self._busy.discard(child)
            keep = healthy and not self._closed
            if keep:
                self._idle.append(child)
        if not keep:
            child.kill()

    def _start_over(self) -> None:
        """Reset to no children and unlocked locks."""
        self._permits = threading.BoundedSemaphore(self._size)
        self._mutex = threading.Lock()
        self._idle, self._busy = [], set()

    def _after_fork(self) -> None:
        """Disown the children; they belong to the parent process."""
        for child in (*self._idle, *self._busy):
            child.disown()
        self._start_over()


class TargetRefused(Exception):
    """The target raised a `WorkError`; the child is healthy."""

    def __init__(self, error: Permanent | Transient) -> None:
        super().__init__(error.code)
        self.error = error


class _Child:
    """The parent's side of one child process. Used by one thread at a time."""

    def __init__(self, target: str, prepare: str, spare: Path | None) -> None:
        self._calls_answered = 0
        self._peak_memory = 0
        self.usage = ProcessUsage()  # of the last call
        try:
            with create_reader_folder(spare) as folder:
                self._launch(Path(folder), target, prepare)
        except OSError:
            raise errors.reader_unavailable() from None

    def _launch(self, folder: Path, target: str, prepare: str) -> None:
        self._stderr_file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - lives as long as the child
        self._channel, theirs = socket.socketpair()
        lifeline, self._lifeline = os.pipe()
        try:
            self._process = _start(folder, [target, prepare], theirs.fileno(), lifeline, self._stderr_file.fileno())
        except OSError:
            self._close()
            raise
        finally:
            theirs.close()
            os.close(lifeline)
        self._await_start()

    @property
    def used(self) -> bool:
        return self._calls_answered > 0

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    @property
    def needs_replacement(self) -> bool:
        return (
            self._calls_answered >= MAX_CALLS_PER_CHILD
            or _read_process_memory(self._process.pid).private > MAX_RETAINED_BYTES
        )

    def call(self, request: Mapping[str, Any], limits: _CallLimits) -> SandboxReply:
        seconds, memory, most = limits
        deadline = time.monotonic() + seconds
        self._peak_memory = 0
        try:
            self._channel.settimeout(seconds)
            with self._measuring():
                send(self._channel, json.dumps({**request, "seconds": seconds, "memory": memory}).encode())
                self._wait_for_reply(deadline)
                head = json.loads(receive(self._channel, HEAD_BYTES, deadline))
                body = receive(self._channel, most, deadline)
            reply = SandboxReply(dict(head), body)
        except TimeoutError:
            raise errors.too_slow(seconds) from None
        except (OSError, EOFError):
            raise self._explain_exit(seconds, memory) from None
        except (OverlongFrame, ValueError, TypeError):
            raise errors.reader_crashed() from None
        self._calls_answered += 1
        return _raise_if_refused(reply, memory)

    @contextmanager
    def _measuring(self) -> Iterator[None]:
        """Measure what the child uses inside the block. A child that has just died can still be read."""
        process = self._process.pid
        cpu_ms = read_cpu_ms(process)
        reset_peak(process)
        try:
            yield
        finally:
            self.usage = ProcessUsage(max(0.0, read_cpu_ms(process) - cpu_ms), read_peak_kb(process))

    def send_kill_signal(self) -> None:
        """Kill the whole process group, unless it was reaped: then its id may belong to another process."""
        if self._process.returncode is not None:
            return
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.kill()

    def kill(self) -> None:
        self.send_kill_signal()
        self._process.wait()
        self._close()

    def disown(self) -> None:
        """Forget a child of the process that this one was forked from."""
        self._process.returncode = 0
        self._close()

    def _await_start(self) -> None:
        try:
            started = receive(self._channel, len(READY), time.monotonic() + START_SECONDS) == READY
        except (OSError, EOFError, OverlongFrame):
            started = False
        if not started:
            self.kill()
            raise errors.reader_unavailable()

    def _wait_for_reply(self, deadline: float) -> None:
        """Wait until the reply begins, and record the peak memory of the child."""
        poller = select.poll()
        poller.register(self._channel, select.POLLIN)
        while not poller.poll(MEMORY_POLL_SECONDS * 1000):
            self._peak_memory = max(self._peak_memory, _read_process_memory(self._process.pid).writable)
            if time.monotonic() >= deadline:
                raise TimeoutError

    def _explain_exit(self, seconds: float, memory: int) -> Exception:
        """Return the error for a child that died.

        Native code without memory dies in many ways, so the observed memory counts too. The peak that the kernel
        reports is useless: it starts with the memory of the parent.
        """
        self.send_kill_signal()
        code = self._process.wait()
        if code == -signal.SIGXCPU:
            return errors.too_slow(seconds)
        if self._peak_memory > memory * SUSPECT_MEMORY_SHARE or any(
            word in self._read_stderr() for word in OUT_OF_MEMORY
        ):
            return errors.too_much_memory(memory)
        return errors.reader_unavailable() if -code in EXTERNAL_SIGNALS else errors.reader_crashed()

    def _read_stderr(self) -> bytes:
        self._stderr_file.seek(0)
        return self._stderr_file.read(MAX_WRITTEN_FILE_BYTES)

    def _close(self) -> None:
        self._channel.close()
        self._stderr_file.close()
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1


def _start(folder: Path, calls: list[str], channel: int, lifeline: int, notes: int) -> subprocess.Popen[bytes]:
    """Start a child with the import path of this process and an otherwise empty environment."""
    paths = [str(Path(entry).absolute()) for entry in sys.path if entry]
    return subprocess.Popen(  # noqa: S603 - our own interpreter and code
        [sys.executable, "-I", "-S", "-X", "utf8", "-c", BOOT, str(channel), str(lifeline), *calls, *paths],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=notes,
        pass_fds=(channel, lifeline),
        env={"HOME": str(folder), "TMPDIR": str(folder)},
        cwd=folder,
        start_new_session=True,
    )


def _raise_if_refused(reply: SandboxReply, memory: int) -> SandboxReply:
    code = reply.head.get("refused")
    if code is None:
        return reply
    if code == "too_much_memory":
        raise errors.too_much_memory(memory)
    error = Permanent if reply.head.get("lasting", True) else Transient
    params = {str(name): str(value) for name, value in reply.head.get("params", {}).items()}
    message = params.pop("message", "")  # only if the target has its own
    raise TargetRefused(error(str(code), message, params=params))


class ProcessMemory(NamedTuple):
    """Memory of a process, in bytes."""

    private: int
    writable: int  # counts against RLIMIT_DATA


def _read_process_memory(pid: int) -> ProcessMemory:
    """Return the memory of a process; zeros on systems without /proc."""
    try:
        fields = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()
        _, resident, shared, _, _, data, _ = (int(field) * MEMORY_PAGE_BYTES for field in fields)
    except (OSError, ValueError):
        return ProcessMemory(0, 0)
    return ProcessMemory(resident - shared, data)


_sandboxes: weakref.WeakSet[Sandbox] = weakref.WeakSet()


def _after_fork() -> None:
    for sandbox in list(_sandboxes):
        sandbox._after_fork()  # noqa: SLF001 - the hook belongs to the class


def _at_exit() -> None:
    for sandbox in list(_sandboxes):
        sandbox.close()


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)
