"""The guard prevents the known accidents of plain Celery, tested with real Celery workers and a real Valkey server.

Each test causes one accident. The tasks record their payments, writes and callbacks in files. The tests read the
status and the served result from the database, through their own guard.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
from collections import Counter
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.engine.states import Outcome, Status
from tests.support.celery_worker import CeleryWorker
from tests.support.processes import ROOT, until
from tests.support.servers import Child, Valkey

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import ModuleType

    from holdfast.guard import Guard, Work

pytestmark = pytest.mark.celery
MODULE = "tests.support.guarded_tasks"


class Shop:
    """One app: its tasks as a client sees them, its workers, a reconciler, and the files that they write."""

    def __init__(self, database: str, valkey: Valkey, folder: Path) -> None:
        self.valkey = valkey
        self.folder = folder
        self.environment = {
            "GUARDED_DATABASE": database,
            "GUARDED_BROKER": valkey.url,
            "GUARDED_FOLDER": str(folder),
        }
        self._stack = ExitStack()
        self._tasks: ModuleType | None = None

    @property
    def tasks(self) -> ModuleType:
        """Import the module with the tasks again, with the settings of this app."""
        if self._tasks is None:
            os.environ.update(self.environment)
            sys.modules.pop(MODULE, None)
            self._tasks = importlib.import_module(MODULE)
            self._stack.callback(self._tasks.app.close)
            self._stack.callback(self.guard.close)
        return self._tasks

    @property
    def guard(self) -> Guard:
        found: Guard = self.tasks.guard
        return found

    @property
    def work(self) -> Work:
        return self.guard.works["index"]

    def ask(self, document: str = "doc", operation: str = "index", **kwargs: Any) -> str:
        """Request the work as an app does, and return the id of the job."""
        asking = {"fingerprint": kwargs["text"]} if operation == "change" else {}
        result = self.tasks.index.apply_async((document,), kwargs, operation=operation, **asking)
        assert result.admission.accepted, result.admission
        return str(result.id)

    def worker(self, **options: Any) -> CeleryWorker:
        """Start a worker. It ends with the test at the latest."""
        worker = CeleryWorker(MODULE, self.folder, environment=self.environment, **options)
        return self._stack.enter_context(worker)

    def reconciler(self) -> Child:
        """Start the reconciler with the command that users run beside their workers."""
        command = [sys.executable, "-m", "holdfast.cli", "guard", "reconcile", f"{MODULE}:guard"]
        child = Child(command, log=self.folder / "reconciler.log", cwd=ROOT, env=os.environ | self.environment)
        self._stack.callback(child.end, signal.SIGTERM)
        return child

    def release(self, document: str = "doc") -> None:
        """Let held tasks of this document finish, in this run and in later ones."""
        (self.folder / f"{document}.released").touch()

    def lines(self, name: str) -> list[dict[str, Any]]:
        """Return the records that the tasks wrote to a file."""
        file = self.folder / name
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def paid(self, document: str = "doc") -> int:
        return sum(line["key"] == document for line in self.lines("paid"))

    def read(self, document: str = "doc") -> str | None:
        """Read as an app does: the guard names the result that is served."""
        fence = self.work.served(document)
        return None if fence is None else (self.folder / f"{document}.{fence}").read_text()

    def await_status(self, status: Status, document: str = "doc") -> None:
        until(lambda: self.work.status(document).status is status, f"{document} is not {status}")

    def close(self) -> None:
        self._stack.close()


@pytest.fixture
def shop(database_url: str, valkey: Valkey, tmp_path: Path) -> Iterator[Shop]:
    made = Shop(database_url, valkey, tmp_path)
    try:
        yield made
    finally:
        made.close()
        for name in made.environment:
            os.environ.pop(name, None)
        _flush(valkey)


def _flush(valkey: Valkey) -> None:
    from redis import Redis  # noqa: PLC0415 - beside its only use

    with Redis.from_url(valkey.url) as client:
        client.flushall()


@contextmanager
def setting(shop: Shop, **variables: str) -> Iterator[None]:
    """Set variables that the task module reads when it is imported."""
    shop.environment |= variables
    yield


@pytest.mark.smoke
def test_a_message_delivered_three_times_is_paid_once(shop: Shop) -> None:
    job = shop.ask(text="one")
    for _ in range(2):
        shop.tasks.index.resend(shop.guard.store.job(job))
    worker = shop.worker(concurrency=2)
    until(lambda: worker.log().count("reason=answered") == 2, "not all deliveries were answered")
    assert shop.paid() == 1
    assert shop.read() == "one"
    assert {(line["job"], line["outcome"]) for line in shop.lines("told")} == {(job, "success")}  # callbacks may repeat


def test_a_second_delivery_is_skipped_after_some_attempts_to_get_the_lock(
    shop: Shop,
) -> None:
    with setting(shop, GUARDED_TRIES="2"):
        job = shop.ask(text="one", held=True)
    worker = shop.worker(concurrency=2)
    until(lambda: shop.paid() == 1, "nobody begins")
    shop.tasks.index.resend(shop.guard.store.job(job))
    until(lambda: worker.log().count("reason=lock_held") == 3, "it is not repeated twice")
    assert shop.work.status("doc").status is Status.INDEXING
    shop.release()
    shop.await_status(Status.SUCCESS)
    assert shop.paid() == 1


def test_a_task_longer_than_the_visibility_timeout_is_paid_and_committed_once(shop: Shop) -> None:
    with setting(shop, GUARDED_TIMEOUT="5"):
        shop.ask(text="long", held=True)
    workers = [shop.worker(concurrency=2) for _ in range(2)]

    def delivered() -> int:
        return sum(worker.log().count("received") for worker in workers)

    until(lambda: delivered() >= 3, "the broker does not deliver it again and again")
    shop.release()
    shop.await_status(Status.SUCCESS)

    def answered() -> int:
        return sum(worker.log().count("succeeded in") + worker.log().count("delivery.discarded") for worker in workers)

    until(lambda: answered() == delivered(), "a delivery is still at work")
    assert shop.paid() == 1
    assert len(shop.lines("written")) == 1
    assert [job.outcome for job in shop.work.history("doc")] == [Outcome.SUCCESS]
    logs = "".join(worker.log() for worker in workers)
    assert "reason=lock_held" in logs or "reason=answered" in logs


def test_another_worker_takes_over_when_a_worker_is_killed_in_the_first_run(shop: Shop) -> None:
    shop.reconciler()
    shop.ask(text="one", held=True)
    first = shop.worker()
    until(lambda: shop.paid() == 1, "nobody begins")
    first.kill()
    shop.release()
    shop.worker()
    shop.await_status(Status.SUCCESS)
    assert shop.read() == "one"
    assert shop.paid() == 2  # the first call was running when its worker was killed
    assert len(shop.lines("written")) == 1


def test_the_task_of_a_killed_pool_process_is_taken_over_immediately(shop: Shop) -> None:
    shop.ask(text="one", held=True)
    worker = shop.worker()
    until(lambda: shop.paid() == 1, "nobody begins")
    worker.kill_child()
    shop.release()
    shop.await_status(Status.SUCCESS)
    assert (shop.read(), shop.paid()) == ("one", 2)


def test_a_task_that_kills_every_worker_fails_after_its_last_attempt(shop: Shop) -> None:
    shop.reconciler()
    job = shop.ask(poison=True)
    shop.worker()
    shop.await_status(Status.FAILED)
    assert shop.paid() == 3
    error = shop.work.status("doc").error
    assert error is not None
    assert error.code == "attempts_spent"
    until(lambda: [line["job"] for line in shop.lines("told")] == [job], "nobody is told")


def test_no_job_is_lost_when_the_broker_restarts_empty(shop: Shop) -> None:
    names = [f"doc-{number}" for number in range(5)]
    for name in names:
        shop.ask(name, text=name)
    shop.valkey.crash()
    shop.valkey.restart()
    shop.worker()
    shop.reconciler()
    for name in names:
        shop.await_status(Status.SUCCESS, name)
    assert Counter(line["key"] for line in shop.lines("paid")) == dict.fromkeys(names, 1)


def test_no_job_is_lost_when_the_broker_is_flushed(shop: Shop) -> None:
    shop.reconciler()
    shop.worker()
    shop.ask("running", text="running", held=True)
    until(lambda: shop.paid("running") == 1, "nobody begins")
    shop.ask("waiting", text="waiting")
    _flush(shop.valkey)
    shop.release("running")
    for name in ("running", "waiting"):
        shop.await_status(Status.SUCCESS, name)
        assert (shop.read(name), shop.paid(name)) == (name, 1)


def test_a_cancel_survives_the_death_of_a_worker(shop: Shop) -> None:
    with setting(shop, GUARDED_TIMEOUT="3"):
        shop.ask("other", text="other", held=True)
    first = shop.worker()
    until(lambda: shop.paid("other") == 1, "nobody begins")
    job = shop.ask(text="unwanted")
    assert shop.work.cancel("doc").accepted
    first.kill()
    shop.release("other")
    worker = shop.worker()
    until(lambda: "reason=cancelled" in worker.log(), "the message is not answered")
    assert shop.paid() == 0
    assert shop.guard.store.job(job).outcome is Outcome.CANCELLED


def test_a_change_stops_the_running_generation_and_hides_its_results(shop: Shop) -> None:
    old = shop.ask(operation="change", text="old", held=True)
    worker = shop.worker(concurrency=2)
    until(lambda: shop.paid() == 1, "nobody begins")
    new = shop.ask(operation="change", text="new")
    shop.await_status(Status.SUCCESS)
    assert shop.read() == "new"
    until(lambda: "GuardedWorkSuperseded" in worker.log(), "the old one does not stop")
    assert [line["key"] for line in shop.lines("written")] == ["doc"], "the old one wrote nothing"
    store = shop.guard.store
    assert (store.job(old).outcome, store.job(new).outcome) == (Outcome.SUPERSEDED, Outcome.SUCCESS)


def test_a_late_write_of_a_worker_stopped_past_its_lease_is_never_served(shop: Shop) -> None:
    with setting(shop, GUARDED_LEASE="8"):
        shop.ask(text="the document", deaf=True)
    shop.reconciler()
    first = shop.worker()
    until(lambda: len(shop.lines("deaf")) == 1, "nobody begins")
    late = shop.lines("deaf")[0]
    first.stop(late["process"])
    shop.release()  # the first worker is stopped, so only the second one continues
    second = shop.worker()
    shop.await_status(Status.SUCCESS)
    served = shop.work.served("doc")
    assert served is not None
    assert served > late["fence"]
    (shop.folder / f"doc.{served}").write_text("as committed")
    first.go_on(late["process"])
    until(lambda: any(line["fence"] == late["fence"] for line in shop.lines("written")), "it never wakes")
    until(lambda: "reason=answered" in first.log(), "the late one does not end")
    assert shop.work.served("doc") == served
    assert shop.read() == "as committed"
    assert shop.guard.store.counters()["stale_write_rejected.completed"] == 1
    assert shop.paid() == 2
    assert "stale_write.rejected" in first.log()
    second.terminate()


def test_flushing_the_early_lock_does_not_cause_a_second_run(shop: Shop) -> None:
    with setting(shop, GUARDED_LOCK="1"):
        job = shop.ask(text="one", held=True)
    shop.reconciler()
    worker = shop.worker(concurrency=2)
    until(lambda: shop.paid() == 1, "nobody begins")
    _flush(shop.valkey)
    shop.tasks.index.resend(shop.guard.store.job(job))
    until(lambda: worker.log().count("received") >= 2, "it is not delivered again")
    shop.release()
    shop.await_status(Status.SUCCESS)
    assert (shop.read(), shop.paid()) == ("one", 1)
    assert "Traceback" not in worker.log()


def test_no_job_is_lost_or_repeated_when_redis_pauses_for_thirty_seconds(shop: Shop) -> None:
    with setting(shop, GUARDED_LOCK="1"):
        shop.ask("running", text="running", held=True)
    shop.reconciler()
    shop.worker(concurrency=2)
    until(lambda: shop.paid("running") == 1, "nobody begins")
    shop.ask("waiting", text="waiting")
    os.kill(shop.valkey.pid, signal.SIGSTOP)
    try:
        shop.release("running")
        shop.await_status(Status.SUCCESS, "running")
        with pytest.raises(AssertionError):
            until(lambda: False, "thirty seconds pass", seconds=30)
    finally:
        os.kill(shop.valkey.pid, signal.SIGCONT)
    shop.await_status(Status.SUCCESS, "waiting")
    assert (shop.read("running"), shop.paid("running")) == ("running", 1)
    assert (shop.read("waiting"), shop.paid("waiting")) == ("waiting", 1)
