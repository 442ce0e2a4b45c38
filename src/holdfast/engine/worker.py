"""Workers: answer rings in the process of a scheduler, or poll for slots in a process of their own."""

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
from holdfast.tracing import NO_TRACER

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from holdfast.clock import Clock
    from holdfast.db.notify import Listener, Notifier
    from holdfast.engine.rules import Rules
    from holdfast.engine.slot import Ring
    from holdfast.engine.store.base import Store
    from holdfast.engine.task import Indexer
    from holdfast.tracing import Tracer


CLAIM_SPACING = timedelta(milliseconds=10)  # the minimum time between two claims, so that a worker claims batches
RECONCILE_SPACING = timedelta(milliseconds=500)  # the minimum time between two passes of a worker's own reconciler


@dataclass(frozen=True, kw_only=True)
class WorkerParts:
    """The parts that the workers of one process share."""

    store: Store
    notifier: Notifier
    indexers: Mapping[str, Indexer]
    clock: Clock
    rules: Rules
    period: timedelta
    retention: timedelta
    claim_batch: int
    kinds: tuple[str, ...] = ()  # of the slots to claim; empty: all
    sweep: Callable[[int], int] | None = None  # deletes at most so many rows that are garbage; returns how many
    failpoint: Callable[[str], None] = no_failpoint
    tracer: Tracer = NO_TRACER


class LocalWorker:
    """Works in this process. It creates its parts on first use.

    Pickling keeps only the function that makes the parts, so each process opens its own database.
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
        with self._mutex:
            if self._parts is None:
                self._parts = self._make()
            return self._parts

    def run(self, ring: Ring) -> None:
        """Answer one ring with the next slots of its kind. After `stop` it does nothing; the reconciler rings again."""
        parts = self.parts
        with self._mutex:
            if self._stopped:
                return
            if self._executor is None:
                self._executor = _make_executor(parts)
                self._executor.heartbeat.start()
                _relax_garbage_collection()
        self._executor.answer(ring, parts.kinds, parts.claim_batch)
        parts.notifier.notify()  # wake the reconciler, which can send another ring now

    def wake(self) -> None:
        """Wake all workers that are in `work`, in any process."""
        self.parts.notifier.notify()

    def work(self) -> None:
        """Poll for slots until SIGTERM or SIGINT, then release everything."""
        worker = PollingWorker(self.parts)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: worker.stop())
        _relax_garbage_collection()
        worker.run()

    def stop(self) -> None:
        """Let all calls of `run` release their slots at the next checkpoint. Does not wait."""
        with self._mutex:
            self._stopped = True
            if self._executor is not None:
                self._executor.stop()

    def close(self) -> None:
        """Close the database. No call of `run` may be active."""
        self.stop()
        if self._executor is not None:
            self._executor.heartbeat.stop()
        if self._parts is not None:
            self._parts.notifier.close()
            self._parts.store.close()
            self._parts.tracer.close()


class PollingWorker:
    """One worker with its own reconciler, so that a single process is enough for all work."""

    def __init__(self, parts: WorkerParts) -> None:
        self._parts = parts
        self._executor = executor = _make_executor(parts)
        self._work_listener, self._reconcile_listener = parts.notifier.listen(), parts.notifier.listen()
        self._worker_loop = Loop(
            "worker",
            lambda: _claim_and_run(executor, parts.claim_batch, parts.kinds),
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
        """Poll for slots until `stop`, then release everything and close the parts."""
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
        self._parts.tracer.close()

    def stop(self) -> None:
        """Stop at the next checkpoint. Safe in a signal handler."""
        self._executor.stop()
        self._worker_loop.stop()
        self._reconciler_loop.stop()


class _WakingScheduler:
    """The ring carrier of a worker's own reconciler: it wakes only that worker.

    The notifier would wake all reconcilers, including this one, and they would run without a pause while work is
    queued.
    """

    needs_rings = False

    def __init__(self, worker: Listener) -> None:
        self._listener = worker

    def room(self, kind: str, outstanding: Callable[[], int]) -> int:  # noqa: ARG002 - needs no rings
        return 0

    def carry(self, rings: Sequence[Ring]) -> None:  # noqa: ARG002 - which rings does not matter
        self._listener.wake()


def _make_executor(parts: WorkerParts) -> Executor:
    return Executor(
        parts.store,
        parts.indexers,
        holder=make_holder_name(),
        clock=parts.clock,
        rules=parts.rules,
        reach=parts.failpoint,
        tracer=parts.tracer,
    )


def _relax_garbage_collection() -> None:
    """Run the garbage collector less often: rows are tuples, which form no cycles."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


def _claim_and_run(executor: Executor, limit: int, kinds: Sequence[str]) -> timedelta | None:
    """Work on a batch. A full batch is followed at once by another one, a smaller one after a short wait."""
    done = executor.run_next(limit, kinds)
    if done:
        return timedelta() if done >= limit else CLAIM_SPACING
    return None
