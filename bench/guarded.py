"""What the guard costs a Celery task that does nothing: `python -m bench.guarded`.

A plain task and a guarded one run in turn, with the same worker, broker and result backend. All CPU counts: the caller,
the worker with its pool, the broker, and the processes of PostgreSQL. The floor is what the guard's transactions cost
without the guard: the same statements, replayed with the driver alone.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest.mock import patch

from celery.app.trace import build_tracer
from sqlalchemy import func, select

from bench.databases import KINDS, opened
from bench.machines import group_cpu
from bench.recording import SYNCED, UNSYNCED, recording, replay
from holdfast.guard import Guard
from holdfast.guard.tables import calls as call_rows
from holdfast.settings import Settings
from tests.support.celery_worker import CeleryWorker
from tests.support.servers import Valkey

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from bench.recording import Recorded

ROUNDS = 5
CALLS = 500  # of each round
SINGLE = 100  # calls of each round that wait for their result
WARM_UP = 50
REPLAYED = 400
TIMES_PLAIN = 2.0
COUNT_ANSWERED = select(func.count()).select_from(call_rows).where(call_rows.c.answered_at.is_not(None))


@dataclass(frozen=True)
class Costs:
    """Milliseconds for each call; the latency is the median from the call to its result."""

    plain_cpu: float
    guarded_cpu: float
    plain_latency: float
    guarded_latency: float


class Numbers:
    """Keys that were never used."""

    def __init__(self) -> None:
        self.last = 0

    def take(self, count: int) -> range:
        self.last += count
        return range(self.last - count, self.last)


def measure(kind: str) -> Costs:
    with TemporaryDirectory() as name, ExitStack() as held:
        folder = Path(name)
        folder.chmod(0o755)  # PostgreSQL may run as another user
        broker = held.enter_context(Valkey(folder))
        url, cpu = held.enter_context(opened(kind, folder, durable=True))
        tasks = _load_tasks(held, broker.url, url)
        worker = held.enter_context(CeleryWorker("bench.guarded_tasks", folder))

        def read_cpu() -> float:
            return cpu() + group_cpu(worker.pid) + group_cpu(broker.pid)

        numbers = Numbers()
        costs: dict[str, list[float]] = {"plain": [], "guarded": []}
        waits: dict[str, list[float]] = {"plain": [], "guarded": []}
        for task in (tasks.plain, tasks.guarded_task):
            _call(task, numbers.take(WARM_UP))
        for _ in range(ROUNDS):
            for task in (tasks.plain, tasks.guarded_task):
                costs[task.name].append(_measure_cpu(task, numbers.take(CALLS), read_cpu))
                waits[task.name] += [_measure_wait(task, key) for key in numbers.take(SINGLE)]
    return Costs(
        plain_cpu=median(costs["plain"]),
        guarded_cpu=median(costs["guarded"]),
        plain_latency=median(waits["plain"]),
        guarded_latency=median(waits["guarded"]),
    )


def _load_tasks(held: ExitStack, broker: str, database: str) -> ModuleType:
    """Import the tasks for these servers, and forget them at the end."""
    held.enter_context(patch.dict(os.environ, {"BENCH_BROKER": broker, "BENCH_DATABASE": database}))
    tasks = importlib.import_module("bench.guarded_tasks")
    held.callback(sys.modules.pop, "bench.guarded_tasks")
    held.callback(tasks.app.close)
    held.callback(tasks.guard.close)
    return tasks


def _call(task: Any, keys: range) -> None:
    for result in [task.delay(key) for key in keys]:
        result.get()


def _measure_cpu(task: Any, keys: range, read_cpu: Callable[[], float]) -> float:
    before = read_cpu()
    _call(task, keys)
    time.sleep(0.3)  # the worker records the last answers
    return (read_cpu() - before) * 1000 / len(keys)


def _measure_wait(task: Any, key: int) -> float:
    began = time.perf_counter()
    task.delay(key).get()
    return (time.perf_counter() - began) * 1000


class Floor(NamedTuple):
    """The guard's transactions alone, for each call: milliseconds, and how many of them write before the result."""

    cpu: float
    latency: float  # of those before the result is stored
    commits: int


def measure_floor(kind: str) -> Floor:
    with TemporaryDirectory() as name, ExitStack() as held:
        folder = Path(name)
        folder.chmod(0o755)
        for part in ("recorded", "bare"):
            (folder / part).mkdir(mode=0o755)
        calls = _record_calls(kind, folder / "recorded")
        url, cpu = held.enter_context(opened(kind, folder / "bare", durable=True))
        bare = Guard(Settings(database=url))
        held.callback(bare.close)
        bare.store.database.read(COUNT_ANSWERED)  # creates the tables
        before = cpu()
        seconds = iter(replay(url, (one for call in calls for one in call)))
        spent = cpu() - before
        ((answered,),) = bare.store.database.read(COUNT_ANSWERED)
        assert answered == REPLAYED, "the replay did something else"
    waits = [sum(list(islice(seconds, len(call)))[:-1]) for call in calls]  # the last one records the answer
    commits = sum(one.kind in (SYNCED, UNSYNCED) for one in calls[-1][:-1])
    return Floor(spent * 1000 / REPLAYED, median(waits) * 1000, commits)


def _record_calls(kind: str, folder: Path) -> list[list[Recorded]]:
    """Run calls in this process, by the code that a worker of Celery uses, and return their transactions."""
    with ExitStack() as held:
        broker = held.enter_context(Valkey(folder))
        url, _ = held.enter_context(opened(kind, folder, durable=True))
        tasks = _load_tasks(held, broker.url, url)
        trace = build_tracer("guarded", tasks.guarded_task, app=tasks.app)
        tasks.guard.store.database.read(COUNT_ANSWERED)  # creates the tables
        calls = []
        for key in range(REPLAYED):
            with recording() as transactions:
                sent = tasks.guarded_task.delay(key)
                delivery = {"routing_key": "celery", "exchange": ""}
                trace(sent.id, (key,), {}, {"id": sent.id, "delivery_info": delivery, "hostname": "bench"})
            calls.append([one for one in transactions if one.statements])
        return calls


def report(goals: dict[str, bool]) -> dict[str, Any]:
    """Print every figure, and note which goals are reached."""
    print(
        "A guarded Celery task that does nothing, next to the same task without the guard; milliseconds for each call"
    )
    figures = {}
    for kind in KINDS:
        costs, floor = measure(kind), measure_floor(kind)
        ratio = costs.guarded_cpu / costs.plain_cpu
        lowest = (costs.plain_cpu + floor.cpu) / costs.plain_cpu
        expected = costs.plain_latency + floor.latency
        print(
            f"  {kind:10}  CPU {costs.guarded_cpu:.2f}, plain {costs.plain_cpu:.2f} = {ratio:.2f} x;"
            f" its transactions alone {floor.cpu:.2f}, so at least {lowest:.2f} x"
        )
        print(
            f"  {'':10}  from call to result p50 {costs.guarded_latency:.1f}, plain {costs.plain_latency:.1f} and"
            f" {floor.commits} commits {floor.latency:.1f} = {costs.guarded_latency / expected:.2f} x"
        )
        goals[f"guard CPU, {kind}"] = ratio <= TIMES_PLAIN
        goals[f"guard latency, {kind}"] = costs.guarded_latency <= expected
        figures[kind] = {
            "cpu": round(ratio, 2),
            "lowest": round(lowest, 2),
            "latency": round(costs.guarded_latency / expected, 2),
        }
    return figures


if __name__ == "__main__":
    reached: dict[str, bool] = {}
    print(json.dumps(report(reached)))
    print(f"  {reached}")
    sys.exit(not all(reached.values()))
