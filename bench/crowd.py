"""Fifty clients at once on one SQLite file while workers commit: how long the unluckiest waits for its turn."""

from __future__ import annotations

import multiprocessing
import statistics
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from bench.noop import make_worker, request
from holdfast.settings import Settings
from holdfast.wiring import open_configured_store, open_scheduler

if TYPE_CHECKING:
    from multiprocessing.queues import Queue
    from multiprocessing.synchronize import Barrier

PROCESSES, THREADS = 5, 10
REQUESTS = 40


@dataclass(frozen=True)
class Crowd:
    single_p50: float  # milliseconds
    crowd_p50: float
    crowd_p99: float
    errors: int

    @property
    def turns(self) -> float:
        return self.crowd_p99 / self.single_p50


def measure_crowd() -> Crowd:
    with TemporaryDirectory() as folder:
        settings = Settings(database=f"sqlite:///{Path(folder) / 'holdfast.db'}", workers=2)
        store = open_configured_store(settings)
        alone = sorted(_timed(store, f"alone-{number}") for number in range(400))
        scheduler = open_scheduler(settings)
        scheduler.start(make_worker(settings))
        try:
            waits, errors = _crowd(settings)
        finally:
            scheduler.stop()
            store.close()
        return Crowd(
            single_p50=statistics.median(alone) * 1000,
            crowd_p50=statistics.median(waits) * 1000,
            crowd_p99=waits[int(len(waits) * 0.99)] * 1000,
            errors=errors,
        )


def _crowd(settings: Settings) -> tuple[list[float], int]:
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(PROCESSES), context.Queue()
    processes = [
        context.Process(target=_clients, args=(settings, number, barrier, results)) for number in range(PROCESSES)
    ]
    for process in processes:
        process.start()
    answers = [results.get() for _ in processes]
    for process in processes:
        process.join()
    waits = sorted(wait for waits, _ in answers for wait in waits)
    return waits, sum(errors for _, errors in answers)


def _clients(settings: Settings, number: int, barrier: Barrier, results: Queue[tuple[list[float], int]]) -> None:
    store = open_configured_store(settings)
    waits: list[float] = []
    errors = 0
    mutex = threading.Lock()

    def client(name: str) -> None:
        nonlocal errors
        mine, failed = [], 0
        for turn in range(REQUESTS):
            try:
                mine.append(_timed(store, f"{name}-{turn}"))
            except Exception:  # noqa: BLE001 - any error is what we count
                failed += 1
        with mutex:
            waits.extend(mine)
            errors += failed

    threads = [threading.Thread(target=client, args=(f"{number}-{one}",)) for one in range(THREADS)]
    barrier.wait()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    store.close()
    results.put((waits, errors))


def _timed(store: object, name: str) -> float:
    started = time.perf_counter()
    store.admit([request(name)])  # type: ignore[attr-defined]
    return time.perf_counter() - started
