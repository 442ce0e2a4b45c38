"""`python -m bench.workers [sqlite|postgresql] [WORKERS …]`: the rate of worker processes, and the CPU of a slot.

The queue is filled during a pause, and measured from the end of the pause until the last slot is ready. `noop` does
nothing. `wait` sleeps for 20 ms, as work that waits for a provider. PostgreSQL syncs the disk. The CPU time is that of
all workers and PostgreSQL backends. Then the workers have no work, and their CPU time is measured again.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from bench.databases import KINDS, opened
from bench.noop import WAIT_SECONDS, make_worker, request
from holdfast.engine.schedulers.embedded import EmbeddedScheduler
from holdfast.settings import Settings
from holdfast.wiring import open_configured_store
from tests.support.processes import until

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

WORKERS = (1, 2, 4, 8, 16, 32)
NOOP_SLOTS = 6_000
WAITING_SLOTS = 150  # for each worker
CLAIM_BATCH = 20
IDLE_SECONDS = 30.0
MAX_CONNECTIONS = 400  # of PostgreSQL, which allows 100 by default
TOGETHER = 500  # requests in one transaction


@dataclass(frozen=True)
class Drain:
    rate: float  # slots in a second
    workers: float  # CPU milliseconds of the workers for one slot
    database: float  # and of the backends of PostgreSQL

    def __str__(self) -> str:
        return f"{self.workers:.2f} + {self.database:.2f} ms a slot, {self.rate:.0f}/s"


class Bench:
    """Worker processes on one database."""

    def __init__(self, url: str, read_cpu: Callable[[], float], workers: int) -> None:
        settings = Settings(database=url, workers=workers, claim_batch=CLAIM_BATCH)
        self._read_cpu = read_cpu
        self._scheduler = EmbeddedScheduler(settings)
        self._store = open_configured_store(settings)
        self._worker = make_worker(settings)
        self._scheduler.start(self._worker)
        until(lambda: self._count("workers") == workers, "the workers did not start", seconds=300)

    def drain(self, kind: str, slots: int) -> Drain:
        self._store.pause()
        for first in range(0, slots, TOGETHER):
            numbers = range(first, min(first + TOGETHER, slots))
            self._store.admit([request(f"{kind}-{number}", kind) for number in numbers])
        workers, database, began = self._workers_cpu(), self._database_cpu(), time.time()
        self._store.resume()
        self._worker.wake()
        until(self._finished, "the queue is not empty", seconds=600)
        with self._store.database.reading() as tx:
            ((finished,),) = tx.run_sql("SELECT max(finished_at) FROM jobs")
        workers, database = self._workers_cpu() - workers, self._database_cpu() - database
        return Drain(slots / (finished / 1e6 - began), workers / slots * 1000, database / slots * 1000)

    def idle(self) -> float:
        """Return the share of a processor that one worker needs while there is no work."""
        before = self._workers_cpu() + self._database_cpu()
        time.sleep(IDLE_SECONDS)
        after = self._workers_cpu() + self._database_cpu()
        return (after - before) / IDLE_SECONDS / len(self._scheduler.pids)

    def connections(self) -> int:
        """Return the connections of the workers to PostgreSQL; 0 on SQLite."""
        if self._store.database.engine.dialect.name == "sqlite":
            return 0
        return self._count("pg_stat_activity WHERE datname = current_database()") - 1

    def close(self) -> None:
        self._scheduler.stop()
        self._store.close()

    def _finished(self) -> bool:
        time.sleep(0.1)
        return self._count("jobs WHERE outcome IS NULL") == 0

    def _count(self, rows: str) -> int:
        with self._store.database.reading() as tx:
            return int(tx.run_sql(f"SELECT count(*) FROM {rows}")[0][0])  # noqa: S608 - our own tables

    def _workers_cpu(self) -> float:
        return sum(map(process_cpu, self._scheduler.pids))

    def _database_cpu(self) -> float:
        return self._read_cpu() - time.process_time()


def process_cpu(pid: int) -> float:
    """Return the CPU seconds of a process with all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def measure(database: str, workers: int) -> tuple[Drain, Drain, float, int]:
    """Return the costs of both kinds of work, the share of a processor without work, and the number of connections."""
    with ExitStack() as held:
        folder = Path(held.enter_context(TemporaryDirectory()))
        url, read_cpu = held.enter_context(opened(database, folder, durable=True, connections=MAX_CONNECTIONS))
        bench = Bench(url, read_cpu, workers)
        held.callback(bench.close)
        bench.drain("noop", 100 * workers)  # each worker has opened its connections
        noop, wait = bench.drain("noop", NOOP_SLOTS), bench.drain("wait", WAITING_SLOTS * workers)
        return noop, wait, bench.idle(), bench.connections()


def report(counts: Sequence[int], databases: Sequence[str]) -> None:
    """Print the rates and costs."""
    print(f"Worker processes that claim {CLAIM_BATCH} slots at once; CPU of workers + backends")
    for database in databases:
        for workers in counts:
            noop, wait, idle, connections = measure(database, workers)
            ideal = workers / WAIT_SECONDS
            print(
                f"  {database:10} {workers:2} workers: noop {noop}; wait {wait} of {ideal:.0f}/s;"
                f" idle {idle:.2%} of a processor each; {connections} connections",
                flush=True,
            )


def main(arguments: Sequence[str]) -> int:
    databases = [name for name in KINDS if name in arguments] or KINDS
    report([int(argument) for argument in arguments if argument.isdecimal()] or WORKERS, databases)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
