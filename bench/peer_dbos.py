"""DBOS on one SQLite file at its defaults, with a queue of a workflow that does nothing."""

import sqlite3
import threading

from dbos import DBOS, DBOSClient, run_dbos_database_migrations

QUEUE = "peer"
SYNCHRONOUS = ("OFF", "NORMAL", "FULL", "EXTRA")


class Client:
    """Counts the workflows whose row says that they succeeded."""

    def __init__(self, url: str) -> None:
        run_dbos_database_migrations(system_database_url=url)
        self._client = DBOSClient(system_database_url=url)
        self._counter = sqlite3.connect(url.removeprefix("sqlite:///"), timeout=30, isolation_level=None)

    @property
    def durability(self) -> str:
        # DBOS sets neither pragma, so our plain connection to the same file shows what it gets.
        journal = self._counter.execute("PRAGMA journal_mode").fetchone()[0]
        synchronous = SYNCHRONOUS[self._counter.execute("PRAGMA synchronous").fetchone()[0]]
        return f"SQLite at DBOS's defaults: journal_mode={journal}, synchronous={synchronous}"

    def enqueue(self) -> None:
        self._client.enqueue({"queue_name": QUEUE, "workflow_name": "noop"})

    def finished(self) -> int:
        count = "SELECT count(*) FROM workflow_status WHERE status = 'SUCCESS'"
        return int(self._counter.execute(count).fetchone()[0])

    def close(self) -> None:
        self._counter.close()
        self._client.destroy()


def noop() -> None:
    pass


def work(url: str) -> None:
    DBOS(config={"name": "peer", "system_database_url": url, "log_level": "WARNING"})
    DBOS.workflow(name="noop")(noop)
    DBOS.launch()
    DBOS.register_queue(QUEUE)
    threading.Event().wait()
