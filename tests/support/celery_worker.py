"""Real Celery workers for tests: start them, kill them completely or in part, stop and continue them.

Celery decides what happens to the messages of a dead worker, and tests should not imitate that. So the tests run the
real program: `celery worker` with a pool of processes, on a Valkey server that the test has started. The module that
a worker serves creates its app with `celery_app`, so that all tests use the same settings.
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
GONE = ("", "Z")  # process states: no such process, or a zombie


def celery_app(name: str, broker_url: str, *, visibility_timeout: float = 3600, fast: bool = True) -> Any:
    """Create an app with safe settings: tasks are acknowledged late, and requeued when their pool process dies.

    The broker delivers an unacknowledged message again after the visibility timeout. Celery looks for such messages
    every hundred seconds, or every second if `fast` is set.
    """
    # A worker that is killed during this search keeps its mutex for five minutes by default; here for five seconds.
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
    """`celery -A module worker` in its own processes, which run inside `with`.

    The folder contains the log. All waits have a timeout, and errors show the end of the log.
    """

    def __init__(
        self,
        module: str,
        folder: Path,
        *,
        concurrency: int = 1,
        pool: str = "prefork",
        queues: Iterable[str] = ("celery",),
        options: Iterable[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = f"celery-{time.monotonic_ns()}"
        self.log_file = folder / f"{self.name}.log"
        self.pid = 0
        self._environment = dict(environment or {})
        self._child: Child | None = None
        names = ["--hostname", f"{self.name}@%h", "--loglevel=INFO"]
        serving = [f"--concurrency={concurrency}", f"--pool={pool}", f"--queues={','.join(queues)}"]
        self._command = [sys.executable, "-m", "celery", "-A", module, "worker", *names, *serving, *options, *QUIET]

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
        """Return the process, followed by its living children. All of them share a process group."""
        everybody = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal())
        mine = [pid for pid in everybody if _group(pid) == self.pid and process_state(pid) not in GONE]
        return sorted(mine, key=lambda pid: (pid != self.pid, pid))

    def children(self) -> list[int]:
        """Return the pool processes, which run the tasks."""
        return [pid for pid in self.pids() if pid != self.pid]

    def kill(self) -> None:
        """Kill the process and all its children with SIGKILL, as if the machine failed."""
        if self._child is not None and self._child.alive:
            os.killpg(self.pid, signal.SIGKILL)
        self._end(signal.SIGKILL)

    def kill_child(self, pid: int | None = None) -> int:
        """Kill one pool process, by default the oldest, and return its id once it has ended."""
        pid = self.children()[0] if pid is None else pid
        os.kill(pid, signal.SIGKILL)
        until(lambda: process_state(pid) in GONE, f"{pid} does not die")
        return pid

    def stop(self, pid: int | None = None) -> None:
        """Stop the process or one of its children with SIGSTOP. The others continue."""
        pid = pid or self.pid
        os.kill(pid, signal.SIGSTOP)
        until(lambda: process_state(pid) == "T", f"{pid} does not stop")

    def go_on(self, pid: int | None = None) -> None:
        """Continue a stopped process."""
        os.kill(pid or self.pid, signal.SIGCONT)

    def terminate(self) -> None:
        """Send SIGTERM and wait. The worker accepts no new task and finishes the running ones."""
        status = self._end(signal.SIGTERM)
        self._demand(status in (None, 0), f"did not end in good order: {status}")

    def log(self) -> str:
        return self.log_file.read_text(errors="replace")

    def _ready(self) -> bool:
        return any(
            f"{self.name}@" in line and line.rstrip('"}').endswith(" ready.") for line in self.log().splitlines()
        )

    def _end(self, how: signal.Signals) -> int | None:
        """End the worker and return its exit status, or None if it had ended before."""
        if self._child is None:
            return None
        child, self._child = self._child, None
        self._demand(child.end(how), "left processes behind")
        until(lambda: not self.pids(), "its last process is not gone")  # a process can exist after it closed its files
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
