"""Runs a reconciler for a scheduler that delivers rings: in its own process, or inside the server."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from holdfast.db.notify import PipeListener
from holdfast.engine.loop import Loop

if TYPE_CHECKING:
    import threading

    from holdfast.db.notify import Notifier
    from holdfast.engine.reconciler import Reconciler

RING_SPACING = timedelta(milliseconds=50)  # the minimum time between two searches for queued slots
RING_PERIOD = timedelta(seconds=5)  # the maximum, in case a wake-up was lost or the broker was down
PASS_SPACING = timedelta(seconds=1)  # the minimum time between two whole passes
PASS_DELAY = timedelta(milliseconds=100)  # after a wake-up, so that rings for new work go first


class ReconcilerLoops:
    """Two threads: one rings new work at once, the other runs whole passes. Any number of processes may run them."""

    def __init__(self, reconciler: Reconciler, notifier: Notifier, period: timedelta) -> None:
        rings, passes = notifier.listen(), PipeListener()
        ring_period = min(period, RING_PERIOD)
        self._listeners = [rings, passes]
        self._loops = [
            Loop("rings", reconciler.ring_queued, rings, ring_period, spacing=RING_SPACING, next_listener=passes),
            Loop("reconciler", reconciler.reconcile, passes, period, spacing=PASS_SPACING, delay=PASS_DELAY),
        ]
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        self._threads = [loop.start() for loop in self._loops]

    def stop(self) -> None:
        """Stop after the current steps, and wait for that."""
        for loop in self._loops:
            loop.stop()
        for thread in self._threads:
            thread.join()
        for listener in self._listeners:
            listener.close()
