"""Those who work: the same crew answers rings in a scheduler's process or looks for work in a process of its own."""

from __future__ import annotations

import gc
import signal
import threading
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from holdfast.engine.executor import Executor, no_failpoint
from holdfast.engine.liveness import make_holder_name
from holdfast.engine.loop import Loop
from holdfast.engine.reconciler import Reconciler

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from holdfast.clock import Clock
    from holdfast.db.notify import Listener, Notifier
    from holdfast.engine.rules import Rules
    from holdfast.engine.slot import Ring
    from holdfast.engine.store.base import Store
    from holdfast.engine.task import Indexer


CLAIM_SPACING = timedelta(milliseconds=10)  # a worker that keeps up claims at most this often, and so in batches
RECONCILE_SPACING = timedelta(milliseconds=500)  # a worker's own reconciler looks at most this often


@dataclass(frozen=True, kw_only=True)
class WorkerParts:
    """What one process works with."""

    store: Store
    notifier: Notifier
    indexers: Mapping[str, Indexer]
    clock: Clock
    rules: Rules
    period: timedelta
    retention: timedelta
    claim_batch: int
    sweep: Callable[[int], int] | None = None  # deletes at most so many rows that are garbage; returns how many
    failpoint: Callable[[str], None] = no_failpoint


class LocalWorker:
    """Works in this process, with parts that are made where they are needed.

    Only the maker of the parts is pickled; each process opens its own database.
    """

    def __init__(self, make: Callable[[], WorkerParts]) -> None:
        self._make = make
        self._mutex = threading.Lock()
        self._parts: WorkerParts | None = None
        self._executor: Executor | None = None
        self._stopped = False

    def __getstate__(self) -> dict[str, Any]:
        return {"make": self._make}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["make"])  # type: ignore[misc]

    @property
    def parts(self) -> WorkerParts:
        """The parts of this process, made once."""
        with self._mutex:
            if self._parts is None:
                self._parts = self._make()
            return self._parts

    def run(self, ring: Ring) -> None:
        """Answer one ring; after `stop` it goes unanswered, and is rung again for others."""
        parts = self.parts
        with self._mutex:
            if self._stopped:
                return
            if self._executor is None:
                self._executor = _make_executor(parts)
                self._executor.heartbeat.start()
        self._executor.run(ring)
        parts.notifier.notify()  # there is room for another ring: without this the reconciler would wait for its period

    def wake(self) -> None:
        """Wake everybody who is in `work`, in any process."""
        self.parts.notifier.notify()

    def work(self) -> None:
        """Look for work until SIGTERM or SIGINT; then give everything back."""
        shift = PollingWorker(self.parts)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: shift.stop())
        _relax_garbage_collection()
        shift.run()

    def stop(self) -> None:
        """Let everybody who is in `run` give back what they hold, at their next checkpoint."""
        with self._mutex:
            self._stopped = True
            if self._executor is not None:
                self._executor.stop()

    def close(self) -> None:
        """Close the database, when nobody is in `run` any more."""
        self.stop()
        if self._executor is not None:
            self._executor.heartbeat.stop()
        if self._parts is not None:
            self._parts.notifier.close()
            self._parts.store.close()


class PollingWorker:
    """One worker with a reconciler beside it: whoever is alive keeps the whole alive."""

    def __init__(self, parts: WorkerParts) -> None:
        self._parts = parts
        self._executor = executor = _make_executor(parts)
        self._work_listener, self._reconcile_listener = parts.notifier.listen(), parts.notifier.listen()
        self._worker_loop = Loop(
            "worker",
            lambda: _claim_and_run(executor, parts.claim_batch),
            self._work_listener,
            parts.period,
            spacing=CLAIM_SPACING,
        )
        reconciler = Reconciler(
            parts.store,
            _WakingScheduler(self._work_listener),
            tuple(parts.indexers),
            parts.rules,
            clock=parts.clock,
            retention=parts.retention,
            sweep=parts.sweep,
        )
        self._reconciler_loop = Loop(
            "reconciler", reconciler.reconcile, self._reconcile_listener, parts.period, spacing=RECONCILE_SPACING
        )

    def run(self) -> None:
        """Look for work until `stop`; then give everything back and close the parts."""
        self._executor.heartbeat.start()
        thread = self._reconciler_loop.start()
        self._worker_loop.run()
        self._reconciler_loop.stop()
        thread.join()
        self._executor.heartbeat.stop()
        self._work_listener.close()
        self._reconcile_listener.close()
        self._parts.notifier.close()
        self._parts.store.close()

    def stop(self) -> None:
        """End at the next checkpoint; safe to call from a signal handler."""
        self._executor.stop()
        self._worker_loop.stop()
        self._reconciler_loop.stop()


class _WakingScheduler:
    """The scheduler that a worker's own reconciler sees: it wakes the worker beside it.

    The bell would wake all reconcilers too, this one included, and while work is queued they would never rest.
    """

    def __init__(self, worker: Listener) -> None:
        self._listener = worker

    def room(self, kind: str) -> None:
        """Need no rings."""

    def carry(self, rings: Sequence[Ring]) -> None:  # noqa: ARG002 - which rings does not matter
        """Wake the worker."""
        self._listener.wake()


def _make_executor(parts: WorkerParts) -> Executor:
    return Executor(
        parts.store,
        parts.indexers,
        holder=make_holder_name(),
        clock=parts.clock,
        rules=parts.rules,
        reach=parts.failpoint,
    )


def _relax_garbage_collection() -> None:
    """Spare a worker the search for garbage that is not there: rows become tuples, and tuples make no circles."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


def _claim_and_run(executor: Executor, limit: int) -> timedelta | None:
    """Work on a batch; a full one is followed at once, a small one after a moment in which more can gather."""
    done = executor.run_next(limit)
    if done:
        return timedelta() if done >= limit else CLAIM_SPACING
    return None
