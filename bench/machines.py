"""What a broker costs, beside the embedded scheduler on the same PostgreSQL: `python -m bench.machines`.

Both modes index the same documents with two worker processes. All CPU counts: workers, reconciler, broker, and the
processes of PostgreSQL. The second figure is the time from admission to claim through the broker, beside an empty
Celery task on the same broker and with the same pool.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import redis
from celery import Celery

from bench.deleting import postgres, texts
from holdfast.catalog.repository import BaseSettings
from holdfast.service.opening import open_library
from holdfast.settings import Settings
from holdfast.wiring import list_kinds
from tests.support.celery_worker import CeleryWorker
from tests.support.processes import Running, until
from tests.support.servers import Valkey

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.documents.requests import Upload

DOCUMENTS = 1_000
WARM_UP = 40
WORKERS = 2
SINGLE = 60  # documents that are added one after the other
TIMES_EMBEDDED = 1.5
TIMES_TASK = 3.0
INDEXES = ("fulltext", "vector")


@dataclass(frozen=True)
class Costs:
    embedded: float  # CPU seconds
    celery: float
    claim_ms: float  # p50 from admission to claim
    task_ms: float  # p50 from `delay` to the start of an empty task

    @property
    def cpu(self) -> float:
        return self.celery / self.embedded

    @property
    def latency(self) -> float:
        return self.claim_ms / self.task_ms


class Bench:
    """A library on PostgreSQL, and the processes that work on it."""

    def __init__(self, held: ExitStack, folder: Path, name: str, **settings: object) -> None:
        self._held = held
        self.folder = folder / name
        self.folder.mkdir(mode=0o755)
        url, self._database_cpu = held.enter_context(postgres(self.folder))
        self.settings: dict[str, object] = {
            "database": url,
            "home": self.folder / "home",
            "data": self.folder / "blobs",
            "workers": WORKERS,
            **settings,
        }
        self.library = open_library(Settings.from_environment(self.environment))
        held.callback(self.library.store.close)
        self.base = self.library.catalog.create_base("bench", BaseSettings(indexes=INDEXES))
        self._groups: list[int] = []

    @property
    def environment(self) -> dict[str, str]:
        return {f"HOLDFAST_{name.upper()}": str(value) for name, value in self.settings.items()}

    def run(self, *arguments: str) -> None:
        """Start a command of Holdfast, whose CPU counts."""
        log = self.folder / f"{arguments[0]}.log"
        running = self._held.enter_context(Running(["-m", "holdfast.cli", *arguments], log, self.settings))
        self._groups.append(running.pid)

    def run_celery(self) -> None:
        queues = [f"holdfast.{kind}" for kind in list_kinds()]
        worker = CeleryWorker(
            "holdfast.celery", self.folder, concurrency=WORKERS, queues=queues, environment=self.environment
        )
        self._groups.append(self._held.enter_context(worker).pid)

    def count(self, process: int) -> None:
        """Count the CPU of a server, too."""
        self._groups.append(process)

    def cpu(self) -> float:
        return self._database_cpu() + sum(map(group_cpu, self._groups))

    def index(self, uploads: Sequence[Upload]) -> float:
        """Add documents, wait until they are indexed, and return the CPU seconds."""
        began = self.cpu()
        self.library.adder.add(self.base, uploads)
        until(lambda: self._pending() == 0, "the documents are not indexed", seconds=600)
        return self.cpu() - began

    def _pending(self) -> int:
        time.sleep(0.2)
        with self.library.store.database.reading() as tx:
            return int(tx.run_sql("SELECT count(*) FROM slots WHERE state <> 'ready'")[0][0])

    def measure_claims(self, uploads: Sequence[Upload], between: Callable[[], None]) -> float:
        """Add documents one after the other; return the median milliseconds from admission to claim.

        `between` runs after each document, so that another measurement sees the same state of the machine.
        """
        with self.library.store.database.reading() as tx:
            ((last,),) = tx.run_sql("SELECT max(id) FROM events")
        for upload in uploads:
            self.index([upload])
            between()
        admitted: dict[str, int] = {}
        claimed: dict[str, int] = {}
        for one in self.library.store.events(after=last, limit=100_000):
            if one.event.kind == "content":
                times = claimed if one.event.type == "slot.claimed" else admitted
                times.setdefault(one.event.owner, one.at)
        return median((claimed[owner] - admitted[owner]) / 1000 for owner in claimed)


def group_cpu(leader: int) -> float:
    """Return the CPU seconds of a process group: of its processes, and of those that have ended."""
    ticks = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if leader == int(fields[2]):
            ticks += sum(map(int, fields[11:15] if leader == int(path.parent.name) else fields[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


class EmptyTasks:
    """A Celery worker whose only task does nothing."""

    def __init__(self, held: ExitStack, broker: Valkey, folder: Path) -> None:
        self._app = Celery("client", broker=broker.url, set_as_current=False)
        environment = {"BENCH_BROKER": broker.url}
        held.enter_context(CeleryWorker("bench.empty_task", folder, concurrency=WORKERS, environment=environment))
        self._started = redis.Redis.from_url(broker.url)
        held.callback(self._started.close)
        self.times: list[float] = []

    def run_one(self) -> None:
        """Run a task, and note the milliseconds from sending it to its start."""
        sent = time.time()
        self._app.send_task("started")
        answer: Any = self._started.blpop(["started"], 30)
        self.times.append((float(answer[1]) - sent) * 1000)
        time.sleep(0.2)


def measure() -> Costs:
    """Measure both modes, one after the other, each with its own PostgreSQL."""
    uploads = texts(WARM_UP + DOCUMENTS + SINGLE, None)
    warm, many, single = uploads[:WARM_UP], uploads[WARM_UP:-SINGLE], uploads[-SINGLE:]
    with TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)  # PostgreSQL may run as another user
        with ExitStack() as held:
            bench = Bench(held, folder, "embedded")
            bench.run("worker")
            bench.index(warm)
            embedded = bench.index(many)
        with ExitStack() as held:
            broker = held.enter_context(Valkey(folder))
            bench = Bench(held, folder, "celery", scheduler="celery", broker=broker.url)
            bench.run("reconcile")
            bench.run_celery()
            bench.count(broker.pid)
            bench.index(warm)
            celery = bench.index(many)
            tasks = EmptyTasks(held, broker, folder)
            claim_ms = bench.measure_claims(single, tasks.run_one)
    return Costs(embedded, celery, claim_ms, median(tasks.times))


def report(goals: dict[str, bool]) -> dict[str, Any]:
    """Print every figure, and note which goals are reached."""
    print(f"Indexing {DOCUMENTS:,} documents on PostgreSQL through Celery and Valkey; CPU of all processes")
    costs = measure()
    print(f"  celery {costs.celery:.1f} s, embedded {costs.embedded:.1f} s = {costs.cpu:.2f} x")
    print(
        f"  admission to claim p50 {costs.claim_ms:.1f} ms, empty task {costs.task_ms:.1f} ms = {costs.latency:.1f} x"
    )
    goals["celery CPU"] = costs.cpu <= TIMES_EMBEDDED
    goals["celery latency"] = costs.latency <= TIMES_TASK
    return {"cpu": round(costs.cpu, 2), "latency": round(costs.latency, 2)}


if __name__ == "__main__":
    reached: dict[str, bool] = {}
    report(reached)
    print(f"  {reached}")
    sys.exit(not all(reached.values()))
