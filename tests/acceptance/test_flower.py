"""Flower shows the true state of guarded tasks, tested with the real Flower, real workers and a real Valkey.

Flower computes the state of a task from the events of workers, and a caller reads the result backend. Both must show
the same state, and never a final one before the end.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import pytest
from celery import states

from holdfast.engine.states import Status
from tests.acceptance.test_canvas import PARKED, START, Stage, Steps, get
from tests.support.flower_server import Flower
from tests.support.processes import until
from tests.support.timeouts import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.guard import Work
    from tests.support.servers import Valkey

pytestmark = pytest.mark.celery
FINAL_EVENTS = {"task-succeeded", "task-failed", "task-revoked"}


class Recorder:
    """Keeps the events of all workers, as they arrive."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._events: list[dict[str, Any]] = []
        self._ended = threading.Event()
        self._listening = threading.Event()
        self._thread = threading.Thread(target=self._listen)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._listening.wait(PATIENCE_SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def of(self, task_id: str) -> list[dict[str, Any]]:
        return [event for event in self._events if event.get("uuid") == task_id]

    def final(self, task_id: str) -> list[str]:
        """Return the types of the events that gave a task a final state."""
        return [event["type"] for event in self.of(task_id) if event["type"] in FINAL_EVENTS]

    def count(self, task_id: str, kind: str) -> int:
        return sum(event["type"] == kind for event in self.of(task_id))

    def _listen(self) -> None:
        with self._app.connection_for_read() as connection:
            receiver = self._app.events.Receiver(connection, handlers={"*": self._events.append})
            with receiver.consumer_context(wakeup=False) as (listening, _, _):
                self._listening.set()
                while not self._ended.is_set():
                    try:
                        listening.drain_events(timeout=0.1)
                    except TimeoutError:
                        continue


class Monitored(NamedTuple):
    """Workers that Flower watches."""

    stage: Stage
    flower: Flower
    events: Recorder

    @property
    def work(self) -> Work:
        return self.stage.guard.works["guarded.step"]

    def start(self, case: str, how: str = "", **options: Any) -> tuple[Steps, Any]:
        """Call the guarded step, and wait until it runs if it is held."""
        _, steps = self.stage.steps(case, how)
        result = steps.step("a", START).apply_async(**options)
        if how:
            self.await_run(steps)
        return steps, result

    def await_run(self, steps: Steps) -> None:
        until(lambda: self.stage.count("ran", steps.key) == 1, "it does not run")

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Pause the guarded work, so that attempts wait until the block ends."""
        store = self.stage.guard.store
        store.pause(self.work.name)
        try:
            yield
        finally:
            store.resume(self.work.name)

    def shown(self, result: Any) -> tuple[str | None, str]:
        """Return the state in Flower and in the result backend."""
        return self.flower.state(result.id), self.stage.tasks.app.AsyncResult(result.id).state

    def require(self, result: Any, state: str) -> None:
        """Require that Flower and the result backend come to show this state."""
        until(lambda: self.shown(result) == (state, state), f"it is not {state}")


@pytest.fixture(scope="module")
def flower(valkey: Valkey, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flower]:
    with Flower(tmp_path_factory.mktemp("flower"), valkey.url, _backend(valkey)) as server:
        yield server


def _backend(valkey: Valkey) -> str:
    return valkey.url.replace("/0", "/1")


@pytest.fixture(scope="module")
def monitored(valkey: Valkey, flower: Flower, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Monitored]:
    folder = tmp_path_factory.mktemp("stage")
    stage = Stage(valkey.url, _backend(valkey), folder, database=f"sqlite:///{folder}/guard.db")
    try:
        with Recorder(stage.tasks.app) as events:
            yield Monitored(stage, flower, events)
    finally:
        stage.close()


@pytest.mark.smoke
def test_a_task_that_is_postponed_and_then_succeeds(monitored: Monitored) -> None:
    steps, result = monitored.start("postponed", "postpone")
    assert monitored.stage.tasks.app.AsyncResult(result.id).state not in states.READY_STATES
    with monitored.paused():
        monitored.stage.release(steps.key)
        monitored.require(result, states.RETRY)
    monitored.require(result, states.SUCCESS)
    task = monitored.flower.task(result.id)
    assert task is not None
    assert (task["name"], task["result"]) == ("guarded.step", "'start>a'")
    first_retry = next(event for event in monitored.events.of(result.id) if event["type"] == "task-retried")
    assert first_retry["exception"].startswith("Transient('The provider accepts no more requests")
    assert monitored.events.final(result.id) == ["task-succeeded"]
    assert result.id in monitored.flower.tasks(state=states.SUCCESS)


def test_paused_work_waits_for_its_retry(monitored: Monitored) -> None:
    """It was never tried, so no attempt has reported anything."""
    with monitored.paused():
        _, result = monitored.start("paused")
        monitored.require(result, states.RETRY)
    monitored.require(result, states.SUCCESS)
    assert monitored.events.final(result.id) == ["task-succeeded"]


@pytest.mark.parametrize(("how", "state"), [("", states.SUCCESS), ("fail", states.FAILURE)])
def test_the_end_of_a_task_is_the_same_as_of_a_plain_task(monitored: Monitored, how: str, state: str) -> None:
    fields = ("state", "result", "exception", "args", "retries", "eta")
    shown = []
    for steps in monitored.stage.steps(f"end_{state}", how):
        result = steps.step("a", START).apply_async()
        monitored.require(result, state)
        task = monitored.flower.task(result.id)
        assert task is not None
        shown.append({name: str(task[name]).replace("plain", "guarded") for name in fields})
    plain, guarded = shown
    assert plain == guarded


def test_a_joined_call_is_unknown_until_its_job_ends(monitored: Monitored) -> None:
    """It has no message until then, as a call in a queue that no worker has read."""
    steps, first = monitored.start("joined", "hold")
    joined = steps.step("a", START).apply_async()
    assert monitored.shown(joined) == (None, states.PENDING)
    monitored.stage.release(steps.key)
    for result in (first, joined):
        monitored.require(result, states.SUCCESS)
        assert monitored.events.final(result.id) == ["task-succeeded"]


def test_a_call_for_finished_work_succeeds(monitored: Monitored) -> None:
    steps, first = monitored.start("skipped")
    monitored.require(first, states.SUCCESS)
    skipped = steps.step("a", START).apply_async()
    monitored.require(skipped, states.SUCCESS)


def test_a_message_that_arrives_again_gives_no_final_state(monitored: Monitored) -> None:
    steps, result = monitored.start("again", "hold")
    work = monitored.work

    def deliver_again(reason: str) -> None:
        before = discarded(reason)
        assert work.resend is not None
        work.resend(work.job(result.id))
        until(lambda: discarded(reason) > before, f"it is not discarded as {reason}")

    def discarded(reason: str) -> int:
        return monitored.stage.worker.log().count(f"call={result.id} reason={reason}")

    deliver_again("lock_held")
    assert monitored.shown(result) == (states.STARTED, states.PENDING)
    assert monitored.events.final(result.id) == []
    monitored.stage.release(steps.key)
    monitored.require(result, states.SUCCESS)
    deliver_again("answered")
    monitored.require(result, states.SUCCESS)
    assert monitored.events.final(result.id) == ["task-succeeded"]


def test_a_call_that_a_newer_one_replaced_fails(monitored: Monitored) -> None:
    steps, older = monitored.start("replaced", "hold", operation="change", fingerprint="1")
    newer = steps.step("a", START).apply_async(operation="change", fingerprint="2")
    monitored.require(older, states.FAILURE)
    task = monitored.flower.task(older.id)
    assert task is not None
    assert task["exception"].startswith("GuardedWorkSuperseded(")
    monitored.stage.release(steps.key)
    monitored.require(newer, states.SUCCESS)


def test_a_task_whose_process_was_killed_succeeds(monitored: Monitored) -> None:
    _, result = monitored.start("killed", "kill")
    monitored.require(result, states.SUCCESS)
    assert monitored.events.final(result.id) == ["task-succeeded"]


@pytest.mark.parametrize("ignored", [False, True], ids=["stored", "ignored"])
@pytest.mark.parametrize("terminate", [False, True])
def test_a_running_task_that_flower_revokes(monitored: Monitored, terminate: bool, ignored: bool) -> None:
    """Without a stored result, the result backend knows nothing of the call, as in Celery."""
    how = "postpone" if terminate else "hold"  # the former has no checkpoints
    steps, result = monitored.start(f"revoked_{terminate}_{ignored}", how, ignore_result=ignored)
    monitored.flower.revoke(result.id, terminate=terminate)
    until(lambda: monitored.flower.state(result.id) == states.REVOKED, "Flower does not show it")
    if not ignored:
        monitored.require(result, states.REVOKED)
    until(lambda: monitored.work.status(steps.key).status is Status.NOT_INDEXED, "its key is not free")
    monitored.stage.release(steps.key)
    again = monitored.stage.tasks.guarded_step.delay(START, key=steps.key)
    monitored.require(again, states.SUCCESS)
    assert monitored.flower.state(result.id) == states.REVOKED
    (event,) = (one for one in monitored.events.of(result.id) if one["type"] in FINAL_EVENTS)
    assert (event["type"], event["terminated"], event["expired"]) == ("task-revoked", terminate, False)


def test_a_process_that_flower_ends_while_it_stores_the_state(monitored: Monitored) -> None:
    _, steps = monitored.stage.steps("stuck", "hold")
    result = steps.step("a", START, task="stuck").apply_async()
    monitored.await_run(steps)
    monitored.flower.revoke(result.id, terminate=False)
    monitored.stage.await_count("answering", steps.key)
    monitored.flower.revoke(result.id, terminate=True)
    monitored.require(result, states.REVOKED)
    assert monitored.events.final(result.id) == ["task-revoked"]


@pytest.mark.parametrize("terminate", [False, True])
def test_a_postponed_task_that_flower_revokes(monitored: Monitored, terminate: bool) -> None:
    with monitored.paused():
        steps, result = monitored.start(f"revoked_later_{terminate}")
        monitored.require(result, states.RETRY)
        monitored.flower.revoke(result.id, terminate=terminate)
        monitored.require(result, states.REVOKED)
    assert get(monitored.stage.tasks.guarded_step.delay(START, key=steps.key)) == "start>a"
    monitored.require(result, states.REVOKED)
    assert monitored.stage.count("ran", steps.key) == 1


@pytest.mark.parametrize("terminate", [False, True])
def test_a_task_in_a_queue_that_flower_revokes(monitored: Monitored, terminate: bool) -> None:
    app = monitored.stage.tasks.app
    steps, result = monitored.start(f"revoked_in_queue_{terminate}", queue=PARKED)
    monitored.flower.revoke(result.id, terminate=terminate)
    until(lambda: app.AsyncResult(result.id).state == states.REVOKED, "it is not revoked")
    app.control.add_consumer(PARKED, reply=True, timeout=5)
    try:
        monitored.require(result, states.REVOKED)
    finally:
        app.control.cancel_consumer(PARKED, reply=True, timeout=5)
    assert monitored.stage.count("ran", steps.key) == 0
    assert monitored.events.final(result.id) == ["task-revoked"]


@pytest.mark.parametrize("terminate", [False, True])
def test_a_joined_call_that_flower_revokes(monitored: Monitored, terminate: bool) -> None:
    """It ends alone, with one message, while the job goes on."""
    steps, first = monitored.start(f"revoked_joined_{terminate}", "hold")
    joined = steps.step("a", START).apply_async()
    monitored.flower.revoke(joined.id, terminate=terminate)
    monitored.require(joined, states.REVOKED)
    assert monitored.shown(first) == (states.STARTED, states.PENDING)
    monitored.stage.release(steps.key)
    monitored.require(first, states.SUCCESS)
    assert monitored.events.count(joined.id, "task-received") == 1
    assert monitored.events.final(joined.id) == ["task-revoked"]


def test_terminating_a_task_that_has_not_begun_ends_no_process(monitored: Monitored) -> None:
    """The worker keeps a message until its time has come. Then it must not end the process that reads it."""
    _, result = monitored.start("early_revoke", countdown=1)
    until(lambda: monitored.flower.state(result.id) == states.RECEIVED, "no worker has received it")
    processes = monitored.stage.worker.children()
    monitored.flower.revoke(result.id, terminate=True)
    monitored.require(result, states.REVOKED)
    answered = f"call={result.id} reason=answered"
    until(lambda: answered in monitored.stage.worker.log(), "the first message is not read")
    monitored.require(monitored.start("after_early_revoke")[1], states.SUCCESS)
    assert monitored.stage.worker.children() == processes


@pytest.mark.parametrize("ignored", [False, True], ids=["stored", "ignored"])
def test_a_call_that_expires(monitored: Monitored, ignored: bool) -> None:
    app = monitored.stage.tasks.app
    steps, result = monitored.start(f"expired_{ignored}", queue=PARKED, expires=0.01, ignore_result=ignored)
    app.control.add_consumer(PARKED, reply=True, timeout=5)
    try:
        until(lambda: monitored.flower.state(result.id) == states.REVOKED, "Flower does not show it")
        if not ignored:
            monitored.require(result, states.REVOKED)
    finally:
        app.control.cancel_consumer(PARKED, reply=True, timeout=5)
    (event,) = (one for one in monitored.events.of(result.id) if one["type"] in FINAL_EVENTS)
    assert (event["type"], event["terminated"], event["expired"]) == ("task-revoked", False, True)
    assert monitored.stage.count("ran", steps.key) == 0
