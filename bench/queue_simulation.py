"""`python -m bench.queue_simulation [DOCUMENTS]`: the queue of 1,000,000,000 documents, one hour, without a database.

Bases are placed on databases, because a base needs one database and no search reads two. Then the queue of each
database is simulated for an hour with the decisions of production (`bench/queue_model.py`): documents change, rings are
lost, attempts fail, workers die. The same seed gives the same result. The costs of statements are those that
docs/decisions/0023-postgresql-in-production.md measured with a million documents.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from dataclasses import dataclass
from heapq import heapify, heapreplace
from random import Random
from statistics import median
from typing import TYPE_CHECKING

from bench.queue_model import Kind, Load, SimulatedQueue

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.queue_model import Outcome

DOCUMENTS = 1_000_000_000
BASES = 100_000
DATABASES = 100
CHANGED_PER_DAY = 0.01  # of all documents
UTILISATION = 0.6  # of the workers
IMPORTED = 20_000  # documents at once, with the priority of most others
HOUR, DAY = 3600.0, 86_400.0
# Assumptions, not measurements: seconds of an attempt on average.
SECONDS = {"content": 0.3, "fulltext": 0.05, "vector": 0.2}
NEEDS = {"content": None, "fulltext": "content", "vector": "content"}
# Measured: CPU seconds of PostgreSQL and the process that calls it. A worker commits slow attempts one by one.
ADMIT, CLAIM_AND_COMPLETE = 0.0025, 0.0035


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """One database after its hour."""

    documents: int
    workers: int
    outcome: Outcome

    @property
    def cpu(self) -> float:
        """The share of a processor that the statements of the queue need."""
        return (self.outcome.arrived * ADMIT + self.outcome.attempts * CLAIM_AND_COMPLETE) / HOUR


def base_sizes(documents: int, bases: int) -> list[int]:
    """Return sizes of bases, largest first: the second is half as large as the first, the third a third."""
    share = documents / sum(1 / rank for rank in range(1, bases + 1))
    return [max(1, round(share / rank)) for rank in range(1, bases + 1)]


def place(sizes: Sequence[int], databases: int) -> list[int]:
    """Place each base, largest first, on the database with the fewest documents; return documents by database."""
    filled = [0] * databases
    heapify(filled)
    for size in sizes:
        heapreplace(filled, filled[0] + size)
    return sorted(filled, reverse=True)


def make_kinds(changes: float) -> tuple[Kind, ...]:
    """Return the kinds of work with enough workers for the changes in a second."""
    return tuple(
        Kind(name=name, needs=NEEDS[name], seconds=mean, workers=math.ceil(changes * mean / UTILISATION) + 1)
        for name, mean in SECONDS.items()
    )


def simulate_hour(documents: int, seed: int, **more: float | tuple[float, float]) -> Simulated:
    """Simulate an hour of a database with so many documents, and then the end of the work that had arrived."""
    changes = documents * CHANGED_PER_DAY / DAY
    kinds = make_kinds(changes)
    queue = SimulatedQueue(Load(kinds=kinds, changes=changes, seconds=HOUR, **more), Random(seed))  # type: ignore[arg-type]
    queue.run()
    return Simulated(documents=documents, workers=sum(kind.workers for kind in kinds), outcome=queue.drain())


def report_placement(filled: Sequence[int], largest: int) -> None:
    print(
        f"  {len(filled)} databases: the middle one has {median(filled):,.0f} documents, the fullest {filled[0]:,};"
        f" the largest base {largest:,}"
    )


def report_hour(found: Sequence[Simulated]) -> dict[str, bool]:
    """Print what the hour of all databases cost; return what has to be true."""
    outcomes = [one.outcome for one in found]
    slots = sum(one.built + one.failed for one in outcomes)
    attempts = sum(one.attempts for one in outcomes)
    actions = {name: sum(one.actions[name] for one in outcomes) for name in sorted(outcomes[0].actions)}
    print(
        f"  {sum(one.arrived for one in outcomes):,} changed documents, {slots:,} slots, {attempts:,} attempts"
        f" ({attempts / slots - 1:.2%} repeated)"
    )
    failed, refused = sum(one.failed for one in outcomes), sum(one.refused for one in outcomes)
    print(f"  {failed} slots failed, {refused} late results refused")
    print(f"  decisions: {', '.join(f'{name} {number:,}' for name, number in actions.items())}")
    middle = sorted(found, key=lambda one: one.documents)[len(found) // 2]
    for name, one in (("middle", middle), ("fullest", found[0])):
        delays = ", ".join(
            f"{kind} {one.outcome.delay(kind, 0.95):.1f} and {one.outcome.delay(kind, 0.99):.1f}"
            for kind in ("urgent", *SECONDS)
        )
        print(
            f"  {name} database: {one.workers} workers, at most {one.outcome.most_active} slots not at rest,"
            f" statements of the queue {one.cpu:.1%} of a processor"
        )
        print(f"    seconds after which 95 % and 99 % are done: {delays}")
    return {
        "all work comes to rest": all(one.left == 0 for one in outcomes),
        "attempts are bounded": attempts < 1.1 * slots,
        "99 % of urgent work is done within two minutes": all(one.delay("urgent", 0.99) <= 120 for one in outcomes),
    }


def report_disturbances(documents: int, seed: int) -> dict[str, bool]:
    """Simulate disturbances of one database: how long until the queue is as short as before."""
    quiet = simulate_hour(documents, seed).outcome
    outage = simulate_hour(documents, seed, outage=(600.0, 1200.0)).outcome
    paused = simulate_hour(documents, seed, paused=(600.0, 1200.0)).outcome
    imported = simulate_hour(documents, seed, backlog=IMPORTED).outcome
    for name, one in (
        ("nothing", quiet),
        ("provider down for 10 min", outage),
        ("queue paused for 10 min", paused),
        (f"import of {IMPORTED:,}", imported),
    ):
        print(
            f"  {name}: at most {one.most_active:,} slots not at rest; 95 % done after"
            f" {one.delay('vector', 0.95):.1f} s (vector), {one.delay('urgent', 0.95):.1f} s (urgent);"
            f" {one.failed} failed"
        )
    return {
        "an outage fails nothing": outage.failed <= quiet.failed + 2,
        "a pause fails nothing": paused.failed <= quiet.failed + 2,
        "urgent work passes an import": imported.delay("urgent", 0.95) <= 30,
    }


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.queue_simulation")
    parser.add_argument("documents", type=int, nargs="?", default=DOCUMENTS)
    parser.add_argument("--bases", type=int, default=BASES)
    parser.add_argument("--databases", type=int, default=DATABASES)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(arguments)
    began = time.monotonic()
    print(f"One hour of {given.documents:,} documents in {given.bases:,} bases, {CHANGED_PER_DAY:.0%} changed per day")
    sizes = base_sizes(given.documents, given.bases)
    filled = place(sizes, given.databases)
    report_placement(filled, sizes[0])
    goals = report_hour([simulate_hour(documents, given.seed + number) for number, documents in enumerate(filled)])
    print("Disturbances of the middle database")
    goals |= report_disturbances(filled[len(filled) // 2], given.seed)
    print(f"  {'all goals met' if all(goals.values()) else goals}; simulated in {time.monotonic() - began:.0f} s")
    return 0 if all(goals.values()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
