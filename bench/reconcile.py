"""What a reconcile pass costs when ten slots need work, among ten thousand and among a million that do not."""

from __future__ import annotations

import sqlite3
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from holdfast.clock import SystemClock
from holdfast.engine.reconciler import Reconciler
from holdfast.engine.rules import Rules
from holdfast.engine.store.factory import open_store

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.engine.slot import Ring

PASSES = 41
FILL = """
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :count)
INSERT INTO {table} SELECT {columns} FROM n
"""
OWNERS = "i, 'bench', 'owner-' || i, 1, NULL, 'success', 1"
SLOTS = (
    "i, i, 'noop', NULL, 'job-' || i, 1, 1, 1, 0, 'ready', 5, 1, NULL, NULL, NULL, 1, 1, 1, NULL, 1, NULL, NULL,"
    " '', 0, 0, 0, 0, NULL"
)
# Five are queued, three were claimed by a worker that is gone, two wait and are due.
NEEDY = (
    "UPDATE slots SET wanted = 2, state = 'queued', rung_at = NULL WHERE id BETWEEN 1 AND 5",
    (
        "UPDATE slots SET wanted = 2, state = 'running', holder = 'elsewhere', until = 2, due_at = 2, rung_at = NULL"
        " WHERE id BETWEEN 6 AND 8"
    ),
    "UPDATE slots SET wanted = 2, state = 'waiting', due_at = 2, rung_at = NULL WHERE id BETWEEN 9 AND 10",
)


class Counting:
    """Takes every ring and counts it."""

    needs_rings = True

    def __init__(self) -> None:
        self.rings = 0

    def start(self, crew: object) -> None:
        """Nothing to start."""

    def room(self, kind: str, outstanding: Callable[[], int]) -> int:  # noqa: ARG002
        return 100 - outstanding()

    def carry(self, rings: Sequence[Ring]) -> None:
        self.rings += len(rings)

    def stop(self) -> None:
        """Nothing to stop."""


@dataclass(frozen=True)
class Pass:
    slots: int
    milliseconds: float


def measure_passes() -> list[Pass]:
    return [_measure(count) for count in (10_000, 1_000_000)]


def _measure(count: int) -> Pass:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "holdfast.db"
        store = open_store(f"sqlite:///{path}", rules=Rules(), clock=SystemClock())
        raw = sqlite3.connect(path, isolation_level=None)
        raw.execute("BEGIN")
        raw.execute(FILL.format(table="owners", columns=OWNERS), {"count": count})
        raw.execute(FILL.format(table="slots", columns=SLOTS), {"count": count})
        raw.execute("COMMIT")
        seconds = []
        for _ in range(PASSES):
            for statement in NEEDY:
                raw.execute(statement)
            counting = Counting()
            reconciler = Reconciler(store, counting, ("noop",), Rules())
            started = time.perf_counter()
            reconciler.reconcile()
            seconds.append(time.perf_counter() - started)
            assert counting.rings == 10, f"{counting.rings} of 10 were rung"
        raw.close()
        store.close()
        return Pass(count, statistics.median(seconds) * 1000)
