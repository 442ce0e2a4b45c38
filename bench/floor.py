"""How much of a bare sqlite3 loop is left: the same statements, with the same parameters, in the same batches.

Our run is recorded statement by statement and then replayed on an empty database through the sqlite3 module alone,
with every parameter ready made. What the replay does not need to do is what the mechanism costs in Python.
"""

from __future__ import annotations

import shutil
import sqlite3
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from bench.noop import Noop, request
from holdfast.clock import SystemClock
from holdfast.db.database import Transaction
from holdfast.db.sqlite import PRAGMAS, SqliteDialect
from holdfast.engine.executor import Executor
from holdfast.engine.rules import Rules
from holdfast.engine.store.factory import open_store

CLAIMS = 100
Step = tuple[str, Any]


@dataclass(frozen=True)
class Floor:
    mode: str
    slots: int
    ours: float
    bare: float

    @property
    def share(self) -> float:
        return self.bare / self.ours


def measure_floor(slots: int = 4000, rounds: int = 3) -> list[Floor]:
    return [best(mode, size, slots, rounds) for mode, size in (("one by one", 1), ("batches of 100", 100))]


def best(mode: str, size: int, slots: int, rounds: int) -> Floor:
    """Interleave our runs with bare ones and keep the best of each: the machine is noisy."""
    ours, bare = [], []
    for _ in range(rounds):
        with TemporaryDirectory() as folder:
            empty = Path(folder) / "empty.db"
            open_store(f"sqlite:///{empty}", rules=Rules(), clock=SystemClock()).close()
            for name in ("ours", "recorded", "bare"):
                shutil.copy(empty, Path(folder) / f"{name}.db")
            ours.append(run(Path(folder) / "ours.db", size, slots))
            steps = record(Path(folder) / "recorded.db", size, slots)
            bare.append(replay(Path(folder) / "bare.db", steps))
    return Floor(mode, slots, min(ours), min(bare))


def run(path: Path, size: int, slots: int) -> float:
    """Admit, claim and commit with the production code; return the seconds."""
    numbers = iter(range(1, slots + 1))
    clock = SystemClock()
    store = open_store(f"sqlite:///{path}", rules=Rules(), clock=clock, ids=lambda: f"job-{next(numbers)}")
    executor = Executor(store, {"noop": Noop()}, holder="bench", clock=clock, rules=Rules())
    started = time.perf_counter()
    for first in range(0, slots, size):
        store.admit([request(f"owner-{first + one}") for one in range(size)])
    while executor.run_next(CLAIMS):
        pass
    seconds = time.perf_counter() - started
    store.close()
    return seconds


def record(path: Path, size: int, slots: int) -> list[Step]:
    """Run once more and write down what is sent to the database."""
    steps: list[Step] = []
    original_run, original_write = Transaction.run, SqliteDialect.begin_write

    class Recorder:
        def __init__(self, cursor: Any) -> None:
            self._cursor = cursor

        def execute(self, sql: str, params: Any) -> Any:
            steps.append((sql, params))
            return self._cursor.execute(sql, params)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._cursor, name)

    class Driver:
        def __init__(self, driver: Any) -> None:
            self._driver = driver

        def cursor(self) -> Any:
            return Recorder(self._driver.cursor())

    def run_recorded(self: Transaction, *args: Any, **kw: Any) -> Any:
        if not isinstance(self._driver, Driver):
            self._driver = Driver(self._driver)
        return original_run(self, *args, **kw)

    def write_recorded(self: SqliteDialect, engine: Any, *, durable: bool) -> Any:
        steps.append(("BEGIN", durable))
        return original_write(self, engine, durable=durable)

    with patch.object(Transaction, "run", run_recorded), patch.object(SqliteDialect, "begin_write", write_recorded):
        run(path, size, slots)
    return [step for step in steps if step[0] != "BEGIN" or isinstance(step[1], bool)]


def replay(path: Path, steps: list[Step]) -> float:
    """Send the same to sqlite3, with nothing in between; return the seconds."""
    connection = sqlite3.connect(path, isolation_level=None)
    for pragma in PRAGMAS:
        connection.execute(f"PRAGMA {pragma}")
    connection.create_function("holdfast_now", 0, SystemClock().now)
    started = time.perf_counter()
    level = True
    for sql, params in steps:
        if sql == "BEGIN":
            if connection.in_transaction:
                connection.execute("COMMIT")
            if params != level:
                connection.execute(f"PRAGMA synchronous={'FULL' if params else 'NORMAL'}")
                level = params
            connection.execute("BEGIN IMMEDIATE")
            continue
        connection.execute(sql, params).fetchall()
    if connection.in_transaction:
        connection.execute("COMMIT")
    seconds = time.perf_counter() - started
    (ready,) = connection.execute("SELECT count(*) FROM slots WHERE state = 'ready'").fetchone()
    assert ready > 0, "the replay did nothing"
    connection.close()
    return seconds
