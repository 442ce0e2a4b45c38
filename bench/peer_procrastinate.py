"""Procrastinate on a PostgreSQL that syncs every commit, one worker running two jobs at a time."""

from typing import Any

import psycopg
from procrastinate import App, PsycopgConnector, SyncPsycopgConnector

CONCURRENCY = 2


class Client:
    """Counts the jobs whose row says that they succeeded."""

    durability = "PostgreSQL with fsync on: every step of a job is a synced commit"

    def __init__(self, url: str) -> None:
        self._app, self._noop = build(SyncPsycopgConnector(conninfo=url))
        self._app.open()
        self._app.schema_manager.apply_schema()
        self._counter = psycopg.connect(url, autocommit=True)

    def enqueue(self) -> None:
        self._noop.defer()

    def finished(self) -> int:
        count = "SELECT count(*) FROM procrastinate_jobs WHERE status = 'succeeded'"
        row = self._counter.execute(count).fetchone()
        return int(row[0]) if row else 0

    def close(self) -> None:
        self._counter.close()
        self._app.close()


async def noop() -> None:
    """Do nothing on the event loop: a plain function would cost a thread as well."""


def build(connector: Any) -> tuple[Any, Any]:
    app = App(connector=connector)
    return app, app.task(name="noop")(noop)


def work(url: str) -> None:
    app, _ = build(PsycopgConnector(conninfo=url))
    app.run_worker(concurrency=CONCURRENCY)
