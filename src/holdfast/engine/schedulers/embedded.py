"""Worker processes on this machine that poll the database.

A worker that dies is started again after a second. Its slots are taken over at once, because its process is known to
have ended. Workers end when the process that started them ends.
"""

from __future__ import annotations

import atexit
import logging
import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from multiprocessing.context import SpawnProcess

    from holdfast.engine.schedulers.base import SchedulerSettings, Worker
    from holdfast.engine.slot import Ring

log = logging.getLogger("holdfast")

RESTART_SECONDS = 1.0
GRACE_SECONDS = 20.0


class EmbeddedScheduler:
    """Starts and monitors worker processes."""

    needs_rings = False

    def __init__(self, settings: SchedulerSettings) -> None:
        self._worker_count = settings.workers
        self._context = multiprocessing.get_context("spawn")
        self._processes: list[SpawnProcess] = []
        self._stop_event = threading.Event()
        self._monitor: threading.Thread | None = None
        self._worker: Worker | None = None

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._processes if process.pid is not None and process.is_alive()]

    def start(self, worker: Worker) -> None:
        """Start the workers, and restart those that end."""
        self._worker = worker
        self._stop_event.clear()
        # At exit Python waits for its child processes, which wait for this process to end.
        atexit.register(self.stop)
        self._processes = [self._spawn(worker) for _ in range(self._worker_count)]
        self._monitor = threading.Thread(target=self._restart_dead, args=(worker,), name="holdfast-keeper", daemon=True)
        self._monitor.start()

    def room(self, kind: str, outstanding: Callable[[], int]) -> int:  # noqa: ARG002 - needs no rings
        return 0

    def carry(self, rings: Sequence[Ring]) -> None:  # noqa: ARG002 - which rings does not matter
        if self._worker is not None:
            self._worker.wake()

    def stop(self) -> None:
        """Terminate the workers. Kill those that do not end in time."""
        atexit.unregister(self.stop)
        self._stop_event.set()
        if self._monitor is not None:
            self._monitor.join()
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.join(GRACE_SECONDS)
            if process.is_alive():
                process.kill()
                process.join()
        self._processes = []

    def _spawn(self, worker: Worker) -> SpawnProcess:
        process = self._context.Process(target=_run_worker, args=(worker,), name="holdfast-worker", daemon=False)
        process.start()
        return process

    def _restart_dead(self, worker: Worker) -> None:
        while not self._stop_event.wait(RESTART_SECONDS):
            for index, process in enumerate(self._processes):
                if not process.is_alive():
                    log.warning("worker.restarted pid=%s exit=%s", process.pid, process.exitcode)
                    process.join()
                    self._processes[index] = self._spawn(worker)


def _run_worker(worker: Worker) -> None:
    threading.Thread(target=_exit_with_parent, name="holdfast-parent", daemon=True).start()
    worker.work()


def _exit_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        multiprocessing.connection.wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(GRACE_SECONDS)  # no parent is left to kill a worker that hangs
        os.kill(os.getpid(), signal.SIGKILL)
