"""`python -m bench.writes`: what a write on PostgreSQL costs beside its own statements.

Before the commit of a write, Holdfast reads the id of the transaction, so that a commit without a reply can be looked
up (`PostgresDialect.prepare_commit`). A connection of the pool is tested before it is used, if it was idle for long.
Each operation runs in turn as it is, without the lookup, and with a test of each connection, because the machine is
noisy. CPU time of this process and of its PostgreSQL backends is compared.
"""

from __future__ import annotations

import itertools
import sys
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING
from unittest.mock import patch

from bench.databases import opened
from holdfast.clock import SystemClock
from holdfast.db import postgres
from holdfast.engine.admission import Request
from holdfast.engine.dependencies import SlotSpec
from holdfast.engine.rules import Rules
from holdfast.engine.slot import BuildResult, Progress
from holdfast.engine.states import Operation
from holdfast.engine.store.base import Completion, LeaseRenewal
from holdfast.engine.store.factory import open_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from holdfast.engine.store.sql_store import SqlStore

ROUNDS, REPEATS = 15, 40
LARGEST_SHARE = 0.1  # of the CPU of a write
SLOTS = (SlotSpec("content"),)


@contextmanager
def as_it_is() -> Iterator[None]:
    yield


@contextmanager
def without_lookup() -> Iterator[None]:
    with patch.object(postgres.PostgresDialect, "prepare_commit", lambda *_: None):
        yield


@contextmanager
def with_test_of_connection() -> Iterator[None]:
    with patch.object(postgres, "PING_AFTER_SECONDS", -1.0):
        yield


VARIANTS = {"as it is": as_it_is, "no lookup": without_lookup, "test each time": with_test_of_connection}


class Writes:
    """The frequent writes of a worker and of a request."""

    def __init__(self, store: SqlStore) -> None:
        self._store = store
        self._numbers = itertools.count()
        self._admit()
        (self._held,) = store.claim_next(["content"], "bench", 1)

    def operations(self) -> dict[str, Callable[[], object]]:
        return {
            "admit a document": self._admit,
            "claim and complete": self._claim,
            "heartbeat": self._renew,
            "claim nothing": lambda: self._store.claim_next(["nothing"], "bench", 1),
        }

    def _admit(self) -> None:
        owner = str(next(self._numbers))
        self._store.admit([Request(base="bench", owner=owner, operation=Operation.INDEX, slots=SLOTS)])

    def _renew(self) -> None:
        self._store.extend([LeaseRenewal(ticket=self._held, progress=Progress(), progressed=True)])

    def _claim(self) -> None:
        tickets = self._store.claim_next(["content"], "bench", 1)
        self._store.complete([Completion(ticket=ticket, built=BuildResult()) for ticket in tickets])


def measure(operation: Callable[[], object], cpu: Callable[[], float]) -> dict[str, float]:
    """Return the CPU microseconds of an operation in each variant."""
    costs: dict[str, list[float]] = {name: [] for name in VARIANTS}
    for _ in range(ROUNDS):
        for name, variant in VARIANTS.items():
            with variant():
                operation()
                began = cpu()
                for _ in range(REPEATS):
                    operation()
                costs[name].append((cpu() - began) / REPEATS * 1e6)
    return {name: median(found) for name, found in costs.items()}


def report(goals: dict[str, bool]) -> dict[str, float]:
    print("Writes on PostgreSQL; CPU, and the share of the lookup of the transaction")
    shares = {}
    with TemporaryDirectory() as folder, opened("postgresql", Path(folder)) as (url, read_cpu):
        store = open_store(url, rules=Rules(), clock=SystemClock())
        for name, operation in Writes(store).operations().items():
            found = measure(operation, read_cpu)
            usual = found["as it is"]
            shares[name] = round(1 - found["no lookup"] / usual, 3)
            print(
                f"  {name:20} {usual:6.0f} µs; without the lookup {found['no lookup']:6.0f} µs = {shares[name]:4.0%};"
                f" with a test of each connection {found['test each time']:6.0f} µs"
            )
            goals[f"lookup: {name}"] = shares[name] <= LARGEST_SHARE
        store.close()
    return shares


if __name__ == "__main__":
    reached: dict[str, bool] = {}
    report(reached)
    sys.exit(not all(reached.values()))
