"""`python -m bench.scale [sqlite|postgresql] [DOCUMENTS …]`: what frequent operations cost in bases of several sizes.

Writes the rows of generated documents directly into the tables, up to each size in turn. At each size every operation
runs several times for its CPU time, of this process and of its PostgreSQL backends, and then once to count the rows
that its statements read. An operation grows if it reads more rows in the largest base than in the smallest: then one of
its statements scans a table. `make bench` runs the sizes in `SMALL`; without arguments this command runs those in
`LARGE` on both databases, which takes about half an hour and 8 GB of disk.
"""

from __future__ import annotations

import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from bench.databases import KINDS as DATABASES
from bench.databases import opened
from holdfast.auth.principal import KEYLESS_CALLER
from holdfast.catalog.repository import BaseSettings
from holdfast.clock import SystemClock
from holdfast.documents.lists import Order
from holdfast.documents.requests import Upload
from holdfast.engine.admission import Request
from holdfast.engine.dependencies import SlotSpec
from holdfast.engine.executor import Executor
from holdfast.engine.reconciler import Reconciler
from holdfast.engine.slot import BuildResult
from holdfast.engine.states import Operation
from holdfast.engine.store.base import Completion
from holdfast.events.public_events import Cursor
from holdfast.paging import MAX_COUNT
from holdfast.service.local import LocalService
from holdfast.settings import Settings
from holdfast.wiring import Library, open_configured_store
from tests.support.explain import Explained, ExplainingDialect, SqliteExplainingDialect
from tests.support.generated_documents import FIRST_DOCUMENT, FIRST_FOLDER, generate_documents

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.engine.slot import Ring

SMALL = (30_000, 120_000)
LARGE = (1_000, 10_000, 100_000, 1_000_000)
BYTES_PER_DOCUMENT = 8_000  # on disk, with indexes and the write-ahead log
REPEATS = 7
STEP = 100_000  # documents in one transaction
KINDS = ("content", "fulltext")
SPECS = (SlotSpec("content"), SlotSpec("fulltext", "content"))
BASE = "bench"
SQLITE_UPKEEP = ("PRAGMA wal_checkpoint(TRUNCATE)",)
POSTGRES_UPKEEP = ("VACUUM ANALYZE", "CHECKPOINT")
OTHER_BASES = 9  # with one document each
SMALL_BASE = "other-3"
ALLOWED_GROWTH = 2.0  # of the rows that an operation reads
MANY_ROWS = 8 * MAX_COUNT  # an operation counts several things, each up to a limit
# Operations whose time grows with the base, see docs/scale.md. On SQLite an estimate: a row with many columns counts as
# several, so deep pages are among them.
LINEAR = frozenset(
    {
        "documents, page 100",
        "documents, page 180",
        "documents with part of a name",
        "documents with a rare name",
        "documents of a rare kind",
        "exact counts of a base",
        "refused requests",
    }
)


class Nobody:
    """A scheduler that takes rings and does nothing."""

    needs_rings = True

    def room(self, kind: str, outstanding: Callable[[], int]) -> int:  # noqa: ARG002
        return 100 - outstanding()

    def carry(self, rings: Sequence[Ring]) -> None:
        """Drop the rings."""


@dataclass(frozen=True)
class Cost:
    cpu: float  # milliseconds of this process and of its PostgreSQL backends
    explained: Explained


class Scale:
    """One base that grows, and a few small ones."""

    def __init__(self, url: str, read_cpu: Callable[[], float], folder: Path) -> None:
        settings = Settings(database=url, home=str(folder), data=str(folder / "files"))
        self._read_cpu = read_cpu
        self._is_sqlite = url.startswith("sqlite")
        self._store = open_configured_store(settings)
        self._library = Library(self._store, settings)
        create = self._library.catalog.create_base
        others = [create(f"other-{number}", BaseSettings()) for number in range(OTHER_BASES)]
        self._base = create(BASE, BaseSettings(indexes=("fulltext",)))
        self._service = LocalService(self._library, KEYLESS_CALLER)
        for base in (*others, self._base):
            self._library.adder.add(base, [Upload("seed.md", f"# Seed\n\nOf {base.name}".encode())])
        self._index_all(settings)
        explaining = SqliteExplainingDialect if self._is_sqlite else ExplainingDialect
        self._dialect = explaining(self._store.database.dialect)
        self._store.database.dialect = self._dialect
        self._documents = 0
        self._new = 0

    def _index_all(self, settings: Settings) -> None:
        executor = Executor(
            self._store, self._library.indexers(), holder="bench", clock=SystemClock(), rules=settings.rules
        )
        while executor.run_next(100):
            pass

    def grow(self, documents: int) -> None:
        """Add documents until there are so many. PostgreSQL collects statistics, as it does by itself in production."""
        while self._documents < documents:
            stop = min(self._documents + STEP, documents)
            with self._store.database.writing(durable=False) as tx:
                generate_documents(tx, self._base, self._documents + 1, stop)
            self._documents = stop
        with self._store.database.autocommit() as tx:
            for statement in (
                ("PRAGMA wal_checkpoint(TRUNCATE)",) if self._is_sqlite else ("VACUUM ANALYZE", "CHECKPOINT")
            ):
                tx.run_sql(statement)

    def measure(self) -> dict[str, Cost]:
        found = {name: self._measure(operation) for name, operation in self._operations().items()}
        # Nobody removes the deleted documents here, and later claims must not meet them.
        postpone = "UPDATE slots SET due_at = 9000000000000000 WHERE state = 'deleting'"
        self._store.database.write(lambda tx: tx.run_sql(postpone), durable=False)
        return found

    def size_on_disk(self) -> int:
        with self._store.database.reading() as tx:
            query = "page_count * page_size FROM pragma_page_count, pragma_page_size"
            ((size,),) = tx.run_sql(f"SELECT {query if self._is_sqlite else 'pg_database_size(current_database())'}")
        return int(size)

    def close(self) -> None:
        self._store.close()

    def _measure(self, operation: Callable[[], object]) -> Cost:
        operation()
        costs = []
        for _ in range(REPEATS):
            before = self._read_cpu()
            operation()
            costs.append(self._read_cpu() - before)
        self._dialect.explained = explained = Explained()
        operation()
        self._dialect.explained = None
        return Cost(median(costs) * 1000, explained)

    def _operations(self) -> dict[str, Callable[[], object]]:
        store, service, log = self._store, self._service, self._library.event_log
        documents, jobs, searcher = service.documents, service.jobs, self._library.searcher
        reconciler = Reconciler(store, Nobody(), KINDS, store.rules)
        queued, ready = FIRST_DOCUMENT + self._documents - 9, FIRST_DOCUMENT + self._documents // 2
        middle = Cursor(0 if self._is_sqlite else 1, self._documents)
        active = f"document-{self._documents - 9}"
        orders = {f"documents by {order}": self._list(order=order) for order in Order}
        return {
            "admit one document": self._admit,
            "admit 50 known documents": self._admit_known,
            "claim and complete 20 slots": self._claim,
            "reconcile": reconciler.reconcile,
            **orders,
            "documents, page 100": self._list(page=100),
            "documents, page 180": self._list(page=180),
            "documents with a status": self._list(states=["failed"]),
            "documents with part of a name": self._list(text="a0a"),
            "documents with a rare name": self._list(text="0123456"),
            "documents of a rare kind": self._list(kinds=["note"]),
            "folders": self._list(kinds=["directory"]),
            "documents in a folder": self._list(parent=FIRST_FOLDER),
            "documents of a small base": lambda: documents.list(SMALL_BASE),
            "jobs of a small base": lambda: jobs.list(SMALL_BASE),
            "status of a document": lambda: documents.get(BASE, ready),
            "status of a queued document": lambda: documents.get(BASE, queued),
            "status of 50 documents": lambda: documents.statuses(BASE, range(queued, queued + 50)),
            "counts of a base": lambda: service.bases.counts(BASE),
            "exact counts of a base": lambda: service.bases.counts(BASE, exact=True),
            "list of bases": service.bases.list,
            "overview": service.overview,
            "jobs": jobs.list,
            "jobs of a base": lambda: jobs.list(BASE),
            "jobs that failed": lambda: jobs.list(BASE, states=["failed"]),
            "jobs that run": lambda: jobs.list(BASE, states=["indexing"]),
            "jobs, page 100": lambda: jobs.list(page=100),
            "queued job": lambda: jobs.get(active),
            "queue": jobs.overview,
            "queue of a base": lambda: jobs.overview(BASE),
            "full text, rare word": lambda: searcher.search_channel(self._base, "fulltext", "rare7", 10),
            "full text, word of 1 %": lambda: searcher.search_channel(self._base, "fulltext", "often7", 10),
            "full text, word of all": lambda: searcher.search_channel(self._base, "fulltext", "common", 10),
            "new events": lambda: log.read(log.newest_cursor()),
            "events from the middle": lambda: log.read(middle),
            "history of events": log.history,
            "refused requests": lambda: service.accounts.duplicates(BASE),
            "delete old history": lambda: store.delete_old_history(store.rules.lease * 10**6, 100),
            "delete one document": self._delete,
        }

    def _list(self, **options: Any) -> Callable[[], object]:
        return lambda: self._service.documents.list(BASE, **options)

    def _admit(self) -> None:
        self._new += 1
        name = f"new-{self._documents}-{self._new}"
        self._store.admit([Request(base=self._base.key, owner=name, operation=Operation.INDEX, slots=SPECS)])

    def _admit_known(self) -> None:
        step = self._documents // 50
        names = (str(FIRST_DOCUMENT + 1 + number * step) for number in range(50))
        self._store.admit(
            [Request(base=self._base.key, owner=name, operation=Operation.INDEX, slots=SPECS) for name in names]
        )

    def _claim(self) -> None:
        tickets = self._store.claim_next(KINDS, "bench", 20)
        built = BuildResult()
        self._store.complete([Completion(ticket=ticket, built=built) for ticket in tickets])

    def _delete(self) -> None:
        self._new += 1
        self._service.documents.delete(BASE, FIRST_DOCUMENT + self._documents // 3 + self._new)


def measure(database: str, sizes: Sequence[int]) -> list[dict[str, Cost]]:
    """Measure every operation at each size."""
    free = shutil.disk_usage("/tmp").free  # noqa: S108 - where TemporaryDirectory is
    if free < BYTES_PER_DOCUMENT * sizes[-1]:
        raise SystemExit(f"{sizes[-1]:,} documents need {BYTES_PER_DOCUMENT * sizes[-1]:,} bytes; free are {free:,}.")
    found = []
    with TemporaryDirectory() as folder, opened(database, Path(folder)) as (url, read_cpu):
        scale = Scale(url, read_cpu, Path(folder, "home"))
        empty = scale.size_on_disk()
        for documents in sizes:
            began = time.monotonic()
            scale.grow(documents)
            filled = time.monotonic()
            size = scale.size_on_disk() - empty
            found.append(scale.measure())
            print(
                f"  {documents:,} documents: {size / 1e6:,.0f} MB, {size / documents:,.0f} bytes for each; written in"
                f" {filled - began:.0f} s, measured in {time.monotonic() - filled:.0f} s",
                flush=True,
            )
        scale.close()
    return found


def grows(small: Cost, large: Cost) -> bool:
    before, now = small.explained.rows, large.explained.rows
    return now > MANY_ROWS and now > ALLOWED_GROWTH * before


def report(
    goals: dict[str, bool],
    sizes: Sequence[int] = SMALL,
    databases: Sequence[str] = DATABASES,
    *,
    verbose: bool = False,
) -> dict[str, dict[str, float]]:
    """Print the cost of each operation; return how it grows from the smallest to the largest base."""
    return {database: _report(goals, sizes, database, verbose=verbose) for database in databases}


def _report(goals: dict[str, bool], sizes: Sequence[int], database: str, *, verbose: bool) -> dict[str, float]:
    print(f"Operations on {database} in bases with {', '.join(f'{size:,}' for size in sizes)} documents; CPU")
    found = measure(database, sizes)
    ratios = {}
    for name, large in found[-1].items():
        costs = [one[name] for one in found]
        growing = grows(costs[0], large)
        ratios[name] = round(large.cpu / costs[0].cpu, 2)
        if name not in LINEAR:
            goals[f"scale: {name}, {database}"] = not growing
        print(
            f"  {name:30} {' '.join(f'{cost.cpu:9.2f}' for cost in costs)} ms = {ratios[name]:6.2f} x;"
            f" {' '.join(f'{cost.explained.rows:8.0f}' for cost in costs)} rows, {large.explained.buffers:6} buffers"
            f" in {large.explained.statements:2} statements{'  GROWS' if growing else ''}"
        )
        for sql, rows in large.explained.rows_by_statement.most_common(2) if growing else ():
            print(f"{'':10} {rows} rows: {sql if verbose else sql[:150]}")
    return ratios


def main(arguments: Sequence[str]) -> int:
    databases = [name for name in DATABASES if name in arguments] or DATABASES
    sizes = [int(argument) for argument in arguments if argument.isdecimal()] or LARGE
    goals: dict[str, bool] = {}
    report(goals, sizes, databases, verbose="-v" in arguments)
    return 0 if all(goals.values()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
