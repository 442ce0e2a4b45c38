"""What the main process of a worker does with the message of a guarded task: revoke, expiry, lost processes, limits.

Celery's in-memory broker has the messages. The tests make the same requests of them as a worker, and call the methods
that its pool of processes calls.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from datetime import timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from billiard.einfo import ExceptionInfo  # type: ignore[import-untyped]  # billiard has no types
from celery import Celery, signals, states
from celery.concurrency.base import BasePool
from celery.exceptions import Retry, TimeLimitExceeded, WorkerLostError
from celery.worker import state as worker_state

from holdfast.engine.states import Outcome, Status
from holdfast.errors import Transient
from holdfast.guard import Guard, Run
from holdfast.guard.celery import GuardedTask, guarded
from holdfast.guard.celery.request import GuardedRequest, revoke
from holdfast.settings import Settings
from tests.support.celery_messages import execute, execute_all, find_answered, get, sent, take
from tests.support.timeouts import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from holdfast.engine.store import Job

SECOND = timedelta(seconds=1)
LONG_AGO = 0.001  # seconds until a message expires


@pytest.fixture
def app() -> Iterator[Celery]:
    made = Celery("shop", broker="memory://", backend="cache+memory://", set_as_current=False)
    yield made
    sent(made)  # empties the queue, because the in-memory broker outlives the app
    worker_state.revoked.clear()
    made.close()


@pytest.fixture
def guard(sqlite_url: str) -> Iterator[Guard]:
    made = Guard(Settings(database=sqlite_url, backoff=SECOND / 50, ring_again=SECOND / 100))
    yield made
    made.close()


class Begun:
    """Runs that have begun and wait."""

    def __init__(self) -> None:
        self._begun, self._go_on = threading.Event(), threading.Event()
        self._threads: list[threading.Thread] = []

    def hold(self) -> None:
        self._begun.set()
        assert self._go_on.wait(PATIENCE_SECONDS)

    def start(self, app: Celery, message: Any) -> None:
        thread = threading.Thread(target=execute, args=(app, message))
        thread.start()
        self._threads.append(thread)
        assert self._begun.wait(PATIENCE_SECONDS)

    def end(self) -> None:
        self._go_on.set()
        for thread in self._threads:
            thread.join()


@pytest.fixture
def runs() -> Iterator[Begun]:
    made = Begun()
    yield made
    made.end()


@pytest.fixture
def make(app: Celery, guard: Guard, runs: Begun) -> Callable[..., GuardedTask]:
    """Make the task. Its argument `how` says what the first attempt does."""

    def make(**options: Any) -> GuardedTask:
        @guarded(app, guard, key="document", name="index", **options)
        def index(run: Run, document: str, how: str = "") -> str:
            if run.attempt == 1:
                match how:
                    case "hold":
                        runs.hold()
                        run.checkpoint()
                    case "transient":
                        raise Transient("rate_limited")
                    case "die":
                        os.kill(os.getpid(), signal.SIGKILL)
            return document

        return index

    return make


@pytest.fixture
def index(make: Callable[..., GuardedTask]) -> GuardedTask:
    return make()


class Received(GuardedRequest):
    """The request of a message, with what became of the message and the events that were sent."""

    def __init__(self, app: Celery, message: Any) -> None:
        self.acks: list[str] = []
        self.events: list[str] = []
        super().__init__(
            message,
            app=app,
            task=app.tasks[message.headers["task"]],
            eventer=SimpleNamespace(enabled=True, send=lambda kind, **_: self.events.append(kind)),
            on_ack=lambda *_: self.acks.append("acknowledged"),
            on_reject=lambda *arguments: self.acks.append("requeued" if arguments[-1] else "rejected"),
        )
        worker_state.task_reserved(self)
        self.task.send_events = True


def receive(app: Celery) -> Received:
    return Received(app, take(app))


def raised(error: Exception) -> ExceptionInfo:
    """Return an error as the pool passes it on."""
    try:
        raise error
    except type(error):
        return ExceptionInfo()


def jobs(task: GuardedTask, key: str = "doc") -> list[Job]:
    return task.work.history(key)


def execute_in_a_process_that_dies(app: Celery, message: Any) -> None:
    child = os.fork()
    if child == 0:
        execute(app, message)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def test_a_call_that_expires_before_it_begins_is_revoked(app: Celery, index: GuardedTask) -> None:
    seen: list[dict[str, Any]] = []

    def hear(**details: Any) -> None:
        seen.append(details)

    result = index.apply_async(("doc",), expires=LONG_AGO)
    joined = index.delay("doc")
    request = receive(app)
    time.sleep(2 * LONG_AGO)
    signals.task_revoked.connect(hear)
    try:
        assert request.revoked()
    finally:
        signals.task_revoked.disconnect(hear)
    assert request.acks == ["acknowledged"]
    assert request not in worker_state.reserved_requests
    assert [job.outcome for job in jobs(index)] == [Outcome.CANCELLED]
    assert [(one["terminated"], one["expired"]) for one in seen] == [(False, True)]
    execute_all(app)
    assert (result.state, joined.state) == (states.REVOKED, states.REVOKED)


def test_a_message_that_expires_after_the_first_attempt_ends_nothing(app: Celery, index: GuardedTask) -> None:
    result = index.apply_async(("doc", "transient"), expires=LONG_AGO)
    assert execute(app, take(app)) == states.RETRY
    request = receive(app)
    time.sleep(0.1)
    assert not request.revoked()
    assert execute(app, request.message) == states.SUCCESS
    assert get(result) == "doc"


def test_a_revoked_call_whose_job_has_ended_stores_its_state_and_calls_the_errback(
    app: Celery, index: GuardedTask
) -> None:
    failed: list[Any] = []

    @app.task(shared=False, name="failed")  # type: ignore[untyped-decorator]  # Celery has no types
    def remember(request: Any, *_: Any) -> None:
        failed.append(request.id)

    result = index.apply_async(("doc",), link_error=remember.s())
    message = take(app)
    result.revoke()
    worker_state.revoked.add(result.id)
    sent(app)
    request = Received(app, message)
    assert not request.revoked()
    execute(app, message)
    assert result.state == states.REVOKED
    execute_all(app)
    assert failed == [result.id]


@pytest.mark.parametrize("expires", [None, LONG_AGO])
def test_a_message_of_an_unknown_call_is_revoked_by_celery(
    app: Celery, index: GuardedTask, expires: float | None
) -> None:
    result = app.send_task("index", ("doc",), expires=expires)
    if expires is None:
        worker_state.revoked.add(result.id)
    request = receive(app)
    time.sleep(2 * LONG_AGO)
    assert request.revoked()
    assert (result.state, request.acks) == (states.REVOKED, ["acknowledged"])
    assert jobs(index) == []


@pytest.mark.parametrize("ids", ["one", "several"])
def test_revoke_cancels_a_job_that_runs(app: Celery, index: GuardedTask, runs: Begun, ids: str) -> None:
    result = index.delay("doc", how="hold")
    runs.start(app, take(app))
    worker = SimpleNamespace(app=app, consumer=None, tset=set)
    revoke(worker, result.id if ids == "one" else [result.id])
    assert [job.outcome for job in jobs(index)] == [Outcome.CANCELLED]
    assert result.id in worker_state.revoked, "Celery does the rest"


def test_a_job_that_is_terminated_is_cancelled_also_where_no_process_can_be_ended(
    app: Celery, index: GuardedTask, runs: Begun
) -> None:
    index.delay("doc", how="hold")
    request = receive(app)
    request.on_accepted(os.getpid(), time.monotonic())
    runs.start(app, request.message)
    request.terminate(BasePool(app=app))
    assert [job.outcome for job in jobs(index)] == [Outcome.CANCELLED]


def test_a_job_that_is_terminated_loses_its_process(app: Celery, index: GuardedTask) -> None:
    index.delay("doc")
    request = receive(app)
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as process:
        try:
            request.on_accepted(process.pid, time.monotonic())
            request.terminate(SimpleNamespace(terminate_job=os.kill), "KILL")
            assert process.wait(PATIENCE_SECONDS) == -signal.SIGKILL
        finally:
            process.kill()
    assert [job.outcome for job in jobs(index)] == [Outcome.CANCELLED]


@pytest.mark.parametrize(("late", "requeue"), [(False, True), (True, False), (False, False)])
def test_a_call_whose_process_is_lost_is_repeated_if_celery_does_not_requeue_it(
    app: Celery, make: Callable[..., GuardedTask], late: bool, requeue: bool
) -> None:
    result = make(acks_late=late, reject_on_worker_lost=requeue).delay("doc", how="die")
    request = receive(app)
    execute_in_a_process_that_dies(app, request.message)
    time.sleep(0.02)
    request.on_failure(raised(WorkerLostError("signal 9")))
    assert (request.acks, result.state) == (["acknowledged"], states.PENDING)
    execute_all(app)
    assert get(result) == "doc"


def test_a_message_whose_process_is_lost_is_requeued_by_celery(app: Celery, index: GuardedTask, runs: Begun) -> None:
    result = index.delay("doc", how="hold")
    request = receive(app)
    runs.start(app, request.message)
    request.on_failure(raised(WorkerLostError("signal 9")))
    assert (request.acks, result.state) == (["requeued"], states.PENDING)
    assert index.work.status("doc").status is Status.INDEXING


def test_an_unknown_call_whose_process_is_lost_fails_as_in_celery(
    app: Celery, make: Callable[..., GuardedTask]
) -> None:
    make(acks_late=False)
    result = app.send_task("index", ("doc",))
    request = receive(app)
    request.on_failure(raised(WorkerLostError("signal 9")))
    assert result.state == states.FAILURE
    with pytest.raises(WorkerLostError):
        get(result)


def test_an_attempt_that_failed_for_now_is_shown_as_retried(app: Celery, make: Callable[..., GuardedTask]) -> None:
    make(acks_late=False).delay("doc", how="transient")
    request = receive(app)
    assert execute(app, request.message) == states.RETRY
    request.on_failure(raised(Retry(exc=Transient("rate_limited"), when=1)))
    assert request.events == ["task-retried"]


def test_a_hard_time_limit_fails_the_job_and_all_its_calls(
    app: Celery, guard: Guard, index: GuardedTask, runs: Begun
) -> None:
    result, joined = index.delay("doc", how="hold"), index.delay("doc")
    request = receive(app)
    runs.start(app, request.message)
    request.on_timeout(soft=False, timeout=7)
    status = index.work.status("doc")
    assert (status.status, status.error and status.error.code) == (Status.FAILED, "time_limit_exceeded")
    assert (request.acks, result.state) == (["acknowledged"], states.FAILURE)
    assert find_answered(guard) == {result.id}
    execute_all(app)
    for one in (result, joined):
        with pytest.raises(TimeLimitExceeded):
            get(one)


def test_a_soft_time_limit_leaves_the_job_to_its_function(app: Celery, index: GuardedTask, runs: Begun) -> None:
    index.delay("doc", how="hold")
    request = receive(app)
    runs.start(app, request.message)
    request.on_timeout(soft=True, timeout=7)
    assert index.work.status("doc").status is Status.INDEXING


def test_a_time_limit_of_a_joined_call_leaves_the_job_alone(app: Celery, index: GuardedTask, runs: Begun) -> None:
    index.delay("doc", how="hold")
    runs.start(app, take(app))
    joined = app.send_task("index", ("doc",))
    request = receive(app)
    assert execute(app, request.message) == "IGNORED"
    request.on_timeout(soft=False, timeout=7)
    assert index.work.status("doc").status is Status.INDEXING
    assert joined.state == states.FAILURE


def test_a_time_limit_of_an_unknown_call_fails_it_as_in_celery(app: Celery, index: GuardedTask) -> None:
    result = app.send_task("index", ("doc",))
    receive(app).on_timeout(soft=False, timeout=7)
    assert result.state == states.FAILURE
    assert jobs(index) == []


def test_a_call_whose_process_is_lost_after_its_job_has_ended_gets_the_result(
    app: Celery, make: Callable[..., GuardedTask]
) -> None:
    index = make(acks_late=False)
    result = index.delay("doc")
    request = receive(app)
    call = index.calls.get(result.id)
    index.work.perform(result.id, lambda _run: "built", requires_result=False)  # and then the process is lost
    sent(app)
    request.on_failure(raised(WorkerLostError("signal 9")))
    assert (request.acks, result.state) == (["acknowledged"], states.PENDING)
    time.sleep(0.05)
    index.work.reconcile()
    execute_all(app)
    assert (result.state, index.calls.claim_answer(call)) == (states.SUCCESS, False)
