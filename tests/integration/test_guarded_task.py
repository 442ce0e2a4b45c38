"""The Celery decorator: calls, deliveries and sent messages, on Celery's in-memory broker and result backend.

The tests execute messages with Celery's own tracer, as a worker does, and read sent messages from the queue.
"""

from __future__ import annotations

import pickle
import threading
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from celery import Celery, states
from celery.beat import Scheduler
from celery.exceptions import Reject
from celery.result import AsyncResult
from kombu.exceptions import OperationalError
from sqlalchemy import select

from holdfast.engine.states import Outcome, Status
from holdfast.errors import (
    BadRequest,
    BadSettings,
    GuardedRequestRejected,
    GuardedWorkCancelled,
    GuardedWorkFailed,
    GuardedWorkSuperseded,
    Permanent,
    Transient,
)
from holdfast.guard import Guard, Run
from holdfast.guard.celery import RECONCILE_TASK, GuardedResult, GuardedTask, guarded, reconcile_by_beat
from holdfast.guard.tables import calls, results
from holdfast.settings import Settings
from tests.support.celery_messages import execute, execute_all, get, sent, take
from tests.support.timeouts import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator

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
            database=sqlite_url, backoff=SECOND / 50, attempts=2, lock_held_delay=SECOND / 2, lock_held_tries=3,
            ring_again=SECOND / 100,
        )
    )  # fmt: skip
    yield made
    made.close()


@pytest.fixture
def index(app: Celery, guard: Guard) -> GuardedTask:
    @guarded(app, guard, key="document", name="index")
    def index(run: Run, document: str, text: str = "built") -> str | None:
        match text:
            case "nothing":
                return None
            case "transient":
                raise Transient("rate_limited")
            case "permanent":
                raise Permanent("bad_file")
            case "bug":
                raise KeyError("total")
            case "reject":
                raise Reject("no", requeue=False)
        return f"{run.key}: {text}"

    return index


def test_a_request_is_admitted_and_sent_under_the_id_of_its_job(app: Celery, guard: Guard, index: GuardedTask) -> None:
    result = index.delay("doc", text="new")
    assert result.admission.accepted
    (message,) = sent(app)
    assert message.headers["id"] == result.id == guard.works["index"].history("doc")[0].id
    assert message.payload[0:2] == [["doc"], {"text": "new"}]


def test_the_id_of_the_caller_is_the_id_of_the_message_and_of_the_job(app: Celery, index: GuardedTask) -> None:
    result = index.apply_async(("doc",), task_id="chosen")
    assert (result.id, result.admission.job, take(app).headers["id"]) == ("chosen", "chosen", "chosen")


def test_a_call_with_a_known_id_starts_nothing(app: Celery, guard: Guard, index: GuardedTask) -> None:
    index.apply_async(("doc",), task_id="chosen")
    index.apply_async(("doc",), task_id="chosen")
    index.apply_async(("other",), task_id="chosen")
    assert len(sent(app)) == 1
    assert guard.works["index"].history("other") == []


def test_a_duplicate_request_sends_nothing_until_the_job_ends(app: Celery, index: GuardedTask) -> None:
    first, second = index.delay("doc", text="new"), index.delay("doc", text="other")
    assert second.id != first.id
    assert (second.admission.verdict, second.admission.job) == ("joined", first.id)
    assert execute(app, take(app)) == states.SUCCESS
    assert not second.ready()
    message = take(app)
    assert message.headers["id"] == second.id
    assert execute(app, message) == states.SUCCESS
    assert get(first) == get(second) == "doc: new"


def test_a_call_for_finished_work_gets_the_stored_result(app: Celery, index: GuardedTask) -> None:
    index.delay("doc", text="first")
    execute_all(app)
    again = index.delay("doc", text="second")
    assert again.admission.verdict == "skipped"
    assert execute_all(app) == [states.SUCCESS]
    assert get(again) == "doc: first"


def test_a_call_without_a_waiting_caller_sends_no_answer(app: Celery, guard: Guard) -> None:
    @guarded(app, guard, key="document", name="quiet", ignore_result=True)
    def quiet(run: Run, document: str) -> str:
        return document

    quiet.delay("doc")
    quiet.delay("doc")
    assert execute_all(app) == [states.SUCCESS]
    quiet.delay("doc")
    assert sent(app) == []


def test_a_call_can_pass_operation_requester_priority_and_cost(app: Celery, guard: Guard, index: GuardedTask) -> None:
    first = index.apply_async(("doc",), operation="change", fingerprint="one", requester="ann", priority=2)
    index.apply_async(("doc",), operation="change", fingerprint="one", requester="bob", cost=0.5, cause="sync")
    newer = index.apply_async(("doc",), operation="change", fingerprint="two")
    assert newer.id != first.id
    work = guard.works["index"]
    assert [(one.requester, one.cost) for one in work.refusals("doc")] == [("bob", 0.5)]
    old = work.history("doc")[1]
    assert (old.requester, old.priority, old.outcome) == ("ann", 2, Outcome.SUPERSEDED)


def test_superseded_calls_get_an_error(app: Celery, index: GuardedTask) -> None:
    first = index.apply_async(("doc",), operation="change", fingerprint="one")
    joined = index.apply_async(("doc",), operation="change", fingerprint="one")
    newer = index.apply_async(("doc", "new"), operation="change", fingerprint="two")
    execute_all(app)
    for old in (first, joined):
        with pytest.raises(GuardedWorkSuperseded, match="A newer request for 'doc' replaced this call"):
            get(old)
    assert get(newer) == "doc: new"


def test_a_rejected_request_gets_the_reason(app: Celery, index: GuardedTask) -> None:
    refused = index.apply_async(("nobody",), operation="retry")
    assert (refused.admission.verdict, refused.admission.reason) == ("rejected", "unknown_owner")
    assert execute_all(app) == [states.FAILURE]
    with pytest.raises(GuardedRequestRejected, match="unknown_owner"):
        get(refused)


def test_the_key_can_be_positional_a_keyword_or_a_default(app: Celery, guard: Guard, index: GuardedTask) -> None:
    ways = [index.delay("doc"), index.delay(document="doc"), index.apply_async(kwargs={"document": "doc"})]
    assert len({way.admission.job for way in ways}) == 1

    @guarded(app, guard, key="shelf")
    def tidy(run: Run, shelf: str = "top") -> str:
        return run.key

    assert tidy.delay().admission.key == "top"


def test_cancel_is_refused_as_an_operation_of_a_task(index: GuardedTask) -> None:
    with pytest.raises(BadRequest) as refused:
        index.apply_async(("doc",), operation="cancel")
    assert str(refused.value) == (
        "The operation 'cancel' starts no work. Request one of: change, force, index, reindex, renew, retry. To stop "
        "work, call `cancel`."
    )


def test_the_key_may_be_computed(app: Celery, guard: Guard) -> None:
    @guarded(app, guard, key=lambda shelf, place: f"{shelf}/{place}")
    def label(run: Run, shelf: int, place: int) -> str:
        return run.key

    assert label.delay(3, 4).admission.key == "3/4"


def test_a_call_without_its_key_is_refused(index: GuardedTask) -> None:
    with pytest.raises(BadRequest, match="The call of 'index' has no value for its key 'document'"):
        index.delay()


@pytest.mark.parametrize("bind", [False, True])
def test_a_key_that_is_not_a_parameter_is_refused_at_import_time(app: Celery, guard: Guard, bind: bool) -> None:
    with pytest.raises(BadSettings, match="has no parameter 'isbn' after its first parameter 'run'"):

        @guarded(app, guard, key="isbn", bind=bind)
        def index(*, run: Run) -> str:
            return ""


def test_arguments_that_cannot_be_stored_are_refused_before_anything_is_written(
    guard: Guard, index: GuardedTask
) -> None:
    with pytest.raises(BadRequest, match=r"arguments of the task 'index' cannot be encoded .*Pass ids and texts"):
        index.delay("doc", text=object())
    assert guard.works["index"].status("doc").status is Status.NOT_INDEXED


def test_an_unavailable_broker_loses_no_request(
    app: Celery, guard: Guard, index: GuardedTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: Any, **__: Any) -> None:
        raise OperationalError("no broker")

    with monkeypatch.context() as patch:
        patch.setattr("celery.app.task.Task.apply_async", away)
        result = index.delay("doc", text="late")
    assert result.admission.accepted
    assert sent(app) == []
    threading.Event().wait(0.05)
    guard.reconcile()
    message = take(app)
    assert message.headers["id"] == result.id
    assert message.payload[0:2] == [["doc"], {"text": "late"}]


def test_a_message_that_was_just_sent_is_not_sent_again(app: Celery, sqlite_url: str) -> None:
    guard = Guard(Settings(database=sqlite_url))

    @guarded(app, guard, key="document")
    def index(run: Run, document: str) -> str:
        return document

    index.delay("doc")
    guard.reconcile()
    assert len(sent(app)) == 1
    guard.close()


def test_a_message_that_is_sent_again_keeps_everything(app: Celery, guard: Guard, index: GuardedTask) -> None:
    after = index.si("after")
    index.apply_async(
        ("doc",), queue="slow", link=after, link_error=index.si("failed"), headers={"tenant": "acme"}, shadow="shown",
        group_id="group", chord=index.s(), chain=[index.si("next")], expires=600, time_limit=30, priority=3,
    )  # fmt: skip
    first = take(app, "slow")
    threading.Event().wait(0.05)
    guard.reconcile()
    again = take(app, "slow")
    changing = {"origin", "argsrepr", "kwargsrepr"}
    assert {name: first.headers[name] for name in first.headers.keys() - changing} == {
        name: again.headers[name] for name in first.headers.keys() - changing
    }
    assert first.payload == again.payload
    assert first.properties["priority"] == again.properties["priority"] == 3
    assert first.properties["reply_to"] == again.properties["reply_to"]


def test_a_delayed_message_is_not_sent_again_before_its_time(app: Celery, guard: Guard, index: GuardedTask) -> None:
    index.apply_async(("doc",), countdown=600)
    index.apply_async(("soon",), countdown=0.01)
    first = [message.headers["eta"] for message in sent(app)]
    assert all(first)
    threading.Event().wait(0.05)
    guard.reconcile()
    message = take(app)
    assert message.payload[0] == ["soon"]
    assert message.headers["eta"] == first[1]


def test_work_that_is_a_task_is_not_admitted_without_its_arguments(guard: Guard, index: GuardedTask) -> None:
    with pytest.raises(BadRequest, match=r"The work 'index' is a Celery task.*Call the task instead"):
        guard.works["index"].admit("doc")
    assert guard.works["index"].history("doc") == []


def test_an_operator_retries_a_task_with_its_arguments(app: Celery, guard: Guard) -> None:
    runs: list[tuple[int, str]] = []

    @guarded(app, guard, key="document", name="shop.retried")
    def retried(run: Run, document: int, colour: str) -> str:
        runs.append((document, colour))
        if len(runs) == 1:
            raise Permanent("broken")
        return colour

    first = retried.apply_async((7,), {"colour": "red"}, queue="fast", countdown=0)
    assert execute(app, take(app, "fast")) == states.FAILURE
    again = retried.work.retry("7", requester="operator")
    assert again.accepted
    assert again.job != first.id
    assert execute(app, take(app, "fast")) == states.SUCCESS
    assert runs == [(7, "red"), (7, "red")]
    assert [job.requester for job in retried.work.history("7")] == ["operator", ""]
    assert retried.work.retry("8").http_status == 404


def test_a_retry_without_stored_arguments_is_refused(guard: Guard, index: GuardedTask) -> None:
    guard.store.admit([index.work.make_request("9")])  # as adopted rows: there is a job, and no call of the task
    with pytest.raises(BadRequest, match="no longer stored"):
        index.work.retry("9")


def test_work_without_a_task_is_not_sent_by_the_reconciler(guard: Guard) -> None:
    work = guard.work("bare")
    work.admit("doc")
    guard.reconcile()
    assert work.status("doc").status is Status.QUEUED


def test_beat_runs_the_reconciler(app: Celery, guard: Guard, index: GuardedTask) -> None:
    entry = reconcile_by_beat(app, guard)
    assert entry["task"] == RECONCILE_TASK
    assert entry["schedule"] == guard.settings.period
    index.delay("doc")
    sent(app)
    threading.Event().wait(0.05)
    app.tasks[RECONCILE_TASK].apply()
    assert len(sent(app)) == 1


def test_beat_requests_a_guarded_task(app: Celery, guard: Guard, index: GuardedTask) -> None:
    app.conf.beat_schedule = {"often": {"task": "index", "schedule": 1, "args": ("doc",), "options": {"priority": 4}}}
    beat = Scheduler(app, lazy=True)
    beat.setup_schedule()
    entry = beat.schedule["often"]
    results = [beat.apply_async(entry, advance=False) for _ in range(2)]
    assert [result.admission.verdict for result in results] == ["accepted", "joined"]
    execute_all(app)
    assert [get(result) for result in results] == ["doc: built", "doc: built"]


def test_a_message_for_an_answered_call_is_discarded(app: Celery, guard: Guard, index: GuardedTask) -> None:
    result = index.delay("doc")
    message = take(app)
    assert execute(app, message) == states.SUCCESS
    result.backend.delete(result.backend.get_key_for_task(result.id))
    assert execute(app, message) == "IGNORED"
    assert result.state == states.PENDING, "a second answer would be stored"


def test_a_lost_answer_is_sent_again(app: Celery, guard: Guard, index: GuardedTask) -> None:
    index.delay("doc")
    joined = index.delay("doc")
    execute(app, take(app))
    assert len(sent(app)) == 1, "the answer, which is lost here"
    threading.Event().wait(0.05)
    guard.reconcile()
    execute(app, take(app))
    assert get(joined) == "doc: built"
    threading.Event().wait(0.05)
    guard.reconcile()
    assert sent(app) == []


def test_a_message_of_an_unknown_call_is_admitted_when_it_arrives(
    app: Celery, guard: Guard, index: GuardedTask
) -> None:
    headers = {"holdfast": {"requester": "ann", "operation": "force"}}
    result = app.send_task("index", ("doc",), {"text": "sent"}, headers=headers)
    execute_all(app)
    assert get(result) == "doc: sent"
    (job,) = guard.works["index"].history("doc")
    assert (job.id, job.requester, job.operation) == (result.id, "ann", "force")


def test_a_worker_without_the_guard_can_run_the_message(app: Celery, index: GuardedTask) -> None:
    result = index.delay("doc", text="late")
    message = take(app)
    plain = Celery("shop", broker="memory://", backend="cache+memory://", set_as_current=False)

    @plain.task(name="index", shared=False)  # type: ignore[untyped-decorator]  # Celery has no types
    def run_index(document: str, text: str) -> str:
        return f"{document} without the guard: {text}"

    assert execute(plain, message) == states.SUCCESS
    assert plain.AsyncResult(result.id).get() == "doc without the guard: late"
    plain.close()


def test_a_message_that_joins_when_it_arrives_is_answered_at_the_end(app: Celery, index: GuardedTask) -> None:
    first = index.delay("doc", text="first")
    message = take(app)
    joined = app.send_task("index", ("doc",), {"text": "second"})
    assert execute(app, take(app)) == "IGNORED"
    assert joined.state == states.PENDING
    execute(app, message)
    execute_all(app)
    assert get(first) == get(joined) == "doc: first"


def test_a_task_raises_what_its_function_raised(app: Celery, index: GuardedTask) -> None:
    permanent, bug, joined = index.delay("one", text="permanent"), index.delay("two", text="bug"), index.delay("two")
    execute_all(app)
    with pytest.raises(Permanent):
        get(permanent)
    for result in (bug, joined):
        with pytest.raises(KeyError, match="total"):
            get(result)


def test_an_error_that_the_guard_does_not_know_is_not_repeated(app: Celery, guard: Guard, index: GuardedTask) -> None:
    index.delay("doc", text="bug")
    assert execute_all(app) == [states.FAILURE]
    status = guard.works["index"].status("doc")
    assert (status.status, status.attempt, status.error and status.error.code) == (Status.FAILED, 1, "unexpected")


def test_a_rejected_message_fails_the_job(app: Celery, guard: Guard, index: GuardedTask) -> None:
    index.delay("doc", text="reject")
    execute_all(app)
    assert guard.works["index"].status("doc").status is Status.FAILED
    threading.Event().wait(0.05)
    guard.reconcile()
    assert sent(app) == []


def test_a_task_that_returns_none_succeeds(app: Celery, guard: Guard, index: GuardedTask) -> None:
    result = index.delay("doc", text="nothing")
    execute_all(app)
    assert (result.state, get(result)) == (states.SUCCESS, None)
    assert guard.works["index"].status("doc").status is Status.SUCCESS


@pytest.mark.parametrize("value", [None, "skipped", {"status": "skipped"}])
def test_a_task_that_requires_a_result_fails_without_one(app: Celery, guard: Guard, value: Any) -> None:
    @guarded(app, guard, key="document", requires_result=True)
    def empty(run: Run, document: str) -> Any:
        return value

    result = empty.delay("doc")
    execute_all(app)
    with pytest.raises(GuardedWorkFailed, match="no_result"):
        get(result)


def test_a_transient_failure_is_a_retry_and_not_a_result(app: Celery, index: GuardedTask) -> None:
    result = index.delay("doc", text="transient")
    assert execute(app, take(app)) == states.RETRY
    assert result.state == states.RETRY
    message = take(app)
    assert message.headers["id"] == result.id
    assert message.headers["eta"] is not None
    assert message.payload[0:2] == [["doc"], {"text": "transient"}]
    time.sleep(0.1)
    assert execute(app, message) == states.FAILURE
    with pytest.raises(Transient):
        get(result)


def test_a_message_that_arrives_before_its_time_is_a_retry_and_sends_nothing(app: Celery, guard: Guard) -> None:
    runs: list[str] = []

    @guarded(app, guard, key="document", name="limited")
    def limited(run: Run, document: str) -> str:
        runs.append(document)
        raise Transient("rate_limited", retry_after=timedelta(hours=1))

    result = limited.delay("doc")
    assert execute(app, take(app)) == states.RETRY
    early = take(app)
    for _ in range(2):
        assert execute(app, early) == states.RETRY
    assert (result.state, runs, sent(app)) == (states.RETRY, ["doc"], [])


def test_paused_work_is_a_retry_that_names_the_reason(app: Celery, guard: Guard, index: GuardedTask) -> None:
    guard.store.pause("index")
    result = index.delay("doc")
    assert execute(app, take(app)) == states.RETRY
    assert result.state == states.RETRY
    assert isinstance(result.info, Transient)
    assert "'index' cannot run now, because its work waits (paused)" in str(result.info)
    guard.store.resume("index")
    guard.reconcile()
    assert execute_all(app) == [states.SUCCESS]
    assert result.get() == "doc: built"


def make_counting_task(app: Celery, guard: Guard, runs: list[Any], **options: Any) -> GuardedTask:
    @guarded(app, guard, key="document", bind=True, name="count", **options)
    def count(self: GuardedTask, run: Run, document: str, tries: int = 0) -> str:
        runs.append((run.generation, self.request.retries, tries))
        if self.request.retries < 3:
            raise self.retry(args=[document], kwargs={"tries": tries + 1}, countdown=0.01, max_retries=5)
        return f"{document} after {tries}"

    return count


def test_retry_is_another_attempt_of_the_same_generation(app: Celery, guard: Guard) -> None:
    runs: list[Any] = []
    result = make_counting_task(app, guard, runs).delay("doc")
    joined = app.tasks["count"].delay("doc")
    execute_all(app, pause=0.1)
    assert runs == [(1, 0, 0), (1, 1, 1), (1, 2, 2), (1, 3, 3)], "more attempts than the guard counts itself"
    assert get(result) == get(joined) == "doc after 3"


def test_a_lost_retry_is_sent_again_with_its_arguments(app: Celery, guard: Guard) -> None:
    runs: list[Any] = []
    make_counting_task(app, guard, runs).delay("doc")
    execute(app, take(app))
    (lost,) = sent(app)
    time.sleep(0.1)
    guard.reconcile()
    again = take(app)
    assert again.payload[0:2] == lost.payload[0:2] == [["doc"], {"tries": 1}]
    assert again.headers["retries"] == lost.headers["retries"] == 1


def test_a_retry_in_eager_mode_runs_here(app: Celery, guard: Guard) -> None:
    runs: list[Any] = []
    assert make_counting_task(app, guard, runs).apply(("doc",)).get() == "doc after 3"


def test_retries_of_celery_that_are_used_up_fail_the_job(app: Celery, guard: Guard) -> None:
    @guarded(app, guard, key="document", autoretry_for=(ConnectionError,), max_retries=1, retry_kwargs={"countdown": 0})
    def call(run: Run, document: str) -> str:
        raise ConnectionError("refused")

    result = call.delay("doc")
    execute_all(app, pause=0.1)
    with pytest.raises(ConnectionError, match="refused"):
        get(result)
    assert guard.works[call.name].status("doc").status is Status.FAILED


def hold(app: Celery, guard: Guard) -> tuple[GuardedResult, Any, threading.Event, threading.Thread, GuardedTask]:
    """Start a run that holds its key until the event is set."""
    begun, go_on = threading.Event(), threading.Event()

    @guarded(app, guard, key="document", name="slow")
    def slow(run: Run, document: str) -> str:
        begun.set()
        assert go_on.wait(PATIENCE_SECONDS)
        run.checkpoint()
        return document

    result = slow.delay("doc")
    message = take(app)
    thread = threading.Thread(target=execute, args=(app, message))
    thread.start()
    assert begun.wait(PATIENCE_SECONDS)
    return result, message, go_on, thread, slow


def test_a_delivery_during_the_run_stores_no_state_and_is_repeated_a_limited_number_of_times(
    app: Celery, guard: Guard
) -> None:
    result, message, go_on, thread, _ = hold(app, guard)
    assert execute(app, message) == "IGNORED"
    assert result.state == states.PENDING
    tries = []
    while messages := sent(app):
        (again,) = messages
        tries.append(again.headers["holdfast_tries"])
        assert execute(app, again) == "IGNORED"
    assert tries == [1, 2, 3]
    assert guard.works["slow"].status("doc").status is Status.INDEXING
    go_on.set()
    thread.join()
    assert guard.works["slow"].status("doc").status is Status.SUCCESS
    assert get(result) == "doc"


def test_a_direct_call_waits_for_the_run_in_another_process(app: Celery, guard: Guard) -> None:
    _, _, go_on, thread, slow = hold(app, guard)
    found: list[str] = []
    waiting = threading.Thread(target=lambda: found.append(slow("doc")))
    waiting.start()
    go_on.set()
    waiting.join(PATIENCE_SECONDS)
    thread.join()
    assert found == ["doc"]


def test_a_revoked_result_cancels_the_run_and_its_joined_calls(app: Celery, guard: Guard) -> None:
    result, _, go_on, thread, slow = hold(app, guard)
    joined = slow.delay("doc")
    result.revoke()
    go_on.set()
    thread.join()
    execute_all(app)
    assert guard.works["slow"].history("doc")[0].outcome is Outcome.CANCELLED
    for one in (result, joined):
        assert one.state == states.REVOKED
        with pytest.raises(GuardedWorkCancelled, match="'doc' by the task 'slow' was cancelled or revoked"):
            get(one)
    assert slow.delay("doc").admission.accepted


def test_a_revoked_joined_call_leaves_the_run_alone(app: Celery, guard: Guard) -> None:
    result, _, go_on, thread, slow = hold(app, guard)
    joined = slow.delay("doc")
    joined.revoke()
    execute_all(app)
    assert joined.state == states.REVOKED
    go_on.set()
    thread.join()
    assert get(result) == "doc"


def test_a_revoked_call_for_finished_work_is_revoked_unless_it_was_answered(app: Celery, index: GuardedTask) -> None:
    index.delay("doc")
    execute_all(app)
    answered = index.delay("doc")
    execute_all(app)
    late = index.delay("doc")
    for result in (answered, late):
        result.revoke()
    execute_all(app)
    assert (answered.state, late.state) == (states.SUCCESS, states.REVOKED)


def test_cancelled_work_that_waits_is_revoked(app: Celery, guard: Guard, index: GuardedTask) -> None:
    result = index.delay("doc")
    guard.works["index"].cancel("doc")
    execute_all(app)
    assert result.state == states.REVOKED


def test_a_broker_that_cannot_take_the_event_does_not_change_the_result(
    app: Celery, guard: Guard, index: GuardedTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: Any, **__: Any) -> None:
        raise OperationalError("no broker")

    monkeypatch.setattr("celery.app.task.Task.send_event", away)
    result = index.delay("doc")
    guard.works["index"].cancel("doc")
    execute_all(app)
    assert result.state == states.REVOKED
    time.sleep(0.02)
    guard.reconcile()
    assert sent(app) == []


@pytest.mark.parametrize("wanted", [True, False])
def test_a_task_without_events_sends_none(
    app: Celery, guard: Guard, monkeypatch: pytest.MonkeyPatch, wanted: bool
) -> None:
    events: list[str] = []
    monkeypatch.setattr("celery.app.task.Task.send_event", lambda _task, type_, **_: events.append(type_))

    @guarded(app, guard, key="document", name="silent", send_events=wanted)
    def silent(run: Run, document: str) -> None: ...

    silent.delay("doc")
    guard.works["silent"].cancel("doc")
    execute_all(app)
    assert events == ["task-revoked"] * wanted


@pytest.mark.parametrize("stored", [True, False])
def test_a_revoked_call_stores_its_state_as_celery_stores_an_error(app: Celery, guard: Guard, stored: bool) -> None:
    @guarded(app, guard, key="document", name="fast", ignore_result=True, store_errors_even_if_ignored=stored)
    def fast(run: Run, document: str) -> None: ...

    result = fast.delay("doc")
    guard.works["fast"].cancel("doc")
    execute_all(app)
    assert result.state == (states.REVOKED if stored else states.PENDING)


def test_a_joined_call_that_is_revoked_twice_gets_one_message(app: Celery, guard: Guard) -> None:
    result, _, go_on, thread, slow = hold(app, guard)
    joined = slow.delay("doc")
    slow.cancel_call(joined.id)
    slow.cancel_call(joined.id)
    assert slow.has_answer(joined.id)
    assert not slow.has_answer(result.id)
    assert execute(app, take(app)) == "IGNORED"
    assert joined.state == states.REVOKED
    go_on.set()
    thread.join()
    assert result.get() == "doc"


def test_a_direct_call_returns_or_raises_as_the_function_does(guard: Guard, index: GuardedTask) -> None:
    assert index("doc", text="here") == "doc: here"
    assert index("doc", text="again") == "doc: here", "the work is done"
    with pytest.raises(KeyError):
        index("broken", text="bug")
    assert [job.outcome for job in guard.works["index"].history("doc")] == [Outcome.SUCCESS]


def test_apply_runs_the_work_here(guard: Guard, index: GuardedTask) -> None:
    result = index.apply(("doc",), requester="ann")
    assert (get(result), result.state, result.admission.verdict) == ("doc: built", states.SUCCESS, "accepted")
    assert guard.works["index"].history("doc")[0].requester == "ann"
    assert index.apply(("broken", "bug")).state == states.FAILURE


def test_eager_mode_runs_the_work_here(app: Celery, index: GuardedTask) -> None:
    app.conf.task_always_eager = True
    result = index.delay("doc")
    assert (get(result), result.admission.verdict) == ("doc: built", "accepted")
    assert (index.s("chained") | index.si("then")).apply_async().get() == "then: built"


def test_a_result_that_is_published_with_the_rows_is_kept(app: Celery, guard: Guard) -> None:
    @guarded(app, guard, key="document")
    def publish(run: Run, document: str) -> str:
        with run.commit(result="published"):
            pass
        raise RuntimeError("too late")

    result, joined = publish.delay("doc"), publish.delay("doc")
    execute_all(app)
    assert get(result) == get(joined) == "published"


def test_a_value_that_is_returned_after_publishing_is_kept(app: Celery, guard: Guard) -> None:
    @guarded(app, guard, key="document")
    def publish(run: Run, document: str) -> str:
        with run.commit():
            pass
        return "returned"

    result, joined = publish.delay("doc"), publish.delay("doc")
    execute_all(app)
    assert get(result) == get(joined) == "returned"


def test_a_value_that_cannot_be_stored_fails_the_run(app: Celery, guard: Guard) -> None:
    @guarded(app, guard, key="document", name="odd")
    def odd(run: Run, document: str) -> Any:
        return object()

    odd.delay("doc")
    assert execute_all(app) == [states.FAILURE]
    assert guard.works["odd"].status("doc").status is Status.FAILED


def test_handlers_and_a_base_class_of_the_app_are_called(app: Celery, guard: Guard) -> None:
    heard: list[str] = []

    class InContext(app.Task):  # type: ignore[misc]
        abstract = True

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            heard.append("context")
            return self.run(*args, **kwargs)

    def hear(_task: Any, value: Any, *_: Any) -> None:
        heard.append(str(value))

    @guarded(app, guard, key="document", base=InContext, on_success=hear, on_failure=hear)
    def index(run: Run, document: str) -> str:
        if document == "bad":
            raise ValueError(document)
        return document

    index.delay("good")
    index.delay("bad")
    execute_all(app)
    assert heard == ["context", "good", "context", "bad"]


def test_a_result_can_be_pickled(app: Celery, index: GuardedTask) -> None:
    app.set_current()
    assert isinstance(pickle.loads(pickle.dumps(index.delay("doc"))), AsyncResult)  # noqa: S301 - our own


def test_old_calls_and_results_are_removed_and_the_newest_value_is_kept(app: Celery, sqlite_url: str) -> None:
    guard = Guard(Settings(database=sqlite_url, ring_again=SECOND / 100, retention=SECOND / 1000))

    @guarded(app, guard, key="document", operation="force", name="index")
    def index(run: Run, document: str, text: str) -> str:
        return text

    for text in ("one", "two"):
        index.delay("doc", text)
        execute_all(app)
    waiting = index.delay("other", "three")
    sent(app)
    time.sleep(0.05)
    guard.reconcile()
    rows = {
        name: [row[0] for row in guard.store.database.read(statement)]
        for name, statement in {"calls": select(calls.c.id), "results": select(results.c.job)}.items()
    }
    assert rows["calls"] == [waiting.id]
    assert len(rows["results"]) == 1
    again = index.apply_async(("doc", "four"), operation="index")
    execute_all(app)
    assert get(again) == "two"
    guard.close()
