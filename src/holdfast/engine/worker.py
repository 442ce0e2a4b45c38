"""Those who work: the same crew answers rings in a scheduler's process or looks for work in a process of its own."""

from __future__ import annotations

import gc
import signal
import threading
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from holdfast.engine.executor import Executor, nowhere
from holdfast.engine.liveness import holder_name
from holdfast.engine.loop import Loop
from holdfast.engine.reconciler import Reconciler

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from holdfast.clock import Clock
    from holdfast.db.notify import Bell, Listener
    from holdfast.engine.rules import Rules
    from holdfast.engine.slot import Ring
    from holdfast.engine.store.base import Store
    from holdfast.engine.task import Indexer


GATHERING = timedelta(milliseconds=10)  # a worker that keeps up claims at most this often, and so in batches
CALM = timedelta(milliseconds=500)  # a worker's own reconciler looks at most this often


def no_sweep(limit: int) -> int:  # noqa: ARG001 - there is nothing, however little is asked
    """Remove nothing, where the work leaves nothing behind."""
    return 0


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What one process works with."""

    store: Store
    bell: Bell
    indexers: Mapping[str, Indexer]
    clock: Clock
    rules: Rules
    period: timedelta
    retention: timedelta
    claim_batch: int
    sweep: Callable[[int], int] = no_sweep  # removes rows that nobody needs, at most so many; returns how many
    reach: Callable[[str], None] = nowhere


class LocalCrew:
    """Works in this process, with parts that are made where they are needed.

    Only the maker of the parts is pickled; each process opens its own database.
    """

    def __init__(self, make: Callable[[], Parts]) -> None:
        self._make = make
        self._mutex = threading.Lock()
        self._parts: Parts | None = None
        self._executor: Executor | None = None
        self._stopped = False

    def __getstate__(self) -> dict[str, Any]:
        return {"make": self._make}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["make"])  # type: ignore[misc]

    @property
    def parts(self) -> Parts:
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
                self._executor = _executor(parts)
                self._executor.heartbeat.start()
        self._executor.run(ring)
        parts.bell.ring()  # there is room for another ring: without this the reconciler would wait for its period

    def wake(self) -> None:
        """Wake everybody who is in `work`, in any process."""
        self.parts.bell.ring()

    def work(self) -> None:
        """Look for work until SIGTERM or SIGINT; then give everything back."""
        shift = Shift(self.parts)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: shift.stop())
        _collect_less()
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
            self._parts.bell.close()
            self._parts.store.close()


class Shift:
    """One worker with a reconciler beside it: whoever is alive keeps the whole alive."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._executor = executor = _executor(parts)
        self._new, self._due = parts.bell.listen(), parts.bell.listen()
        self._working = Loop(
            "worker", lambda: _step(executor, parts.claim_batch), self._new, parts.period, spacing=GATHERING
        )
        reconciler = Reconciler(
            parts.store,
            _Waker(self._new),
            tuple(parts.indexers),
            parts.rules,
            clock=parts.clock,
            retention=parts.retention,
            sweep=parts.sweep,
        )
        self._tending = Loop("reconciler", reconciler.tend, self._due, parts.period, spacing=CALM)

    def run(self) -> None:
        """Look for work until `stop`; then give everything back and close the parts."""
        self._executor.heartbeat.start()
        thread = self._tending.start()
        self._working.run()
        self._tending.stop()
        thread.join()
        self._executor.heartbeat.stop()
        self._new.close()
        self._due.close()
        self._parts.bell.close()
        self._parts.store.close()

    def stop(self) -> None:
        """End at the next checkpoint; safe to call from a signal handler."""
        self._executor.stop()
        self._working.stop()
        self._tending.stop()


class _Waker:
    """The scheduler that a worker's own reconciler sees: it wakes the worker beside it.

    The bell would wake all reconcilers too, this one included, and while work is queued they would never rest.
    """

    def __init__(self, worker: Listener) -> None:
        self._worker = worker

    def start(self, crew: object) -> None:
        """Nothing to start."""

    def room(self, kind: str) -> None:
        """Need no rings."""

    def carry(self, rings: Sequence[Ring]) -> None:  # noqa: ARG002 - which rings does not matter
        """Wake the worker."""
        self._worker.poke()

    def stop(self) -> None:
        """Nothing to stop."""


def _executor(parts: Parts) -> Executor:
    return Executor(
        parts.store,
        parts.indexers,
        holder=holder_name(),
        clock=parts.clock,
        rules=parts.rules,
        reach=parts.reach,
    )


def _collect_less() -> None:
    """Spare a worker the search for garbage that is not there: rows become tuples, and tuples make no circles."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


def _step(executor: Executor, limit: int) -> timedelta | None:
    """Work on a batch; a full one is followed at once, a small one after a moment in which more can gather."""
    done = executor.run_next(limit)
    if done:
        return timedelta() if done >= limit else GATHERING
    return None
