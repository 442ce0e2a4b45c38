"""Documents are indexed by a Celery task, as many teams write it: read, embed each chunk, write the result."""

import json
import os
from typing import cast

import redis
from celery import Celery

from examples.accident.paid_model import embed

app = Celery("plain")
app.config_from_object("examples.accident.celeryconfig")
store = redis.Redis.from_url(os.environ["REDIS_URL"], decode_responses=True)


@app.task(acks_late=True)  # type: ignore[untyped-decorator]  # Celery ships no types
def index_document(document: str) -> None:
    """Embed the document as it is now, and write what readers search."""
    text = str(store.get(f"accident:content:{document}"))
    entries = []
    for chunk in text.splitlines():
        vector = embed(document, chunk)
        entries.append({"text": chunk, "vector": vector})
    store.set(f"accident:result:{document}", json.dumps(entries))


def read(document: str) -> str | None:
    """Read what a reader sees."""
    return cast("str | None", store.get(f"accident:result:{document}"))
