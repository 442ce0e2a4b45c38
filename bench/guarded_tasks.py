"""A Celery app with the same task plain and guarded: `celery -A bench.guarded_tasks worker`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from celery import Celery

from holdfast.guard import Guard
from holdfast.guard.celery import guarded
from holdfast.settings import Settings

if TYPE_CHECKING:
    from holdfast.guard import Run

BROKER = os.environ["BENCH_BROKER"]

app = Celery("guarded", broker=BROKER, backend=f"{BROKER.removesuffix('/0')}/1", set_as_current=False)
app.conf.update(task_acks_late=True, worker_prefetch_multiplier=4)
guard = Guard(Settings(database=os.environ["BENCH_DATABASE"]))


@app.task(name="plain")  # type: ignore[untyped-decorator]  # Celery has no types
def plain(key: int) -> int:
    return key


@guarded(app, guard, key="key", name="guarded")
def guarded_task(_run: Run, key: int) -> int:
    return key
