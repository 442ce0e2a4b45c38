"""`python -m bench.metrics [SLOTS …]`: what a request for `/metrics` costs among few and among many slots.

Half of the slots are ready, a third is queued with all priorities, some have failed, and twenty are running. The newest
thousand events are not in the totals yet. The CPU time is that of this process and of its PostgreSQL backends.
"""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from bench.databases import KINDS, opened
from holdfast.settings import Settings
from holdfast.wiring import Library, open_configured_store

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SIZES = (10_000, 1_000_000)
REPEATS = 15
MAX_GROWTH = 2.0
COUNT = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count})"
FILL_OWNERS = """
INSERT INTO owners (id, base, owner, generation, status, created_at)
{numbers} SELECT i, 'bench', 'owner-' || i, 1, 'success', 1 FROM n
"""
FILL_SLOTS = """
INSERT INTO slots
  (id, owner_id, kind, job, wanted, built, state, priority, fence, queued_at, claimed_at, holder, until, due_at)
{numbers}
SELECT i, i, CASE i - i / 3 * 3 WHEN 0 THEN 'content' WHEN 1 THEN 'vector' ELSE 'fulltext' END, 'job-' || i, 1,
  CASE WHEN i - i / 10 * 10 < 5 THEN 1 ELSE 0 END,
  CASE WHEN i <= 20 THEN 'running' WHEN i - i / 10 * 10 < 5 THEN 'ready'
    WHEN i - i / 10 * 10 < 8 THEN 'queued' ELSE 'failed' END,
  i - i / 10 * 10, 1, i, CASE WHEN i <= 20 THEN i END, CASE WHEN i <= 20 THEN 'worker' END,
  CASE WHEN i <= 20 THEN 9000000000000000 END, CASE WHEN i <= 20 THEN 9000000000000000 END
FROM n
"""
FILL_EVENTS = """
INSERT INTO events (at, type, base, owner, kind, job, generation, fence, data)
{numbers} SELECT i, 'slot.claimed', 'bench', 'owner-' || i, 'content', 'job-' || i, 1, 1,
  '{{"from": "queued", "to": "running", "holder": "worker-' || i || '"}}' FROM n
"""
UNCOUNTED = 1_000


def measure(url: str, slots: int, read_cpu: Callable[[], float], home: Path) -> float:
    """Return the CPU milliseconds of one request."""
    store = open_configured_store(Settings(database=url, home=str(home)))
    with store.database.writing(durable=False) as tx:
        for statement, count in ((FILL_OWNERS, slots), (FILL_SLOTS, slots)):
            tx.run_sql(statement.format(numbers=COUNT.format(count=count)))
    store.correct_slot_totals()
    with store.database.writing(durable=False) as tx:
        tx.run_sql(FILL_EVENTS.format(numbers=COUNT.format(count=UNCOUNTED)))
    if url.startswith("postgres"):
        with store.database.autocommit() as tx:
            tx.run_sql("ANALYZE")
    metrics = Library(store, Settings(database=url, home=str(home))).metrics()
    costs = []
    for _ in range(REPEATS):
        before = read_cpu()
        body = metrics.render().body
        costs.append(read_cpu() - before)
    assert b'holdfast_claims_total{kind="content"} 1000.0' in body
    assert body.count(b"holdfast_oldest_queued_seconds{") == 3
    store.close()
    return median(costs) * 1000


def report(goals: dict[str, bool], sizes: Sequence[int] = SIZES) -> dict[str, float]:
    """Measure both databases, print the costs and add the goals. Return how much the costs grow."""
    print("A request for /metrics")
    growth = {}
    for kind in KINDS:
        costs = []
        for slots in sizes:
            with TemporaryDirectory() as folder, opened(kind, Path(folder)) as (url, read_cpu):
                costs.append(measure(url, slots, read_cpu, Path(folder, "home")))
        growth[kind] = round(costs[-1] / costs[0], 2)
        shown = ", ".join(f"{cost:.1f} ms among {slots:,} slots" for cost, slots in zip(costs, sizes, strict=True))
        print(f"  {kind:10} {shown} = {growth[kind]:.2f} x", flush=True)
        goals[f"metrics: {kind}"] = growth[kind] <= MAX_GROWTH
    return growth


def main(arguments: Sequence[str]) -> int:
    goals: dict[str, bool] = {}
    report(goals, tuple(map(int, arguments)) or SIZES)
    return 0 if all(goals.values()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
