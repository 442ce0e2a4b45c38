"""Worker processes on this machine that claim from the database, side by side on one SQLite file.

A worker that dies is started again after a pause; what it held is taken over at once, because its process is
known to be dead. Workers end by themselves when the process that started them is gone.
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
    from collections.abc import Sequence
    from multiprocessing.context import SpawnProcess

    from holdfast.engine.schedulers.base import Worker
    from holdfast.engine.slot import Ring

log = logging.getLogger("holdfast")

RESTART_SECONDS = 1.0
GRACE_SECONDS = 20.0


class EmbeddedScheduler:
    """Starts and watches the processes; they find their work themselves."""

    def __init__(self, *, workers: int = 2, rings_per_worker: int = 2) -> None:  # noqa: ARG002 - needs no rings
        self._worker_count = workers
        self._context = multiprocessing.get_context("spawn")
        self._processes: list[SpawnProcess] = []
        self._stop_event = threading.Event()
        self._monitor: threading.Thread | None = None
        self._worker: Worker | None = None

    @property
    def pids(self) -> list[int]:
        """The processes that work now."""
        return [process.pid for process in self._processes if process.pid is not None and process.is_alive()]

    def start(self, crew: Worker) -> None:
        """Start the workers and keep their number."""
        self._worker = crew
        self._stop_event.clear()
        # An exit without `stop` would wait for the workers, who wait for this process to end.
        atexit.register(self.stop)
        self._processes = [self._spawn(crew) for _ in range(self._worker_count)]
        self._monitor = threading.Thread(target=self._restart_dead, args=(crew,), name="holdfast-keeper", daemon=True)
        self._monitor.start()

    def room(self, kind: str) -> None:
        """Need no rings: the workers look for themselves, in the store's order."""

    def carry(self, rings: Sequence[Ring]) -> None:  # noqa: ARG002 - which rings does not matter
        """Wake the workers."""
        if self._worker is not None:
            self._worker.wake()

    def stop(self) -> None:
        """Ask the workers to give back what they hold, and end those that do not."""
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

    def _spawn(self, crew: Worker) -> SpawnProcess:
        process = self._context.Process(target=_run_worker, args=(crew,), name="holdfast-worker", daemon=False)
        process.start()
        return process

    def _restart_dead(self, crew: Worker) -> None:
        while not self._stop_event.wait(RESTART_SECONDS):
            for index, process in enumerate(self._processes):
                if not process.is_alive():
                    log.warning("worker.restarted pid=%s exit=%s", process.pid, process.exitcode)
                    process.join()
                    self._processes[index] = self._spawn(crew)


def _run_worker(crew: Worker) -> None:
    threading.Thread(target=_exit_with_parent, name="holdfast-parent", daemon=True).start()
    crew.work()


def _exit_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        multiprocessing.connection.wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(GRACE_SECONDS)  # nobody else is left to end a worker that hangs
        os.kill(os.getpid(), signal.SIGKILL)
