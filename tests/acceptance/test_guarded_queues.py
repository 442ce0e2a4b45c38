"""The guard with Dramatiq and RQ: real workers on a real Valkey server."""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.engine.states import Status
from tests.support.processes import ROOT, until
from tests.support.servers import Child

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from holdfast.guard import Work
    from holdfast.guard.messages import MessageTask
    from tests.support.servers import Valkey

MODULE = "tests.support.guarded_queue_tasks"
COMMANDS = {
    "actor": ["-m", "dramatiq", f"{MODULE}:broker", "--processes", "1", "--threads", "2", "--skip-logging"],
    "job": ["-m", "rq.cli", "worker", "guarded", "--with-scheduler", "--url"],
}


class Shop:
    """The tasks as a client sees them, and the workers of one queue."""

    def __init__(self, kind: str, database: str, valkey: Valkey, folder: Path) -> None:
        self.kind = kind
        self.folder = folder
        self.environment = {"QUEUE_DATABASE": database, "QUEUE_ADDRESS": valkey.url, "QUEUE_FOLDER": str(folder)}
        os.environ.update(self.environment)
        sys.modules.pop(MODULE, None)
        self.tasks: Any = importlib.import_module(MODULE)
        self.children: list[Child] = []
        self._last_arguments = [valkey.url] if kind == "job" else []

    @property
    def task(self) -> MessageTask:
        found: MessageTask = getattr(self.tasks, self.kind)
        return found

    @property
    def work(self) -> Work:
        return self.task.work

    def worker(self) -> Child:
        command = [sys.executable, "-W", "ignore", *COMMANDS[self.kind], *self._last_arguments]
        child = Child(command, log=self.folder / "worker.log", cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})
        self.children.append(child)
        return child

    def reconciler(self) -> None:
        command = [sys.executable, "-m", "holdfast.cli", "guard", "reconcile", f"{MODULE}:guard"]
        self.children.append(Child(command, log=self.folder / "reconciler.log", cwd=ROOT, env=dict(os.environ)))

    @property
    def paid(self) -> list[dict[str, Any]]:
        file = self.folder / "paid"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def await_status(self, status: Status, key: str) -> None:
        until(lambda: self.work.status(key).status is status, f"{key} is not {status}: {self.log}")

    @property
    def log(self) -> str:
        file = self.folder / "worker.log"
        return file.read_text()[-2000:] if file.exists() else ""

    def close(self) -> None:
        (self.folder / "released").touch()
        for child in self.children:
            child.end(signal.SIGTERM)
        self.tasks.guard.close()
        self.tasks.broker.close()
        self.tasks.queue.connection.close()
        for name in self.environment:
            os.environ.pop(name)


@pytest.fixture(params=["actor", "job"])
def shop(request: pytest.FixtureRequest, database_url: str, valkey: Valkey, tmp_path: Path) -> Iterator[Shop]:
    made = Shop(request.param, database_url, valkey, tmp_path)
    made.tasks.queue.connection.flushall()
    yield made
    made.close()


@pytest.mark.smoke
def test_a_request_runs_once_in_a_worker_and_a_repeated_message_is_skipped(shop: Shop) -> None:
    asked = shop.task.send("one")
    assert asked.accepted
    assert not shop.task.send("one").accepted
    shop.task._resend(shop.work.job(str(asked.job)))  # the broker delivers twice
    shop.worker()
    shop.await_status(Status.SUCCESS, "one")
    assert shop.task.send("one").reason == "already_indexed"
    second = shop.task.send("two")
    assert second.accepted
    shop.await_status(Status.SUCCESS, "two")
    assert sorted(line["document"] for line in shop.paid) == ["one", "two"]
    assert (shop.folder / f"one.{shop.work.served('one')}").exists()


def test_a_message_that_the_broker_loses_is_sent_again(shop: Shop) -> None:
    shop.task.send("one")
    shop.tasks.queue.connection.flushall()
    shop.worker()
    shop.reconciler()
    shop.await_status(Status.SUCCESS, "one")


def test_the_work_of_a_killed_worker_is_done_by_another(shop: Shop) -> None:
    first = shop.worker()
    shop.task.send("held")
    until(lambda: shop.paid, f"nothing began: {shop.log}")
    os.killpg(first.pid, signal.SIGKILL)
    with suppress(ProcessLookupError):
        os.kill(shop.paid[0]["process"], signal.SIGKILL)  # RQ gives the work a process group of its own
    first.end(signal.SIGKILL)
    shop.children.remove(first)
    (shop.folder / "released").touch()
    shop.worker()
    shop.reconciler()
    shop.await_status(Status.SUCCESS, "held")
    assert [line["attempt"] for line in shop.paid] == [1, 2]


def test_work_that_fails_for_good_is_not_tried_again(shop: Shop) -> None:
    shop.worker()
    shop.task.send("bad")
    shop.await_status(Status.FAILED, "bad")
    assert len(shop.paid) == 1
    error = shop.work.status("bad").error
    assert error is not None
    assert error.code == "bad_document"


def test_a_cancel_stops_the_work_in_the_worker(shop: Shop) -> None:
    shop.worker()
    shop.task.send("held")
    shop.await_status(Status.INDEXING, "held")
    assert shop.work.cancel("held").accepted
    shop.await_status(Status.NOT_INDEXED, "held")
    (shop.folder / "released").touch()
    again = shop.task.send("held")
    assert again.accepted
    shop.await_status(Status.SUCCESS, "held")
