"""Measures attempts: processor time, peak memory, wall time, stages, and the rows that the indexer counts.

- Processor time is that of the worker's thread, and of the process that reads the file. Threads that a library starts
  for itself are not included.
- Peak memory is the highest resident memory of the whole process while the attempt ran. Other threads of this process
  share it. Attempts of a few milliseconds share one reading, because a reading costs about 20 µs.
- The claim before the attempt and the commit after it are not included: one transaction serves many slots.
"""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, NamedTuple

from holdfast.engine.usage import Usage
from holdfast.process_usage import read_peak_kb, reset_peak

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.process_usage import ProcessUsage

PREPARATION = "prepare"  # the stage of the work for a whole batch
LONG_MS = 5.0  # attempts that ran longer have a memory reading of their own
NANOSECONDS_PER_MS = 1_000_000


class Spent(NamedTuple):
    """Time spent on a piece of work."""

    cpu_ms: float = 0.0
    ran_ms: float = 0.0

    def divide(self, parts: int) -> Spent:
        return Spent(self.cpu_ms / parts, self.ran_ms / parts)


NOTHING_SPENT = Spent()


class Stopwatch:
    """Measures the time of the thread that created it, and the wall time."""

    __slots__ = ("_began", "_cpu", "_monotonic")

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._began = monotonic()
        self._cpu = time.thread_time_ns()

    def read(self) -> Spent:
        cpu = (time.thread_time_ns() - self._cpu) / NANOSECONDS_PER_MS
        return Spent(cpu, (self._monotonic() - self._began) * 1000)


class PeakMemory:
    """The peak memory of one worker's attempts. Workers in threads of one process do not disturb each other."""

    # The kernel has one peak for the process. Before a worker resets it, the others get the peak until then.
    _lock = threading.Lock()
    _until_reset: dict[PeakMemory, int] = {}  # noqa: RUF012 - shared by all instances

    def __init__(self) -> None:
        self._reading: int | None = None  # since the last reset
        self._outdated = False  # the last attempt ran long

    def start_batch(self) -> None:
        """Start to measure. Each call needs a later call of `stop`."""
        self._reset()

    def start_attempt(self) -> None:
        """Exclude the memory of an earlier attempt that ran long."""
        if self._outdated:
            self._reset()

    def read(self, ran_ms: float) -> int:
        """Return the peak of an attempt that ran for so long, in KiB."""
        self._outdated = ran_ms >= LONG_MS
        if self._reading is None or self._outdated:
            with self._lock:
                self._reading = max(self._until_reset.get(self, 0), read_peak_kb())
        return self._reading

    def stop(self) -> None:
        with self._lock:
            self._until_reset.pop(self, None)

    def _reset(self) -> None:
        with self._lock:
            if self._until_reset.keys() - {self}:
                peak = read_peak_kb()
                for other, earlier in self._until_reset.items():
                    self._until_reset[other] = max(earlier, peak)
            self._until_reset[self] = 0
            reset_peak()
        self._reading, self._outdated = None, False

    @classmethod
    def _after_fork(cls) -> None:
        """Drop the lock and the workers of the parent process."""
        cls._lock = threading.Lock()
        cls._until_reset = {}


class AttemptMeter:
    """Measures one attempt, from the creation of the meter to each reading."""

    __slots__ = (
        "_child_cpu_ms", "_child_peak_kb", "_memory", "_monotonic", "_shared", "_stage", "_stage_began", "_stage_ms",
        "_stopwatch", "kept", "removed", "written",
    )  # fmt: skip

    def __init__(
        self,
        monotonic: Callable[[], float] = time.monotonic,
        memory: PeakMemory | None = None,
        shared: Spent = NOTHING_SPENT,
    ) -> None:
        """Start. `shared` is the part of a batch's preparation that belongs to this attempt."""
        self.written = self.kept = self.removed = 0
        self._child_cpu_ms = 0.0
        self._child_peak_kb = 0
        self._memory = memory
        self._shared = shared
        self._monotonic = monotonic
        self._stage, self._stage_began = "", 0.0
        self._stage_ms: dict[str, float] = {PREPARATION: shared.ran_ms} if shared.ran_ms else {}
        self._stopwatch = Stopwatch(monotonic)

    def start_stage(self, stage: str) -> None:
        """End the present stage, and start the next. Time before the first stage belongs to none."""
        now = self._monotonic()
        self._end_stage(now)
        self._stage, self._stage_began = stage, now

    def add_child(self, usage: ProcessUsage) -> None:
        """Add the usage of another process that worked for this attempt."""
        self._child_cpu_ms += usage.cpu_ms
        self._child_peak_kb = max(self._child_peak_kb, usage.peak_kb)

    def read(self, waited_ms: int, spent: Spent | None = None) -> Usage:
        """Return the usage until now. `spent` replaces the time since the start, for a part of a batch."""
        cpu_ms, ran_ms = spent or self._stopwatch.read()
        if self._stage:
            self.start_stage(self._stage)
        peak_kb = self._memory.read(ran_ms) if self._memory is not None else 0
        return Usage(
            cpu_ms + self._shared.cpu_ms + self._child_cpu_ms,
            max(peak_kb, self._child_peak_kb),
            ran_ms + self._shared.ran_ms,
            waited_ms,
            self.written,
            self.kept,
            self.removed,
            tuple(self._stage_ms.items()),
        )

    def _end_stage(self, now: float) -> None:
        if self._stage:
            earlier = self._stage_ms.get(self._stage, 0.0)
            self._stage_ms[self._stage] = earlier + (now - self._stage_began) * 1000


os.register_at_fork(after_in_child=PeakMemory._after_fork)  # noqa: SLF001 - the hook belongs to the class
