"""One guarded task for Dramatiq and one for RQ. The module reads its settings from the environment.

Each attempt notes that it was paid, and then waits until the test releases its document.
"""

from __future__ import annotations

import json
import os
import time
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from dramatiq.brokers.redis import RedisBroker
from redis import Redis
from rq import Queue

from holdfast.errors import Permanent
from holdfast.guard import Guard
from holdfast.guard.dramatiq import guarded_actor
from holdfast.guard.rq import guarded_job
from holdfast.settings import Settings

if TYPE_CHECKING:
    from holdfast.guard import Run

FOLDER = Path(os.environ["QUEUE_FOLDER"])
SECOND = timedelta(seconds=1)

broker = RedisBroker(url=os.environ["QUEUE_ADDRESS"])  # type: ignore[no-untyped-call]
queue = Queue("guarded", connection=Redis.from_url(os.environ["QUEUE_ADDRESS"]))
guard = Guard(
    Settings(
        database=os.environ["QUEUE_DATABASE"],
        heartbeat=SECOND,
        period=SECOND,
        ring_again=2 * SECOND,
        backoff=SECOND / 5,
        lock_held_delay=SECOND / 2,
    )
)


def work(run: Run, document: str, kind: str) -> str:
    with (FOLDER / "paid").open("a") as file:
        file.write(json.dumps({"document": document, "attempt": run.attempt, "process": os.getpid()}) + "\n")
    if document.startswith("bad"):
        raise Permanent("bad_document")
    while document.startswith("held") and not (FOLDER / "released").exists():
        run.checkpoint()
        time.sleep(0.05)
    (FOLDER / f"{document}.{run.fence}").write_text(kind)
    return kind


@guarded_actor(broker, guard, name="actor")
def actor(run: Run, document: str) -> str:
    return work(run, document, "dramatiq")


@guarded_job(queue, guard, name="job")
def job(run: Run, document: str) -> str:
    return work(run, document, "rq")
