"""What an operation on 10,000 documents costs: `python -m bench.bulk`.

The request is compared with the same request for a job of 10 documents more than a request processes at once: its time
must not grow with the number of documents. The job itself is compared with a bare loop that deletes the same documents
one call after the other: batches must cost less CPU for each document.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from bench.deleting import DATABASES
from holdfast.catalog.repository import BaseSettings
from holdfast.clock import SystemClock
from holdfast.documents.bulk import ITEMS_AT_ONCE
from holdfast.documents.lists import DocumentFilter
from holdfast.documents.requests import Action
from holdfast.engine.executor import Executor
from holdfast.settings import Settings
from holdfast.wiring import Library, open_configured_store
from tests.support.bulk_rows import fill

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.catalog.repository import Base

DOCUMENTS = 10_000
FEW = ITEMS_AT_ONCE + 10
LOOP_DOCUMENTS = 200  # enough for the CPU of one document
ROUNDS = 5
GROWTH = 5.0  # of the time of a request, for forty times as many documents
SHARE = 0.6  # of the CPU of the bare loop
FILES = DocumentFilter(kinds=frozenset({"file"}))


@dataclass(frozen=True)
class Costs:
    few_ms: float
    many_ms: float
    job_cpu: float  # microseconds for each document
    loop_cpu: float

    @property
    def growth(self) -> float:
        return self.many_ms / self.few_ms

    @property
    def share(self) -> float:
        return self.job_cpu / self.loop_cpu


class Bench:
    def __init__(self, url: str, folder: Path, cpu: Callable[[], float]) -> None:
        settings = Settings(database=url, data=str(folder / "blobs"))
        self.cpu = cpu
        self.store = open_configured_store(settings)
        self.library = Library(self.store, settings)
        only_bulk = {"bulk": self.library.indexers()["bulk"]}
        self.worker = Executor(self.store, only_bulk, holder="bench", clock=SystemClock(), rules=settings.rules)

    def base(self, name: str, documents: int) -> Base:
        base = self.library.catalog.create_base(name, BaseSettings())
        fill(cast("Any", SimpleNamespace(store=self.store)), base, documents)
        return base

    def request(self, base: Base) -> float:
        """Return the milliseconds of a request that starts a job; cancel the job."""
        times = []
        for _ in range(ROUNDS):
            began = time.perf_counter()
            result = self.library.bulk_operations.request_matching(base, Action.DELETE, FILES)
            times.append((time.perf_counter() - began) * 1000)
            assert result.job is not None
            self.store.cancel_jobs([result.job])
        return median(times)

    def run_job(self, base: Base) -> float:
        """Return the CPU microseconds of a bulk delete for each document."""
        self.library.bulk_operations.request_matching(base, Action.DELETE, FILES)
        began = self.cpu()
        while self.worker.run_next(1):
            pass
        return (self.cpu() - began) / DOCUMENTS * 1e6

    def run_loop(self, base: Base) -> float:
        """Return the CPU microseconds of single deletes for each document."""
        with self.store.database.reading() as tx:
            rows = tx.run_sql(f"SELECT id FROM library_items WHERE base_id = {base.id}")  # noqa: S608 - our own number
        ids = [id_ for (id_,) in rows]
        began = self.cpu()
        for id_ in ids:
            self.library.remover.delete(base, [id_])
        return (self.cpu() - began) / len(ids) * 1e6

    def measure(self) -> Costs:
        few, many = self.base("few", FEW), self.base("many", DOCUMENTS)
        loop = self.run_loop(self.base("loop", LOOP_DOCUMENTS))
        return Costs(self.request(few), self.request(many), self.run_job(many), loop)


def report(goals: dict[str, bool]) -> dict[str, Any]:
    """Print every figure, and note which goals are reached."""
    print(f"A bulk delete of {DOCUMENTS:,} documents, as a job")
    found = {}
    for database, open_database in DATABASES.items():
        with TemporaryDirectory() as folder, open_database(Path(folder)) as (url, cpu):
            Path(folder).chmod(0o755)  # PostgreSQL may run as another user
            bench = Bench(url, Path(folder), cpu)
            costs = bench.measure()
            bench.store.close()
        print(
            f"  {database:11} request {costs.many_ms:.1f} ms, of {FEW} documents {costs.few_ms:.1f} ms"
            f" = {costs.growth:.1f} x; {costs.job_cpu:.0f} µs of CPU for each document,"
            f" {costs.loop_cpu:.0f} µs in a bare loop = {costs.share:.0%}"
        )
        found[database] = {"growth": round(costs.growth, 2), "share": round(costs.share, 2)}
        goals[f"bulk request: {database}"] = costs.growth <= GROWTH
        goals[f"bulk job: {database}"] = costs.share <= SHARE
    return found


if __name__ == "__main__":
    reached: dict[str, bool] = {}
    report(reached)
    print(f"  {reached}")
    sys.exit(not all(reached.values()))
