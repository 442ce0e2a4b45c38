"""Attempts of guarded tasks: retries of every kind, values that are published early, calls that run the job here.

They run on Celery's in-memory broker and result backend, as in `test_guarded_task`.
"""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from celery import Celery, states
from celery.exceptions import Ignore, Reject, Retry
from sqlalchemy import text

from holdfast.engine.states import Outcome, Status
from holdfast.errors import GuardedWorkCancelled, Permanent, Transient
from holdfast.guard import Guard, Run
from holdfast.guard.celery import GuardedTask, guarded
from holdfast.guard.celery.calls import StoredResult
from holdfast.guard.celery.encoding import encode
from holdfast.guard.tables import ResultKind
from holdfast.settings import Settings
from tests.support.celery_messages import execute, execute_all, find_answered, get, sent, take
from tests.support.timeouts import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SECOND = timedelta(seconds=1)


@pytest.fixture
def app() -> Iterator[Celery]:
    made = Celery("shop", broker="memory://", backend="cache+memory://", set_as_current=False)
    yield made
    sent(made)  # empties the queue, because the in-memory broker outlives the app
    made.close()


@pytest.fixture
def guard(sqlite_url: str) -> Iterator[Guard]:
    made = Guard(
        Settings(
            database=sqlite_url, backoff=SECOND / 50, attempts=2, ring_again=SECOND / 100, lock_held_delay=SECOND / 50
        )
    )
    yield made
    made.close()


@pytest.fixture
def make(app: Celery, guard: Guard) -> Callable[..., GuardedTask]:
    """Make a task that does what a function says: it gets the task, the run and the key."""

    def make(body: Callable[[GuardedTask, Run, str], Any], **options: Any) -> GuardedTask:
        @guarded(app, guard, key="document", name="index", bind=True, **options)
        def index(self: GuardedTask, run: Run, document: str, argument: str = "") -> Any:
            found = body(self, run, document)
            return f"{document}: {argument}" if found is None and argument else found

        return index

    return make


def due_seconds(guard: Guard) -> float:
    """Return the seconds until the job of `doc` is due."""
    slot = guard.store.slot("index", "doc", "index")
    assert slot.due_at is not None
    return (slot.due_at - guard.clock.now()) / 1_000_000


def in_a_minute() -> Any:
    return Celery(set_as_current=False).now() + 60 * SECOND


@pytest.mark.parametrize(
    ("when", "seconds"), [(60, 60), (None, 0), (in_a_minute, 60)], ids=["seconds", "at once", "time"]
)
def test_a_retry_that_a_task_raises_itself_is_another_attempt(
    app: Celery, guard: Guard, make: Callable[..., GuardedTask], when: Any, seconds: int
) -> None:
    def body(_task: GuardedTask, run: Run, _document: str) -> str:
        if run.fence == 1:
            raise Retry(when=when() if callable(when) else when)
        return "done"

    result = make(body).delay("doc")
    assert execute(app, take(app)) == states.RETRY
    assert seconds - 30 < due_seconds(guard) <= seconds
    error = guard.works["index"].status("doc").error
    assert error is not None
    assert error.code == "retry_requested"
    if not seconds:
        assert execute_all(app, pause=0.05) == [states.SUCCESS]
        assert get(result) == "done"


def test_a_retry_that_raises_nothing_is_another_attempt_at_its_time(
    app: Celery, guard: Guard, make: Callable[..., GuardedTask]
) -> None:
    def body(task: GuardedTask, run: Run, document: str) -> str:
        task.retry(args=[document, "again"], countdown=60 if document == "doc" else 0, throw=False)
        return f"ignored {run.fence}"

    index = make(body, max_retries=1)
    index.delay("doc")
    assert execute(app, take(app)) == states.RETRY
    assert due_seconds(guard) > 30
    assert take(app).payload[0] == ["doc", "again"]


def test_the_state_of_a_retry_has_the_error_that_caused_it(app: Celery, make: Callable[..., GuardedTask]) -> None:
    def body(task: GuardedTask, run: Run, document: str) -> str:
        raise task.retry(args=[document], countdown=60, exc=ConnectionError("refused"))

    result = make(body).delay("doc")
    assert execute(app, take(app)) == states.RETRY
    assert isinstance(result.result, ConnectionError)


def test_a_retry_outside_of_a_run_raises_its_error(make: Callable[..., GuardedTask]) -> None:
    with pytest.raises(LookupError):
        make(lambda *_: None).retry(exc=LookupError("here"))


def test_a_message_that_a_task_rejects_for_requeueing_is_another_attempt(
    app: Celery, guard: Guard, make: Callable[..., GuardedTask]
) -> None:
    def body(_task: GuardedTask, run: Run, _document: str) -> str:
        if run.fence < 4:
            raise Reject("not now", requeue=True)
        return "done"

    result = make(body).delay("doc")
    assert execute_all(app, pause=0.05) == [states.RETRY, states.RETRY, states.RETRY, states.SUCCESS]
    assert get(result) == "done"


def test_an_error_that_retries_do_not_cover_keeps_its_code(
    app: Celery, guard: Guard, make: Callable[..., GuardedTask]
) -> None:
    def body(task: GuardedTask, run: Run, _document: str) -> None:
        raise task.retry(exc=Permanent("bad_file"), max_retries=0)

    make(body).delay("doc")
    assert execute_all(app) == [states.FAILURE]
    status = guard.works["index"].status("doc")
    assert (status.attempt, status.error and status.error.code) == (1, "bad_file")


def test_a_task_that_ignores_its_message_succeeds_and_stores_no_state(
    app: Celery, guard: Guard, make: Callable[..., GuardedTask]
) -> None:
    def body(*_: Any) -> None:
        raise Ignore

    index = make(body, requires_result=True)
    result, joined = index.delay("doc"), index.delay("doc")
    assert set(execute_all(app)) == {"IGNORED"}
    assert (result.state, joined.state) == (states.PENDING, states.PENDING)
    assert guard.works["index"].status("doc").status is Status.SUCCESS


def test_what_a_task_publishes_is_its_result_whatever_it_returns_later(
    app: Celery, make: Callable[..., GuardedTask]
) -> None:
    def body(_task: GuardedTask, run: Run, _document: str) -> str:
        with run.commit(result="published"):
            pass
        return "returned"

    index = make(body)
    result, joined = index.delay("doc"), index.delay("doc")
    execute_all(app)
    assert get(result) == get(joined) == "published"


def test_an_error_after_publishing_nothing_leaves_no_result(app: Celery, make: Callable[..., GuardedTask]) -> None:
    def body(_task: GuardedTask, run: Run, _document: str) -> None:
        with run.commit():
            pass
        raise RuntimeError("too late")

    index = make(body)
    result, joined = index.delay("doc"), index.delay("doc")
    assert execute_all(app) == [states.SUCCESS, states.SUCCESS]
    assert (get(result), get(joined)) == (None, None)


def test_a_direct_call_returns_and_raises_the_very_objects_of_the_function(make: Callable[..., GuardedTask]) -> None:
    value, error = ("a tuple",), LookupError("this one")

    def body(_task: GuardedTask, run: Run, document: str) -> Any:
        if document == "bad":
            raise error
        if document == "published":
            with run.commit():
                pass
            return body
        return value

    index = make(body)
    assert index("doc") is value
    assert index("published") is body, "it could not be stored"
    with pytest.raises(LookupError) as raised:
        index("bad")
    assert raised.value is error


def test_a_call_that_is_applied_again_with_its_id_returns_its_result(make: Callable[..., GuardedTask]) -> None:
    index = make(lambda _task, _run, document: document)
    assert [index.apply(("doc",), task_id="one").get() for _ in range(2)] == ["doc", "doc"]


def test_a_direct_call_runs_a_waiting_job_with_its_arguments(
    app: Celery, guard: Guard, make: Callable[..., GuardedTask]
) -> None:
    index = make(lambda *_: None)
    index.delay("doc", argument="of the job")
    assert index("doc", argument="of the call") == "doc: of the job"
    guard.store.admit([index.work.make_request("adopted")])  # a job without a call
    assert index("adopted", argument="of the call") == "adopted: of the call"


def test_a_direct_call_whose_job_is_cancelled_raises_it(make: Callable[..., GuardedTask]) -> None:
    def body(task: GuardedTask, run: Run, document: str) -> str:
        task.work.cancel(document)
        return "late"

    with pytest.raises(GuardedWorkCancelled, match="'doc' by the task 'index'"):
        make(body)("doc")


def test_a_direct_call_within_a_run_has_a_run_of_its_own(app: Celery, make: Callable[..., GuardedTask]) -> None:
    def body(task: GuardedTask, run: Run, document: str) -> str:
        inner = task("inner") if document == "doc" else ""
        return f"{run.key}>{inner}"

    result = make(body).delay("doc")
    execute_all(app)
    assert get(result) == "doc>inner>"


def test_a_request_within_a_run_is_no_retry_of_it(app: Celery, make: Callable[..., GuardedTask]) -> None:
    def body(task: GuardedTask, run: Run, document: str) -> str:
        if document == "doc":
            task.apply_async(("other",), retries=3)
        return document

    index = make(body)
    result = index.delay("doc")
    assert execute_all(app) == [states.SUCCESS, states.SUCCESS]
    assert get(result) == "doc"
    assert [job.outcome for job in index.work.history("other")] == [Outcome.SUCCESS]


def test_a_direct_call_waits_no_longer_than_the_back_off_and_until_a_pause_ends(
    guard: Guard, make: Callable[..., GuardedTask], monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        time.sleep(min(seconds, 0.05))
        if len(pauses) > 3:
            guard.store.resume("index")

    monkeypatch.setattr("holdfast.guard.celery.delivery.time", SimpleNamespace(sleep=sleep))

    def body(_task: GuardedTask, run: Run, document: str) -> str:
        if run.attempt == 1 and document == "unstable":
            raise Transient("rate_limited")
        return document

    index = make(body)
    assert index("unstable") == "unstable"
    assert len(pauses) == 1
    assert pauses[0] < 0.5
    guard.store.pause("index")
    assert index("doc") == "doc"


def test_a_message_for_paused_work_stores_no_final_state(
    app: Celery, guard: Guard, make: Callable[..., GuardedTask]
) -> None:
    result = make(lambda *_: "built").delay("doc")
    guard.store.pause("index")
    assert execute(app, take(app)) == states.RETRY
    assert result.state == states.RETRY
    assert sent(app) == []
    guard.store.resume("index")
    time.sleep(0.05)
    guard.reconcile()
    execute_all(app)
    assert get(result) == "built"


def test_a_run_that_another_one_replaced_answers_with_the_result_of_that_one(
    app: Celery, guard: Guard, make: Callable[..., GuardedTask]
) -> None:
    """As a process that is paused past its lease while another one runs the job to its end."""

    def body(task: GuardedTask, run: Run, document: str) -> str:
        release_lease(guard)
        kept = document == "doc"

        def publish(newer: Run) -> str:
            if kept:
                data = encode("newer", "json")
                newer_result = StoredResult(newer.fence, ResultKind.VALUE, data)
                task.work.write(lambda tx: task.calls.save_result(tx, newer.job, newer.key, newer_result))
            return "newer"

        assert task.work.perform(run.job, publish).outcome is Outcome.SUCCESS
        return "stale"

    index = make(body)
    assert index("doc") == "newer"
    assert index("lost") is None


def test_a_message_whose_job_ends_just_before_it_is_claimed_answers_the_call(
    app: Celery, make: Callable[..., GuardedTask], monkeypatch: pytest.MonkeyPatch
) -> None:
    index = make(lambda *_: "built")
    result = index.delay("doc")
    perform = index.work.perform

    def cancel_and_perform(*args: Any, **options: Any) -> Any:
        index.work.cancel("doc")
        return perform(*args, **options)

    monkeypatch.setattr(index.work, "perform", cancel_and_perform)
    execute(app, take(app))
    assert result.state == states.REVOKED


def release_lease(guard: Guard) -> None:
    """Let all leases end."""
    end = text("UPDATE guard_slots SET until = 0, due_at = 0 WHERE state = 'running'")
    guard.store.database.write(lambda tx: tx.run(end), durable=True)


def test_own_headers_stay_with_a_message_that_meets_a_running_job(
    app: Celery, make: Callable[..., GuardedTask]
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def body(*_: Any) -> str:
        begun.set()
        assert go_on.wait(PATIENCE_SECONDS)
        return "built"

    make(body).apply_async(("doc",), headers={"tenant": "acme"})
    message = take(app)
    thread = threading.Thread(target=execute, args=(app, message))
    thread.start()
    assert begun.wait(PATIENCE_SECONDS)
    assert execute(app, message) == "IGNORED"
    again = take(app)
    go_on.set()
    thread.join()
    assert (again.headers["tenant"], again.headers["holdfast_tries"]) == ("acme", 1)


@pytest.mark.parametrize("name", ["index", "other"])
def test_a_task_can_be_replaced_by_a_guarded_one(
    app: Celery, guard: Guard, make: Callable[..., GuardedTask], name: str
) -> None:
    def body(task: GuardedTask, run: Run, document: str) -> str:
        if document != "doc":
            return f"{document} of {name}"
        raise task.replace(app.tasks[name].s("new"))

    index = make(body, requires_result=True)

    @guarded(app, guard, key="document", name="other")
    def other(run: Run, document: str) -> str:
        return f"{document} of other"

    result, joined = index.delay("doc"), index.delay("doc")
    execute_all(app)
    assert get(result) == get(joined) == f"new of {name}"
    assert index.work.status("doc").status is Status.SUCCESS


def test_a_replacement_that_fails_answers_the_call(app: Celery, guard: Guard, make: Callable[..., GuardedTask]) -> None:
    def body(task: GuardedTask, run: Run, document: str) -> str:
        if document == "doc":
            raise task.replace(task.s("new"))
        raise Permanent("bad_file")

    index = make(body)
    result = index.delay("doc")
    execute_all(app)
    with pytest.raises(Permanent):
        get(result)
    assert find_answered(guard) == {result.id, f"{result.id}#1"}
