"""Programs under test, which tests start, stop, continue and kill, and a function that waits with a timeout."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

from tests.support.servers import Child, log_tail
from tests.support.timeouts import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from tests.support.scripted_indexer import Fault

ROOT = Path(__file__).resolve().parents[2]
POLL_SECONDS = 0.01


def until(fact: Callable[[], object], what: str, seconds: float = PATIENCE_SECONDS) -> None:
    """Poll until the function returns something true, and fail after a timeout."""
    deadline = time.monotonic() + seconds
    while not fact():
        assert time.monotonic() < deadline, f"waited in vain: {what}"
        time.sleep(POLL_SECONDS)


def make_gate(folder: Path, point: str) -> None:
    """Create the named pipe at which a process waits for the test."""
    os.mkfifo(folder / point)


def open_gate(folder: Path, point: str) -> None:
    """Wait until a process waits at the gate, then let all waiting processes continue."""

    def opened() -> bool:
        try:
            os.close(os.open(folder / point, os.O_WRONLY | os.O_NONBLOCK))
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            return False
        return True

    until(opened, f"nobody came to the gate {point!r}")


class Running:
    """A Python program in its own process, which ends with the test. Its settings are passed in the environment."""

    def __init__(self, arguments: list[str], log: Path, settings: Mapping[str, object]) -> None:
        self.log = log
        environment = {f"HOLDFAST_{name.upper()}": str(value) for name, value in settings.items()}
        self._child = Child([sys.executable, *arguments], log=log, cwd=ROOT, env=os.environ | environment)

    @property
    def pid(self) -> int:
        return self._child.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._child.end(signal.SIGKILL)
        if error is not None:
            sys.stderr.write(f"--- {self.log.name}\n{log_tail(self.log)}\n")

    def send(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def ended(self) -> int:
        """Wait until the process ends, and return the exit status. It is negative for a signal."""
        try:
            return self._child._process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it did not end; its log:\n{log_tail(self.log)}") from None

    def stopped(self) -> None:
        """Wait until the process has stopped itself."""

        def is_stopped() -> bool:
            assert self._child.alive, f"it ended instead; its log:\n{log_tail(self.log)}"
            return process_state(self.pid) == "T"

        until(is_stopped, "it did not stop itself")

    def finish(self) -> int:
        """Stop the process with SIGTERM and return its exit status."""
        self.send(signal.SIGTERM)
        return self.ended()


class Program(Running):
    """`python -m tests.support.worker` with a mode, a folder and the faults to inject."""

    def __init__(self, mode: str, folder: Path, *, faults: tuple[Fault, ...] = (), **settings: object) -> None:
        shown = json.dumps([dataclasses.asdict(fault) for fault in faults])
        log = folder / f"{mode}-{time.monotonic_ns()}.log"
        super().__init__(["-m", "tests.support.worker", mode, str(folder), shown], log, settings)


def process_state(pid: int) -> str:
    """Return the state letter of a process, or an empty string if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""
