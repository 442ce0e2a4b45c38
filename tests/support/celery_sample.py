"""A Celery app to test the test harness itself: its task reports its start and waits at a gate before it finishes.

Reports and gates are kept in the Valkey server that is also the broker. SAMPLE_BROKER_URL is its address.
"""

from __future__ import annotations

import os
from typing import Any

import redis

from tests.support.celery_worker import celery_app
from tests.support.timeouts import PATIENCE_SECONDS

TASK = "sample.work"


class Board:
    """Stores the reports of the tasks and the gates at which they wait. The test and the worker both use it."""

    def __init__(self, url: str) -> None:
        # A task may wait at a gate for longer than the default timeout of the client.
        self._client: Any = redis.Redis.from_url(url, socket_timeout=None)

    def clear(self) -> None:
        self._client.flushdb()

    def note(self, event: str, name: str) -> None:
        self._client.rpush(f"{event}:{name}", os.getpid())

    def told(self, event: str, name: str) -> list[int]:
        """Return the ids of the processes that reported this event, in order."""
        return [int(pid) for pid in self._client.lrange(f"{event}:{name}", 0, -1)]

    def open_gate(self, name: str) -> None:
        """Let one task pass, whether it waits already or arrives later."""
        self._client.rpush(f"gate:{name}", "open")

    def pass_gate(self, name: str) -> None:
        if self._client.blpop([f"gate:{name}"], timeout=PATIENCE_SECONDS) is None:
            raise TimeoutError(f"nobody opened the gate of {name}")

    def close(self) -> None:
        self._client.close()


def work(name: str) -> None:
    board = Board(os.environ["SAMPLE_BROKER_URL"])
    board.note("started", name)
    board.pass_gate(name)
    board.note("finished", name)
    board.close()


def sample_app(broker_url: str, *, visibility_timeout: float = 3600) -> Any:
    app = celery_app("sample", broker_url, visibility_timeout=visibility_timeout)
    app.task(work, name=TASK)
    return app


if "SAMPLE_BROKER_URL" in os.environ:
    app = sample_app(os.environ["SAMPLE_BROKER_URL"], visibility_timeout=float(os.environ["SAMPLE_VISIBILITY_TIMEOUT"]))
