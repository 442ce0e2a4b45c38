"""`python -m bench.leases [sqlite|postgresql] [LEASES …]`: what workers and reconcilers cost among many running slots.

Each running slot has its own worker on another machine, which is registered as alive. The CPU time is that of this
process and of its PostgreSQL backends.
"""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from bench.databases import KINDS, opened
from bench.noop import request
from bench.reconcile import Counting
from holdfast.clock import SystemClock
from holdfast.engine.reconciler import Reconciler
from holdfast.engine.rules import Rules
from holdfast.engine.slot import BuildResult, Progress
from holdfast.engine.store.base import Completion, LeaseRenewal
from holdfast.engine.store.factory import open_store

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.engine.store.sql_store import SqlStore

LEASES = (1_000, 10_000, 100_000)
SMALL = (1_000, 10_000)
REPEATS = 7
BATCH = 20  # slots in one claim or renewal
QUEUED = 1_000
FIRST_ID = 1_000_000
LATER = 9_000_000_000_000_000
NUMBERS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count})"
HOLDER = "elsewhere/boot+1/1/1/"  # and a number
FILL = (
    """INSERT INTO owners (id, base, owner, generation, status, created_at)
    {numbers} SELECT {first} + i, 'bench', 'owner-' || i, 1, 'indexing', 1 FROM n""",
    """INSERT INTO slots (id, owner_id, kind, job, wanted, built, state, priority, fence, queued_at, claimed_at,
      progress_at, holder, until, due_at)
    {numbers} SELECT {first} + i, {first} + i, 'noop', 'job-' || i, 1, 0, 'running', 5, 1, 1, {now}, {now},
      '{holder}' || i, {later}, {later} FROM n""",
    "INSERT INTO workers (holder, seen_at) {numbers} SELECT '{holder}' || i, {now} FROM n",
)
MAX_GROWTH = 2.0
LINEAR = frozenset({"list the workers that hold leases", "register a worker as alive", "a pass of the reconciler"})


class Leases:
    """A store with many running slots, and the operations on it."""

    def __init__(self, url: str, leases: int) -> None:
        self._store: SqlStore = open_store(url, rules=Rules(), clock=SystemClock())
        values = {"first": FIRST_ID, "later": LATER, "now": SystemClock().now(), "holder": HOLDER}
        with self._store.database.writing(durable=False) as tx:
            for statement in FILL:
                tx.run_sql(statement.format(numbers=NUMBERS.format(count=leases), **values))
        if not url.startswith("sqlite"):
            with self._store.database.autocommit() as tx:
                tx.run_sql("VACUUM ANALYZE")
        self._store.admit([request(f"queued-{number}") for number in range(QUEUED)])
        held = self._store.claim_next(["noop"], "bench", BATCH)
        self._beats = [LeaseRenewal(ticket=ticket, progress=Progress(), progressed=False) for ticket in held]

    def operations(self) -> dict[str, Callable[[], object]]:
        store = self._store
        reconciler = Reconciler(store, Counting(), ("noop",), store.rules)
        return {
            f"renew {BATCH} leases": lambda: store.extend(self._beats),
            "register a worker as alive": lambda: store.register_worker(f"{HOLDER}1"),
            f"claim and complete {BATCH} slots": self._claim,
            "list the workers that hold leases": store.list_holders,
            "a pass of the reconciler": reconciler.reconcile,
            "search for new work": reconciler.ring_queued,
        }

    def close(self) -> None:
        self._store.close()

    def _claim(self) -> None:
        tickets = self._store.claim_next(["noop"], "bench", BATCH)
        assert len(tickets) == BATCH
        self._store.complete([Completion(ticket=ticket, built=BuildResult()) for ticket in tickets])


def measure(database: str, leases: int) -> dict[str, float]:
    """Return the CPU milliseconds of each operation."""
    with TemporaryDirectory() as folder, opened(database, Path(folder)) as (url, read_cpu):
        bench = Leases(url, leases)
        found = {name: _measure(operation, read_cpu) for name, operation in bench.operations().items()}
        bench.close()
    return found


def _measure(operation: Callable[[], object], read_cpu: Callable[[], float]) -> float:
    operation()
    costs = []
    for _ in range(REPEATS):
        before = read_cpu()
        operation()
        costs.append(read_cpu() - before)
    return median(costs) * 1000


def report(
    goals: dict[str, bool], sizes: Sequence[int] = SMALL, databases: Sequence[str] = KINDS
) -> dict[str, dict[str, float]]:
    """Print the costs; return how they grow from the fewest to the most leases."""
    print(f"Operations among {', '.join(f'{size:,}' for size in sizes)} running slots of as many workers; CPU")
    growth: dict[str, dict[str, float]] = {}
    for database in databases:
        found = [measure(database, leases) for leases in sizes]
        growth[database] = {name: round(cost / found[0][name], 2) for name, cost in found[-1].items()}
        for name, ratio in growth[database].items():
            costs = " ".join(f"{one[name]:9.2f}" for one in found)
            print(f"  {database:10} {name:34} {costs} ms = {ratio:.2f} x", flush=True)
            if name not in LINEAR:
                goals[f"leases: {name}, {database}"] = ratio <= MAX_GROWTH
    return growth


def main(arguments: Sequence[str]) -> int:
    databases = [name for name in KINDS if name in arguments] or KINDS
    goals: dict[str, bool] = {}
    report(goals, [int(argument) for argument in arguments if argument.isdecimal()] or LEASES, databases)
    return 0 if all(goals.values()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
