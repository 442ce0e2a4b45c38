"""The processes of the product: started, killed, stopped and continued while clients use them."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
import time
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import TYPE_CHECKING

import httpx2

from tests.support.processes import ROOT, process_state
from tests.support.servers import HOST, Child, free_port, log_tail

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

START_SECONDS = 120.0
STOP_SECONDS = 30.0
RESTART_SECONDS = 0.5
POLL_SECONDS = 0.05


class Role:
    """One process of the product with its children. It answers health checks on its port.

    A fault holds `lock` while it changes the process.
    """

    def __init__(
        self, name: str, arguments: Sequence[str], environment: Mapping[str, str], folder: Path, *, port: int = 0
    ) -> None:
        self.name = name
        self.port = port or free_port()
        self.lock = threading.Lock()
        self.log = folder / f"{name}.log"
        self._command = [sys.executable, *(word.replace("{port}", str(self.port)) for word in arguments)]
        clean = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
        health = {} if "--port" in arguments else {"HOLDFAST_HEALTH_PORT": str(self.port)}
        self._environment = clean | dict(environment) | health
        self._child: Child | None = None

    @property
    def kind(self) -> str:
        return self.name.partition("-")[0]

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.port}"

    @property
    def pid(self) -> int:
        assert self._child is not None, f"{self.name} does not run"
        return self._child.pid

    @property
    def alive(self) -> bool:
        return self._child is not None and self._child.alive

    def start(self) -> None:
        """Start the process. It takes a moment until it is ready."""
        self._await_port()
        self._child = Child(self._command, log=self.log, cwd=ROOT, env=self._environment)

    def await_ready(self) -> None:
        """Wait until the process is ready. If it ends, for example without a database, start it again.

        That is what a service manager does.
        """
        deadline = time.monotonic() + START_SECONDS
        while not self.ready:
            if not self.alive:
                self.kill()
                time.sleep(RESTART_SECONDS)
                self.start()
            assert time.monotonic() < deadline, f"{self.name} is not ready; its log:\n{log_tail(self.log)}"
            time.sleep(POLL_SECONDS)

    @property
    def ready(self) -> bool:
        with contextlib.suppress(httpx2.TransportError):
            return httpx2.get(f"{self.address}/readyz", timeout=2, trust_env=False).status_code == 200
        return False

    def clock_error(self) -> float:
        """Return how far its clock is from the true time, in seconds; 0 if it does not answer."""
        with contextlib.suppress(httpx2.TransportError):
            answer = httpx2.get(f"{self.address}/healthz", timeout=2, trust_env=False)
            return parsedate_to_datetime(answer.headers["date"]).timestamp() - time.time()
        return 0.0

    def kill(self) -> None:
        """Kill the process alone with SIGKILL. Its children notice that it is gone."""
        child, self._child = self._child, None
        if child is not None:
            child.end(signal.SIGKILL)

    def kill_all(self) -> None:
        """Kill the process and its children with SIGKILL, as if the machine failed."""
        for pid in self.children():
            send(pid, signal.SIGKILL)
        self.kill()

    def terminate(self) -> int | None:
        """Stop the process with SIGTERM; return its exit status, or None if it did not end in time."""
        child, self._child = self._child, None
        if child is None:
            return None
        child._process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + STOP_SECONDS
        while child.alive and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        status = child._process.poll()
        child.end(signal.SIGKILL)
        return status

    def revive(self) -> None:
        """Start the process again if it has ended, and wait until it is ready."""
        with self.lock:
            self.await_ready()

    def children(self) -> list[int]:
        """Return the processes that this one started and that still run, oldest first."""
        return [] if self._child is None else children_of(self._child.pid)

    def workers(self) -> list[int]:
        """Return its children that do work: not those that read files or keep track of resources."""
        return [pid for pid in self.children() if "resource_tracker" not in command_line(pid)]

    def _await_port(self) -> None:
        """Wait until the port is free: the children of a killed process may hold it for a moment."""
        deadline = time.monotonic() + STOP_SECONDS
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((HOST, self.port))
                return
            time.sleep(POLL_SECONDS)


def children_of(parent: int) -> list[int]:
    """Return the living children of a process that execute the product, oldest first."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        with contextlib.suppress(OSError, ValueError):
            state, its_parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
            if int(its_parent) == parent and state != "Z":
                found.append(int(entry.name))
    return sorted(found)


def command_line(pid: int) -> str:
    with contextlib.suppress(OSError):
        return (Path("/proc") / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""


def send(pid: int, number: signal.Signals) -> bool:
    """Send a signal; return whether the process existed."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def ended(pid: int, seconds: float = 5.0) -> bool:
    """Wait until a process is gone; return whether it is."""
    deadline = time.monotonic() + seconds
    while process_state(pid) not in ("", "Z"):
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True
