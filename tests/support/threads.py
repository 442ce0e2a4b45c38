"""A scheduler as a third party could write it: threads that take rings from a queue in memory."""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from holdfast.engine.schedulers.base import SchedulerSettings, Worker
    from holdfast.engine.slot import Ring


class ThreadScheduler:
    """Pushes rings to threads. Rings that are in its queue when it stops are lost."""

    needs_rings = True

    def __init__(self, settings: SchedulerSettings) -> None:
        self._workers = settings.workers
        self._room = settings.workers * settings.rings_per_worker
        self._rings: queue.SimpleQueue[Ring | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._crew: Worker | None = None

    def start(self, crew: Worker) -> None:
        self._crew = crew
        self._rings = queue.SimpleQueue()
        self._threads = [threading.Thread(target=self._answer, args=(crew,)) for _ in range(self._workers)]
        for thread in self._threads:
            thread.start()

    def room(self, kind: str, outstanding: Callable[[], int]) -> int:  # noqa: ARG002 - the same for every kind
        return self._room - outstanding()

    def carry(self, rings: Sequence[Ring]) -> None:
        for ring in rings:
            self._rings.put(ring)

    def stop(self) -> None:
        crew, self._crew = self._crew, None
        if crew is not None:
            crew.stop()
        for _ in self._threads:
            self._rings.put(None)
        for thread in self._threads:
            thread.join()
        self._threads = []

    def _answer(self, crew: Worker) -> None:
        while (ring := self._rings.get()) is not None:
            if self._crew is crew:
                crew.run(ring)


def publish(folder: Path) -> None:
    """Install this scheduler into a folder as a package would, with only its entry point."""
    package = folder / "thread_scheduler-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: thread-scheduler\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text(f"[holdfast.schedulers]\nthreads = {__name__}:ThreadScheduler\n")
