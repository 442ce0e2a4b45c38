"""Real Celery workers for tests: started, killed whole or in part, stopped and continued.

What a broker does with the message of a dead worker is Celery's to decide and not ours to imitate, so these are the
programs that people run: `celery worker` with its pool of processes, on a Valkey that the test has started.
The module that a worker serves makes its app with `celery_app`, so that all tests mean the same settings.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from celery import Celery

from tests.support.processes import ROOT, process_state, until
from tests.support.servers import Child, ServerError, log_tail

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from types import TracebackType

QUIET = ["--without-gossip", "--without-mingle", "--without-heartbeat"]
GONE = ("", "Z")  # states of a process: no such process, or only its number is left


def celery_app(name: str, broker_url: str, *, visibility_timeout: float = 3600, fast: bool = True) -> Any:
    """Make an app with the settings of a careful team: a task is acknowledged late and given back when its child dies.

    A message that stays unacknowledged is given out again after the visibility timeout. Celery looks for such messages
    every hundred seconds, and every second if `fast`.
    """
    # A worker killed while it looks would keep all others from looking for five minutes; five seconds are enough here.
    looking = {"unacked_restore_interval": 1, "unacked_restore_throttle": 1, "unacked_mutex_expire": 5}
    app = Celery(name, broker=broker_url, set_as_current=False)
    app.conf.update(
        broker_connection_retry_on_startup=True,
        broker_transport_options={"visibility_timeout": visibility_timeout} | (looking if fast else {}),
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        task_ignore_result=True,
        task_serializer="json",
        accept_content=["json"],
        worker_prefetch_multiplier=1,
        worker_cancel_long_running_tasks_on_connection_loss=False,
    )
    return app


class CeleryWorker:
    """`celery -A module worker` in processes of its own, ready inside `with` and gone after it.

    The log lies in the folder. Waits are bounded, and what fails shows the end of the log.
    """

    def __init__(
        self,
        module: str,
        folder: Path,
        *,
        concurrency: int = 1,
        pool: str = "prefork",
        queues: Iterable[str] = ("celery",),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = f"celery-{time.monotonic_ns()}"
        self.log_file = folder / f"{self.name}.log"
        self.pid = 0
        self._environment = dict(environment or {})
        self._child: Child | None = None
        names = ["--hostname", f"{self.name}@%h", "--loglevel=INFO"]
        serving = [f"--concurrency={concurrency}", f"--pool={pool}", f"--queues={','.join(queues)}"]
        self._command = [sys.executable, "-m", "celery", "-A", module, "worker", *names, *serving, *QUIET]

    def __enter__(self) -> Self:
        child = self._child = Child(self._command, log=self.log_file, cwd=ROOT, env=os.environ | self._environment)
        self.pid = child.pid
        try:
            until(lambda: self._ready() or not child.alive, "it is not ready")
            self._demand(child.alive, "ended at once")
        except BaseException as error:
            self.kill()
            if isinstance(error, AssertionError):
                raise self._failure("was not ready in time") from None
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        if error is not None:
            sys.stderr.write(f"--- {self.log_file.name}\n{log_tail(self.log_file)}\n")

    def pids(self) -> list[int]:
        """Return the process and, after it, its living children; all share a process group."""
        everybody = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal())
        mine = [pid for pid in everybody if _group(pid) == self.pid and process_state(pid) not in GONE]
        return sorted(mine, key=lambda pid: (pid != self.pid, pid))

    def children(self) -> list[int]:
        """Return the processes of the pool, in which tasks run."""
        return [pid for pid in self.pids() if pid != self.pid]

    def kill(self) -> None:
        """Kill the process and all its children without warning, as when the machine is lost."""
        if self._child is not None and self._child.alive:
            os.killpg(self.pid, signal.SIGKILL)
        self._end(signal.SIGKILL)

    def kill_child(self, pid: int | None = None) -> int:
        """Kill one process of the pool, the oldest unless named, and return its number once it is gone."""
        pid = self.children()[0] if pid is None else pid
        os.kill(pid, signal.SIGKILL)
        until(lambda: process_state(pid) in GONE, f"{pid} does not die")
        return pid

    def stop(self, pid: int | None = None) -> None:
        """Stop the process, or one of its children; the others go on."""
        pid = pid or self.pid
        os.kill(pid, signal.SIGSTOP)
        until(lambda: process_state(pid) == "T", f"{pid} does not stop")

    def go_on(self, pid: int | None = None) -> None:
        """Continue what was stopped."""
        os.kill(pid or self.pid, signal.SIGCONT)

    def terminate(self) -> None:
        """Ask it to end, and wait; it takes no new task and finishes those that run."""
        status = self._end(signal.SIGTERM)
        self._demand(status in (None, 0), f"did not end in good order: {status}")

    def log(self) -> str:
        """Return what it has told so far."""
        return self.log_file.read_text(errors="replace")

    def _ready(self) -> bool:
        return any(f"{self.name}@" in line and line.endswith(" ready.") for line in self.log().splitlines())

    def _end(self, how: signal.Signals) -> int | None:
        """Return the exit status, or None when it had ended before."""
        if self._child is None:
            return None
        child, self._child = self._child, None
        self._demand(child.end(how), "left processes behind")
        until(lambda: not self.pids(), "its last process is not gone")  # it may have closed its files, and still exist
        return child._process.returncode

    def _demand(self, fact: bool, otherwise: str) -> None:
        if not fact:
            raise self._failure(otherwise)

    def _failure(self, what: str) -> ServerError:
        return ServerError(f"the Celery worker {what}; the end of its log:\n{log_tail(self.log_file)}")


def _group(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return 0
