"""Runs every ring at once, in the caller's own thread: for tests and scripts."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.engine.schedulers.base import Worker
    from holdfast.engine.slot import Ring


class InlineScheduler:
    """Carrying is working: `carry` returns when the work is done."""

    def __init__(self, *, workers: int = 1, rings_per_worker: int = 2) -> None:
        self._room = workers * rings_per_worker
        self._worker: Worker | None = None
        self._run_lock = threading.RLock()  # whoever stops from within the work does not wait for it

    def start(self, crew: Worker) -> None:
        """Remember the crew."""
        self._worker = crew

    def room(self, kind: str) -> int:  # noqa: ARG002 - the same for every kind
        """Take a few at a time, so that what became more urgent meanwhile goes first."""
        return self._room

    def carry(self, rings: Sequence[Ring]) -> None:
        """Do the work, one carrier at a time."""
        with self._run_lock:
            for ring in rings:
                crew = self._worker
                if crew is not None:
                    crew.run(ring)

    def stop(self) -> None:
        """Work no more, and wait for what is at work to be given back."""
        crew, self._worker = self._worker, None
        if crew is not None:
            crew.stop()
        with self._run_lock:
            pass
