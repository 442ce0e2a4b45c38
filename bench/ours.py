"""Our own rate, taken as the peers' rates are: a client, worker processes beside it, every state recorded."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.noop import make_worker, request
from holdfast.settings import Settings
from holdfast.wiring import open_configured_store, open_scheduler

POLL_SECONDS = 0.005


@dataclass(frozen=True)
class OurResult:
    mode: str
    jobs: int
    seconds: float

    @property
    def rate(self) -> float:
        return self.jobs / self.seconds


def measure_one_by_one(jobs: int = 6000) -> OurResult:
    """Measure with one request at a time."""
    return _measure("one by one", 1, jobs)


def measure_batches(jobs: int = 18_000) -> OurResult:
    """Measure with requests in batches, as a folder of documents is added."""
    return _measure("batches of 500", 500, jobs)


def _measure(mode: str, size: int, jobs: int, workers: int = 1) -> OurResult:
    with TemporaryDirectory() as folder:
        settings = Settings(database=f"sqlite:///{Path(folder) / 'holdfast.db'}", workers=workers, claim_batch=500)
        scheduler = open_scheduler(settings)
        store = open_configured_store(settings)
        scheduler.start(make_worker(settings))
        try:
            store.admit([request("warm-up")])
            _wait(store)
            started = time.perf_counter()
            for first in range(0, jobs, size):
                store.admit([request(f"owner-{first + one}") for one in range(size)])
            _wait(store)
            return OurResult(mode, jobs, time.perf_counter() - started)
        finally:
            scheduler.stop()
            store.close()


def _wait(store: object) -> None:
    """Wait until every job has its outcome recorded."""
    from sqlalchemy import text  # noqa: PLC0415 - beside its only use

    while True:
        with store.database.engine.connect().execution_options(holdfast_reads=True) as connection:  # type: ignore[attr-defined]
            if not connection.execute(text("SELECT count(*) FROM jobs WHERE outcome IS NULL")).scalar():
                return
        time.sleep(POLL_SECONDS)
