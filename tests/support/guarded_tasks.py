"""A Celery app with one guarded task for the acceptance tests. It reads its settings from the environment.

Each attempt records a payment, as a paid provider would, and writes its result to a file outside the database whose
name contains the fence. The guard decides which file is served.
"""

from __future__ import annotations

import json
import os
import signal
import time
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.guard import Guard
from holdfast.guard.celery import guarded, reconcile_by_beat
from holdfast.guard.lock import EarlyLock
from holdfast.settings import Settings
from tests.support.celery_worker import celery_app

if TYPE_CHECKING:
    from holdfast.guard import Finished, Run

FOLDER = Path(os.environ["GUARDED_FOLDER"])
BROKER = os.environ["GUARDED_BROKER"]
SECOND = timedelta(seconds=1)
STEP_SECONDS = 0.1

app = celery_app("guarded", BROKER, visibility_timeout=float(os.environ.get("GUARDED_TIMEOUT", "3600")))
guard = Guard(
    Settings(
        database=os.environ["GUARDED_DATABASE"],
        lease=float(os.environ.get("GUARDED_LEASE", "120")) * SECOND,
        heartbeat=SECOND,
        period=SECOND,
        ring_again=2 * SECOND,
        backoff=SECOND / 5,
        attempts=3,
        lock_held_delay=SECOND / 2,
        lock_held_tries=int(os.environ.get("GUARDED_TRIES", "10")),
    ),
    lock=EarlyLock(BROKER, ttl=3 * SECOND, extend=SECOND) if "GUARDED_LOCK" in os.environ else None,
)


def note(name: str, **facts: Any) -> None:
    """Append a JSON line to a file that all processes share."""
    line = json.dumps({**facts, "process": os.getpid(), "at": time.time()}) + "\n"
    with (FOLDER / name).open("ab", buffering=0) as file:
        file.write(line.encode())


def tell(end: Finished) -> None:
    note("told", key=end.key, job=end.job, outcome=end.outcome)


@guarded(app, guard, key="document", name="index", on_finished=tell)
def index(
    run: Run, document: str, *, text: str = "", held: bool = False, deaf: bool = False, poison: bool = False
) -> str:
    """Pay, wait until the test releases it, with checkpoints (`held`) or without (`deaf`), and write the result."""
    note("paid", key=document, generation=run.generation, fence=run.fence)
    if poison:
        os.kill(os.getpid(), signal.SIGKILL)
    released = FOLDER / f"{document}.released"
    while held and not released.exists():
        run.checkpoint(stage="embedding")
        time.sleep(STEP_SECONDS)
    if deaf:
        note("deaf", key=document, fence=run.fence)
    while deaf and not released.exists():
        time.sleep(STEP_SECONDS)
    (FOLDER / f"{document}.{run.fence}").write_text(text)
    note("written", key=document, fence=run.fence)
    return "written"


app.conf.beat_schedule = {"guard": reconcile_by_beat(app, guard)}
