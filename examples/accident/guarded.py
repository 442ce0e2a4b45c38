"""The same task with the guard around it: a decorator, a checkpoint before each payment, a fence in the result's name.

The guard keeps its state in a SQLite file here; a team with several machines names a PostgreSQL database instead.
"""

import json
import os
from datetime import timedelta
from typing import cast

import redis
from celery import Celery

from examples.accident.paid_model import embed
from holdfast.guard import Guard, Run
from holdfast.guard.celery import guarded
from holdfast.settings import Settings

SECOND = timedelta(seconds=1)  # the defaults are a lease of 120 s, renewed every 30 s: too long for a short story

app = Celery("guarded")
app.config_from_object("examples.accident.celeryconfig")
store = redis.Redis.from_url(os.environ["REDIS_URL"], decode_responses=True)
guard = Guard(
    Settings(database=os.environ["GUARD_DATABASE"], lease=4 * SECOND, heartbeat=SECOND, lock_held_delay=SECOND)
)


@guarded(app, guard, key="document", operation="change")
def index_document(run: Run, document: str) -> str:
    """Embed the document as it is now, and write what readers search."""
    text = str(store.get(f"accident:content:{document}"))
    chunks = text.splitlines()
    entries = []
    for number, chunk in enumerate(chunks):
        run.checkpoint(stage="embedding", done=number, total=len(chunks))
        vector = embed(document, chunk)
        entries.append({"text": chunk, "vector": vector})
    store.set(f"accident:result:{document}:{run.fence}", json.dumps(entries))
    return f"{len(entries)} chunks"


def read(document: str) -> str | None:
    """Read what a reader sees: the result that the guard names."""
    fence = guard.works[index_document.name].served(document)
    return None if fence is None else cast("str | None", store.get(f"accident:result:{document}:{fence}"))
