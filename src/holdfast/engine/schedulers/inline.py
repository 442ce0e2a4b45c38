"""Runs every ring in the thread of the caller, for tests and scripts."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.engine.schedulers.base import SchedulerSettings, Worker
    from holdfast.engine.slot import Ring


class InlineScheduler:
    """`carry` returns when the work is done."""

    needs_rings = True

    def __init__(self, settings: SchedulerSettings) -> None:
        self._room = settings.workers * settings.rings_per_worker
        self._worker: Worker | None = None
        self._run_lock = threading.RLock()  # reentrant: work that calls `stop` must not wait for itself

    def start(self, worker: Worker) -> None:
        self._worker = worker

    def room(self, kind: str, outstanding: Callable[[], int]) -> int:  # noqa: ARG002 - the same for every kind
        """Accept a few rings at a time, so that slots with a higher priority can go first."""
        return self._room - outstanding()

    def carry(self, rings: Sequence[Ring]) -> None:
        """Do the work, one caller at a time."""
        with self._run_lock:
            for ring in rings:
                worker = self._worker
                if worker is not None:
                    worker.run(ring)

    def stop(self) -> None:
        """Stop, and wait until running work has ended."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.stop()
        with self._run_lock:
            pass
