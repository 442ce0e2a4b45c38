"""Huey on one SQLite file at its defaults, with two worker threads."""

from typing import Any

from huey import SqliteHuey

WORKERS = 2
SYNCHRONOUS = ("OFF", "NORMAL", "FULL", "EXTRA")


class Client:
    """Counts rows in the result store, which holds nothing but results here."""

    def __init__(self, url: str) -> None:
        self._huey, self._noop = build(url)

    @property
    def durability(self) -> str:
        journal = self._huey.storage.sql("PRAGMA journal_mode", results=True)[0][0]
        synchronous = SYNCHRONOUS[self._huey.storage.sql("PRAGMA synchronous", results=True)[0][0]]
        settings = f"SQLite at Huey's defaults: journal_mode={journal}, synchronous={synchronous}"
        return f"{settings}; a job is deleted when taken, so a worker's crash loses it"

    def enqueue(self) -> None:
        self._noop()

    def finished(self) -> int:
        return int(self._huey.result_count())

    def close(self) -> None:
        self._huey.storage.close()


def noop() -> bool:
    """Return something, because Huey records no state for a task that returns None."""
    return True


def build(url: str) -> tuple[Any, Any]:
    huey = SqliteHuey("peer", filename=url.removeprefix("sqlite:///"))
    return huey, huey.task(name="noop")(noop)


def work(url: str) -> None:
    huey, _ = build(url)
    huey.create_consumer(workers=WORKERS).run()
