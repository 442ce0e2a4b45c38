"""The guard around real Celery workers on a real Valkey: everything that goes wrong on plain Celery, and does not here.

Each test is one accident. What was paid, written and told is read from files that the tasks leave behind; what stands
is read from the database through a guard of our own.
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
    """One app: its tasks as a client sees them, workers, a reconciler, and what they left behind."""

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
        """The module of tasks, imported anew for this app."""
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
        """Ask for the work as an app does, and return the id of its job."""
        asking = {"fingerprint": kwargs["text"]} if operation == "change" else {}
        result = self.tasks.index.apply_async((document,), kwargs, operation=operation, **asking)
        assert result.admission.accepted, result.admission
        return str(result.id)

    def worker(self, **options: Any) -> CeleryWorker:
        """Start a worker; it ends with the test at the latest."""
        worker = CeleryWorker(MODULE, self.folder, environment=self.environment, **options)
        return self._stack.enter_context(worker)

    def reconciler(self) -> Child:
        """Start the command that a team runs beside its workers."""
        command = [sys.executable, "-m", "holdfast.cli", "guard", "reconcile", f"{MODULE}:guard"]
        child = Child(command, log=self.folder / "reconciler.log", cwd=ROOT, env=os.environ | self.environment)
        self._stack.callback(child.end, signal.SIGTERM)
        return child

    def release(self, document: str = "doc") -> None:
        """Let work that is held end, now and whenever it is done again."""
        (self.folder / f"{document}.released").touch()

    def lines(self, name: str) -> list[dict[str, Any]]:
        """Read what the tasks noted."""
        file = self.folder / name
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def paid(self, document: str = "doc") -> int:
        return sum(line["key"] == document for line in self.lines("paid"))

    def read(self, document: str = "doc") -> str | None:
        """Read as a reader does: the guard says which result is served."""
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
    """Set what the task module reads when it is imported."""
    shop.environment |= variables
    yield


# ---------------------------------------------------------------- delivered twice


@pytest.mark.smoke
def test_a_message_delivered_three_times_is_paid_once(shop: Shop) -> None:
    job = shop.ask(text="one")
    for _ in range(2):
        shop.tasks.index.resend(shop.guard.store.job(job))
    worker = shop.worker(concurrency=2)
    until(lambda: worker.log().count("'reason': 'already_success'") == 2, "not all deliveries were answered")
    assert shop.paid() == 1
    assert shop.read() == "one"
    assert {(line["job"], line["outcome"]) for line in shop.lines("told")} == {(job, "success")}  # at least once


def test_a_held_lock_is_asked_for_some_times_and_then_the_delivery_is_skipped_while_the_work_goes_on(
    shop: Shop,
) -> None:
    with setting(shop, GUARDED_TRIES="2"):
        job = shop.ask(text="one", held=True)
    worker = shop.worker(concurrency=2)
    until(lambda: shop.paid() == 1, "nobody begins")
    shop.tasks.index.resend(shop.guard.store.job(job))
    until(lambda: "'verdict': 'skipped', 'reason': 'lock_held'" in worker.log(), "never given up")
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
        return sum(worker.log().count("succeeded in") for worker in workers)

    until(lambda: answered() == delivered(), "a delivery is still at work")
    assert shop.paid() == 1
    assert len(shop.lines("written")) == 1
    assert [job.outcome for job in shop.work.history("doc")] == [Outcome.SUCCESS]
    logs = "".join(worker.log() for worker in workers)
    assert "'verdict': 'lock_held'" in logs or "'reason': 'already_success'" in logs


# ---------------------------------------------------------------- killed


def test_a_worker_killed_in_the_first_run_ever_is_taken_over(shop: Shop) -> None:
    shop.reconciler()
    shop.ask(text="one", held=True)
    first = shop.worker()
    until(lambda: shop.paid() == 1, "nobody begins")
    first.kill()
    shop.release()
    shop.worker()
    shop.await_status(Status.SUCCESS)
    assert shop.read() == "one"
    assert shop.paid() == 2  # the first was under way when it died
    assert len(shop.lines("written")) == 1


def test_a_killed_child_of_the_pool_is_taken_over_at_once(shop: Shop) -> None:
    shop.ask(text="one", held=True)
    worker = shop.worker()
    until(lambda: shop.paid() == 1, "nobody begins")
    worker.kill_child()
    shop.release()
    shop.await_status(Status.SUCCESS)
    assert (shop.read(), shop.paid()) == ("one", 2)


def test_a_task_that_kills_every_worker_ends_as_failed_after_its_attempts(shop: Shop) -> None:
    shop.reconciler()
    job = shop.ask(poison=True)
    shop.worker()
    shop.await_status(Status.FAILED)
    assert shop.paid() == 3
    error = shop.work.status("doc").error
    assert error is not None
    assert error.code == "attempts_spent"
    until(lambda: [line["job"] for line in shop.lines("told")] == [job], "nobody is told")


# ---------------------------------------------------------------- the broker forgets


def test_a_broker_that_was_restarted_empty_loses_nothing(shop: Shop) -> None:
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


def test_a_broker_flushed_while_work_runs_and_waits_loses_nothing(shop: Shop) -> None:
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


def test_a_cancel_outlives_the_worker_that_would_have_forgotten_it(shop: Shop) -> None:
    with setting(shop, GUARDED_TIMEOUT="3"):
        shop.ask("other", text="other", held=True)
    first = shop.worker()
    until(lambda: shop.paid("other") == 1, "nobody begins")
    job = shop.ask(text="unwanted")
    assert shop.work.cancel("doc").accepted
    first.kill()
    shop.release("other")
    worker = shop.worker()
    until(lambda: "'reason': 'already_cancelled'" in worker.log(), "the message is not answered")
    assert shop.paid() == 0
    assert shop.guard.store.job(job).outcome is Outcome.CANCELLED


# ---------------------------------------------------------------- old work and new


def test_a_change_stops_the_running_generation_and_nothing_of_it_is_seen(shop: Shop) -> None:
    old = shop.ask(operation="change", text="old", held=True)
    worker = shop.worker(concurrency=2)
    until(lambda: shop.paid() == 1, "nobody begins")
    new = shop.ask(operation="change", text="new")
    shop.await_status(Status.SUCCESS)
    assert shop.read() == "new"
    until(lambda: "'outcome': 'superseded'" in worker.log(), "the old one does not stop")
    assert [line["key"] for line in shop.lines("written")] == ["doc"], "the old one wrote nothing"
    store = shop.guard.store
    assert (store.job(old).outcome, store.job(new).outcome) == (Outcome.SUPERSEDED, Outcome.SUCCESS)


def test_a_worker_stopped_past_its_lease_writes_late_and_no_reader_sees_it(shop: Shop) -> None:
    with setting(shop, GUARDED_LEASE="8"):
        shop.ask(text="the document", deaf=True)
    shop.reconciler()
    first = shop.worker()
    until(lambda: len(shop.lines("deaf")) == 1, "nobody begins")
    late = shop.lines("deaf")[0]
    first.stop(late["process"])
    shop.release()  # it is stopped, so only the other one gets on
    second = shop.worker()
    shop.await_status(Status.SUCCESS)
    served = shop.work.served("doc")
    assert served is not None
    assert served > late["fence"]
    (shop.folder / f"doc.{served}").write_text("as committed")
    first.go_on(late["process"])
    until(lambda: any(line["fence"] == late["fence"] for line in shop.lines("written")), "it never wakes")
    until(lambda: "succeeded in" in first.log(), "the late one does not end")
    assert shop.work.served("doc") == served
    assert shop.read() == "as committed"
    assert shop.guard.store.counters()["stale_write_rejected.completed"] == 1
    assert shop.paid() == 2
    assert "stale" in first.log() or "superseded" in first.log() or "already_success" in first.log()
    second.terminate()


# ---------------------------------------------------------------- the early lock


def test_the_early_lock_may_be_flushed_while_work_runs(shop: Shop) -> None:
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


def test_a_redis_paused_for_thirty_seconds_loses_and_doubles_nothing(shop: Shop) -> None:
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
