"""Canvases of plain and guarded tasks, with and without accidents, on real workers, Valkey and RabbitMQ.

Each case is a shape and an accident that happens to its first step, the step `a`. The same canvas runs with plain tasks
and with guarded tasks. Without an accident both give the same results. With an accident, the guarded canvas still gives
the same result, does the work once, and continues once, and the test shows what the plain canvas does instead.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
from contextlib import ExitStack, suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from celery import chain, chord, group, states
from celery.events.state import State
from celery.exceptions import TimeLimitExceeded, WorkerLostError
from celery.exceptions import TimeoutError as NoResult
from celery.result import GroupResult

from holdfast.engine.states import Status
from holdfast.errors import GuardedWorkCancelled, Transient
from tests.support.celery_worker import CeleryWorker
from tests.support.processes import until
from tests.support.timeouts import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from types import ModuleType

    from celery import Celery

    from holdfast.engine.store import Job
    from holdfast.guard import Guard
    from tests.support.servers import Postgres, RabbitMQ, Valkey

pytestmark = pytest.mark.celery
MODULE = "tests.support.canvas_tasks"
PARKED = "parked"  # a queue that no worker reads until a test says so
POLL_SECONDS = 0.02


class Steps:
    """Makes the steps of one canvas. What happens to the canvas happens to its step `a`."""

    def __init__(self, tasks: ModuleType, kind: str, case: str, how: str = "", queue: str = "") -> None:
        self._tasks = tasks
        self.kind = kind
        self.case = f"{case}-{kind}"
        self._how = how
        self._queue = queue

    @property
    def key(self) -> str:
        """The key of the step `a`."""
        return f"{self.case}-a"

    def step(self, letter: str, *before: str, task: str = "step", immutable: bool = False) -> Any:
        first = letter == "a"
        signature = self._tasks.app.tasks[f"{self.kind}.{task}"].signature(
            before, {"key": f"{self.case}-{letter}", "how": self._how if first else ""}, immutable=immutable
        )
        return signature.set(queue=self._queue) if first and self._queue else signature

    def after(self) -> Any:
        return self._tasks.after.s(key=self.case)

    def together(self) -> Any:
        return self._tasks.together.s(key=self.case)

    def failed(self) -> Any:
        return self._tasks.failed.s(key=self.case)


class Shape(NamedTuple):
    """A canvas, the result it must give, and how often something continues after a step."""

    make: Callable[[Steps], Any]
    result: Any
    continued: int


START = "start"
SHAPES = {
    "single": Shape(lambda s: s.step("a", START), "start>a", 0),
    "chain": Shape(lambda s: s.step("a", START) | s.after(), "start>a|after", 1),
    "long_chain": Shape(lambda s: s.step("a", START) | s.step("b") | s.after(), "start>a>b|after", 1),
    "group": Shape(
        lambda s: group(s.step("a", START), s.step("b", START), s.step("c", START)),
        ["start>a", "start>b", "start>c"],
        0,
    ),
    "group_in_chain": Shape(
        lambda s: chain(s.step("a", START), group(s.step("b"), s.step("c"))), ["start>a>b", "start>a>c"], 0
    ),
    "chord": Shape(lambda s: chord([s.step("a", START), s.step("b", START)], s.together()), "start>a+start>b", 1),
    "chord_in_chain": Shape(
        lambda s: chain(group(s.step("a", START), s.step("b", START)), s.together(), s.step("c"), s.after()),
        "start>a+start>b>c|after",
        2,
    ),
    "chord_of_chains": Shape(
        lambda s: chord([s.step("a", START) | s.step("c"), s.step("b", START)], s.together()), "start>a>c+start>b", 1
    ),
    "link": Shape(lambda s: s.step("a", START).set(link=[s.after()]), "start>a", 1),
    "immutable": Shape(lambda s: s.step("a", START) | s.step("b", "fixed", immutable=True), "fixed>b", 0),
    "replace": Shape(lambda s: s.step("a", START, task="replaced") | s.after(), "start>a|after|after", 2),
}


def _disconnect(app: Celery) -> None:
    """Close the connections to the result backend, which `Celery.close` leaves open."""
    consumer = app.backend.result_consumer
    consumer.stop()
    consumer.subscribed_to.clear()  # results that Python collects later would unsubscribe at a server that has ended
    app.backend.client.connection_pool.disconnect()


class Stage:
    """Servers, a worker and a reconciler that all cases share."""

    def __init__(self, broker: str, backend: str, folder: Path, *, database: str, pool: str = "prefork") -> None:
        self.folder = folder
        self.environment = {
            "CANVAS_BROKER": broker,
            "CANVAS_BACKEND": backend,
            "CANVAS_DATABASE": database,
            "CANVAS_FOLDER": str(folder),
        }
        self._stack = ExitStack()
        os.environ.update(self.environment)
        sys.modules.pop(MODULE, None)
        self.tasks = importlib.import_module(MODULE)
        self._stack.callback(self.tasks.app.close)
        self._stack.callback(_disconnect, self.tasks.app)
        self._stack.callback(self.guard.close)
        self.worker = self._stack.enter_context(
            CeleryWorker(MODULE, folder, concurrency=4, pool=pool, environment=self.environment)
        )
        self._ended = threading.Event()
        reconciler = threading.Thread(target=self._reconcile)
        reconciler.start()
        self._stack.callback(reconciler.join)
        self._stack.callback(self._ended.set)

    @property
    def guard(self) -> Guard:
        found: Guard = self.tasks.guard
        return found

    def _reconcile(self) -> None:
        while not self._ended.wait(0.3):
            self.guard.reconcile()

    def count(self, name: str, key: str) -> int:
        file = self.folder / name
        return file.read_text().splitlines().count(key) if file.exists() else 0

    def await_count(self, name: str, key: str, count: int = 1) -> None:
        until(lambda: self.count(name, key) == count, f"{name} of {key} is not {count}")

    def release(self, key: str) -> None:
        (self.folder / f"{key}.released").touch()

    def steps(self, case: str, how: str = "", queue: str = "") -> tuple[Steps, Steps]:
        plain, guarded = (Steps(self.tasks, kind, case, how, queue) for kind in ("plain", "guarded"))
        return plain, guarded

    def close(self) -> None:
        self._stack.close()
        for name in self.environment:
            os.environ.pop(name, None)


@pytest.fixture(
    scope="module", params=["valkey", pytest.param("rabbitmq", id="rabbitmq-postgres", marks=pytest.mark.postgres)]
)
def stage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    valkey: Valkey = request.getfixturevalue("valkey")
    backend = valkey.url.replace("/0", "/1")
    broker: RabbitMQ | Valkey = request.getfixturevalue(request.param)
    folder = tmp_path_factory.mktemp(request.param)
    with ExitStack() as stack:
        made = Stage(broker.url, backend, folder, database=_make_database(request, folder, stack))
        stack.callback(made.close)
        yield made


def _make_database(request: pytest.FixtureRequest, folder: Path, stack: ExitStack) -> str:
    """Return a new SQLite database with Valkey, and a PostgreSQL database with RabbitMQ."""
    if request.param == "valkey":
        return f"sqlite:///{folder}/guard.db"
    server: Postgres = request.getfixturevalue("postgres")
    name = f"canvas_{os.getpid()}"
    stack.callback(server.drop_database, name)
    return server.create_database(name)


def get(result: Any) -> Any:
    return result.get(timeout=PATIENCE_SECONDS, interval=POLL_SECONDS)


def get_error(result: Any) -> BaseException:
    """Return what the result of a canvas raises."""
    try:
        value = get(result)
    except NoResult:
        raise
    except Exception as error:  # noqa: BLE001 - whatever the canvas raises
        return error
    raise AssertionError(f"no error but {value!r}")


def require(stage: Stage, steps: Steps, shape: Shape, result: Any, *, times: int = 1, ran: int = 1) -> None:
    """Require that a canvas gave its result, continued once, and ran the step `a` so many times."""
    assert get(result) == shape.result
    until(lambda: stage.count("after", steps.case) >= times * shape.continued, "nothing continues")
    assert stage.count("after", steps.case) == times * shape.continued
    assert stage.count("ran", steps.key) == ran


@pytest.mark.smoke
@pytest.mark.parametrize("name", ["chain", "chord"])
def test_a_guarded_canvas_gives_the_same_result(stage: Stage, name: str) -> None:
    check_no_accident(stage, name, f"smoke_{name}")


@pytest.mark.parametrize("name", SHAPES.keys() - {"chain", "chord"})
def test_without_accidents_plain_and_guarded_canvases_are_the_same(stage: Stage, name: str) -> None:
    check_no_accident(stage, name, f"none_{name}")


def check_no_accident(stage: Stage, name: str, case: str) -> None:
    shape = SHAPES[name]
    began = [(steps, shape.make(steps).apply_async()) for steps in stage.steps(case)]
    for steps, result in began:
        require(stage, steps, shape, result)


@pytest.mark.parametrize("name", SHAPES)
def test_a_message_that_arrives_twice_while_the_task_runs(stage: Stage, name: str) -> None:
    shape = SHAPES[name]
    plain, guarded = stage.steps(f"twice_{name}", "twice")
    results = [shape.make(steps).apply_async() for steps in (plain, guarded)]
    until(lambda: stage.count("ran", plain.key) == 2, "the plain step does not run twice")
    until(lambda: stage.count("ran", guarded.key) == 1, "the guarded step does not run")
    assert first_state(stage, guarded) not in states.READY_STATES
    stage.release(plain.key)
    stage.release(guarded.key)
    require(stage, guarded, shape, results[1])
    get(results[0])


def first_state(stage: Stage, steps: Steps) -> str:
    """Return the state of the step `a` in the result backend."""
    work = stage.guard.works[f"{steps.kind}.step"]
    jobs = work.history(steps.key) or stage.guard.works[f"{steps.kind}.replaced"].history(steps.key)
    return str(stage.tasks.app.AsyncResult(jobs[0].id).state)


@pytest.mark.parametrize("name", SHAPES)
def test_a_worker_process_that_is_killed(stage: Stage, name: str) -> None:
    shape = SHAPES[name]
    plain, guarded = stage.steps(f"kill_{name}", "kill")
    lost, kept = (shape.make(steps).apply_async() for steps in (plain, guarded))
    require(stage, guarded, shape, kept, ran=2)
    assert_failed(lost, WorkerLostError, stage, plain)


def assert_failed(result: Any, error: type[Exception], stage: Stage, steps: Steps) -> None:
    """Require that the plain canvas failed with the accident of its step `a`.

    The result of a chain that ends in a group never ends when a step before the group fails, so that step is read.
    """
    raised = get_error(result.parent if isinstance(result, GroupResult) and result.parent else result)
    assert isinstance(raised, error) or error.__name__ in str(raised), raised
    assert stage.count("ran", steps.key) == 1


@pytest.mark.parametrize("name", SHAPES)
def test_a_transient_failure(stage: Stage, name: str) -> None:
    shape = SHAPES[name]
    plain, guarded = stage.steps(f"transient_{name}", "transient")
    lost, kept = (shape.make(steps).apply_async() for steps in (plain, guarded))
    require(stage, guarded, shape, kept, ran=2)
    assert_failed(lost, Transient, stage, plain)


@pytest.mark.parametrize("name", SHAPES)
def test_a_second_click_while_the_task_runs(stage: Stage, name: str) -> None:
    shape = SHAPES[name]
    plain, guarded = stage.steps(f"click_{name}", "hold")
    results = [(steps, shape.make(steps).apply_async()) for steps in (plain, guarded)]
    until(lambda: stage.count("ran", guarded.key) == 1, "the guarded step does not run")
    results += [(steps, shape.make(steps).apply_async()) for steps in (plain, guarded)]
    until(lambda: stage.count("ran", plain.key) == 2, "the plain step does not run twice")
    stage.release(plain.key)
    stage.release(guarded.key)
    for steps, result in results:
        if steps is guarded:
            require(stage, guarded, shape, result, times=2)
        else:
            assert get(result) == shape.result


@pytest.mark.parametrize("name", SHAPES)
def test_a_queue_that_loses_its_messages(stage: Stage, name: str) -> None:
    shape = SHAPES[name]
    plain, guarded = stage.steps(f"lost_{name}", queue=PARKED)
    app = stage.tasks.app
    lost, kept = (shape.make(steps).apply_async() for steps in (plain, guarded))
    with app.connection_for_write() as connection:
        channel = connection.default_channel
        channel.queue_declare(PARKED, durable=True, auto_delete=False)
        channel.queue_purge(PARKED)
    app.control.add_consumer(PARKED, reply=True, timeout=5)
    try:
        require(stage, guarded, shape, kept)
    finally:
        app.control.cancel_consumer(PARKED, reply=True, timeout=5)
    assert stage.count("ran", plain.key) == 0
    assert not lost.ready()


@pytest.mark.parametrize("name", ["single", "chain", "chord", "link"])
def test_cancelled_work_calls_the_errback_and_ends_the_canvas(stage: Stage, name: str) -> None:
    _, guarded = stage.steps(f"cancel_{name}", "hold")
    result = with_errback(stage, guarded, name).apply_async()
    until(lambda: stage.count("ran", guarded.key) == 1, "the guarded step does not run")
    assert stage.guard.works["guarded.step"].cancel(guarded.key).accepted
    require_cancelled(stage, guarded, result)


@pytest.mark.parametrize("terminate", [False, True])
@pytest.mark.parametrize("name", ["single", "chain", "chord"])
def test_revoke_cancels_the_job_for_good(stage: Stage, name: str, terminate: bool) -> None:
    _, guarded = stage.steps(f"revoke_{name}_{terminate}", "hold")
    result = with_errback(stage, guarded, name).apply_async()
    until(lambda: stage.count("ran", guarded.key) == 1, "the guarded step does not run")
    job = stage.guard.works["guarded.step"].status(guarded.key).job
    stage.tasks.app.control.revoke(job, terminate=terminate)
    until(lambda: stage.guard.works["guarded.step"].status(guarded.key).status is not Status.INDEXING, "it runs on")
    assert [one.outcome for one in stage.guard.works["guarded.step"].history(guarded.key)] == ["cancelled"]
    until(lambda: stage.tasks.app.AsyncResult(job).state == states.REVOKED, "it is not revoked")
    require_cancelled(stage, guarded, result)
    stage.release(guarded.key)
    again = stage.tasks.guarded_step.delay(START, key=guarded.key, how="hold")
    assert again.admission.accepted
    assert get(again) == "start>a"


def with_errback(stage: Stage, steps: Steps, name: str) -> Any:
    """Return the canvas with an errback of its step `a`."""
    first = steps.step("a", START).on_error(steps.failed())
    match name:
        case "chain":
            return first | steps.after()
        case "chord":
            return chord([first, steps.step("b", START)], steps.together())
        case "link":
            return first.set(link=[steps.after()])
    return first


def require_cancelled(stage: Stage, steps: Steps, result: Any) -> None:
    raised = get_error(result)
    assert isinstance(raised, GuardedWorkCancelled) or "cancelled or revoked" in str(raised), raised
    until(lambda: stage.count("failed", steps.case) >= 1, "the errback is not called")
    assert stage.count("failed", steps.case) == 1
    assert stage.count("after", steps.case) == 0
    assert stage.guard.works["guarded.step"].status(steps.key).status is Status.NOT_INDEXED


def test_a_task_that_returns_nothing_succeeds(stage: Stage) -> None:
    for kind in ("plain", "guarded"):
        result = stage.tasks.app.tasks[f"{kind}.nothing"].delay(key=f"nothing-{kind}")
        assert get(result) is None
        assert result.state == states.SUCCESS


def test_an_error_ends_the_canvas_as_in_celery(stage: Stage) -> None:
    for steps in stage.steps("error", "fail"):
        result = (steps.step("a", START).on_error(steps.failed()) | steps.after()).apply_async()
        raised = get_error(result)
        assert (type(raised), str(raised)) == (ValueError, f"{steps.key} is bad")
        stage.await_count("failed", steps.case)
        assert stage.count("after", steps.case) == 0
        assert stage.count("ran", steps.key) == 1


def test_a_task_that_is_sent_by_name_is_admitted_when_it_arrives(stage: Stage) -> None:
    """The sender may be a program without the guard."""
    for steps in stage.steps("byname"):
        result = stage.tasks.app.send_task(
            f"{steps.kind}.step", (START,), {"key": steps.key}, link=steps.after(), task_id=f"id-{steps.case}"
        )
        assert get(result) == "start>a"
        stage.await_count("after", steps.case)
        assert result.id == f"id-{steps.case}"


def test_a_call_that_expires_in_the_queue_is_cancelled(stage: Stage) -> None:
    _, guarded = stage.steps("expired", queue=PARKED)
    result = guarded.step("a", START).apply_async(expires=0.1)
    app = stage.tasks.app
    until(lambda: datetime.now(UTC) > began(stage, guarded) + timedelta(seconds=0.2), "time does not pass")
    app.control.add_consumer(PARKED, reply=True, timeout=5)
    try:
        until(lambda: result.state == states.REVOKED, "it does not expire")
        until(lambda: [one.outcome for one in history(stage, guarded)] == ["cancelled"], "the job is active")
    finally:
        app.control.cancel_consumer(PARKED, reply=True, timeout=5)
    assert stage.count("ran", guarded.key) == 0


def history(stage: Stage, steps: Steps) -> list[Job]:
    return stage.guard.works[f"{steps.kind}.step"].history(steps.key)


def began(stage: Stage, steps: Steps) -> datetime:
    return datetime.fromtimestamp(history(stage, steps)[0].created_at / 1_000_000, UTC)


def test_a_lost_process_after_an_early_acknowledgement_is_repeated(stage: Stage) -> None:
    """Celery alone fails the call, and its chain."""
    _, guarded = stage.steps("early", "kill")
    result = (guarded.step("a", START, task="early") | guarded.after()).apply_async()
    assert get(result) == "start>a|after"
    assert stage.count("ran", guarded.key) == 2
    assert stage.count("after", guarded.case) == 1


def test_a_hard_time_limit_fails_the_job_and_its_joined_calls(stage: Stage) -> None:
    _, guarded = stage.steps("limited", "hold")
    results = [guarded.step("a", START, task="limited").apply_async() for _ in range(2)]
    for result in results:
        assert isinstance(get_error(result), TimeLimitExceeded)
    assert stage.guard.works["guarded.limited"].status(guarded.key).status is Status.FAILED
    assert stage.count("ran", guarded.key) == 1


def test_events_show_what_happened(stage: Stage) -> None:
    """Flower shows the state that these events lead to."""
    app = stage.tasks.app
    seen = State()
    _, twice = stage.steps("events_twice", "twice")
    _, again = stage.steps("events_again", "transient")
    with app.connection_for_read() as connection:
        receiver = app.events.Receiver(connection, handlers={"*": seen.event})
        with receiver.consumer_context(wakeup=False) as (listening, _, _):
            results = [steps.step("a", START).apply_async() for steps in (twice, again)]
            stage.await_count("ran", twice.key)
            stage.release(twice.key)

            def states_of() -> list[str]:
                with suppress(TimeoutError):
                    listening.drain_events(timeout=0.1)
                return [seen.tasks[one.id].state if one.id in seen.tasks else "" for one in results]

            until(lambda: states_of() == [states.SUCCESS, states.SUCCESS], "the events do not show it")
    assert seen.tasks[results[1].id].retried
    assert [get(one) for one in results] == ["start>a", "start>a"]
