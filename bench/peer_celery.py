"""Celery as its users run it: a prefork worker on a Redis broker, late acknowledgement, results kept."""

from typing import Any

import redis
from celery import Celery

CONCURRENCY = 2


class Client:
    """Counts results by the size of their database, where nothing else is kept."""

    durability = "Valkey without persistence: queue and results are lost when the server crashes"

    def __init__(self, url: str) -> None:
        self._app = build(url)
        self._results = redis.Redis.from_url(results_url(url))

    def enqueue(self) -> None:
        self._app.tasks["noop"].delay()

    def finished(self) -> int:
        return int(self._results.dbsize())

    def close(self) -> None:
        self._results.close()
        self._app.close()


def results_url(url: str) -> str:
    return url.removesuffix("/0") + "/1"


def noop() -> None:
    pass


def build(url: str) -> Any:
    app = Celery("peer", broker=url, backend=results_url(url), set_as_current=False)
    app.conf.update(task_acks_late=True, broker_connection_retry_on_startup=True)
    app.task(noop, name="noop")
    return app


def work(url: str) -> None:
    pool = ["--pool=prefork", f"--concurrency={CONCURRENCY}"]
    build(url).worker_main(["worker", *pool, "--without-gossip", "--without-mingle", "--loglevel=WARNING"])
