"""The Celery decorator: requests, deliveries and sent messages, on Celery's in-memory broker.

The tests deliver with `apply`, which runs a task in the same thread, and read sent messages from the queue.
"""

from __future__ import annotations

import json
import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from celery import Celery
from kombu.exceptions import OperationalError

from holdfast.engine.states import Outcome, Status
from holdfast.errors import BadRequest, BadSettings, GuardedWorkFailed, Permanent, Transient
from holdfast.guard import Guard, Run
from holdfast.guard.celery import RECONCILE_TASK, GuardedTask, guarded, reconcile_by_beat
from holdfast.settings import Settings
from tests.support.timeouts import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator

SECOND = timedelta(seconds=1)


@pytest.fixture
def app() -> Iterator[Celery]:
    made = Celery("shop", broker="memory://", set_as_current=False)
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


def sent(app: Celery, queue: str = "celery") -> list[Any]:
    """Take all messages from a queue."""
    found = []
    with app.connection_for_read() as connection, connection.SimpleQueue(queue) as waiting:
        while waiting.qsize():
            message = waiting.get_nowait()
            found.append(message)
            message.ack()
    return found


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
        return f"{run.key}: {text}"

    return index


def test_a_request_is_admitted_and_sent_under_the_id_of_its_job(app: Celery, guard: Guard, index: GuardedTask) -> None:
    result = index.delay("doc", text="new")
    assert result.admission.accepted
    (message,) = sent(app)
    assert message.headers["id"] == result.id == guard.works["index"].history("doc")[0].id
    assert message.payload[0:2] == [["doc"], {"text": "new"}]


def test_a_duplicate_request_sends_nothing_and_returns_the_same_id(app: Celery, index: GuardedTask) -> None:
    first, second = index.delay("doc"), index.delay("doc")
    assert second.id == first.id
    assert (second.admission.verdict, second.admission.job) == ("joined", first.id)
    assert len(sent(app)) == 1


def test_finished_work_is_skipped_and_the_reply_names_its_job(app: Celery, index: GuardedTask) -> None:
    first = index.delay("doc")
    index.apply(("doc",), task_id=first.id)
    again = index.delay("doc")
    assert (again.admission.verdict, again.id) == ("skipped", first.id)
    assert len(sent(app)) == 1


def test_a_call_can_pass_operation_requester_priority_and_cost(app: Celery, guard: Guard, index: GuardedTask) -> None:
    first = index.apply_async(("doc",), operation="change", fingerprint="one", requester="ann", priority=2)
    index.apply_async(("doc",), operation="change", fingerprint="one", requester="bob", cost=0.5, cause="sync")
    newer = index.apply_async(("doc",), operation="change", fingerprint="two")
    assert newer.id != first.id
    work = guard.works["index"]
    assert [(one.requester, one.cost) for one in work.refusals("doc")] == [("bob", 0.5)]
    old = work.history("doc")[1]
    assert (old.requester, old.priority, old.outcome) == ("ann", 2, Outcome.SUPERSEDED)
    assert len(sent(app)) == 2


def test_a_rejected_request_returns_the_reason_and_sends_nothing(app: Celery, index: GuardedTask) -> None:
    refused = index.apply_async(("nobody",), operation="retry")
    assert (refused.admission.verdict, refused.admission.reason) == ("rejected", "unknown_owner")
    assert sent(app) == []


def test_the_key_can_be_positional_or_a_keyword(index: GuardedTask) -> None:
    ways = [index.delay("doc"), index.delay(document="doc"), index.apply_async(kwargs={"document": "doc"})]
    assert len({way.id for way in ways}) == 1


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


def test_a_key_that_is_not_a_parameter_is_refused_at_import_time(app: Celery, guard: Guard) -> None:
    with pytest.raises(BadSettings, match="has no parameter 'isbn' after its first parameter 'run'"):

        @guarded(app, guard, key="isbn")
        def index(run: Run, document: str) -> str:
            return document


def test_arguments_that_cannot_be_stored_are_refused_before_anything_is_written(
    guard: Guard, index: GuardedTask
) -> None:
    with pytest.raises(BadRequest, match=r"arguments of the task 'index' are not JSON .*Pass ids and texts instead"):
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
    (message,) = sent(app)
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


def test_a_message_is_sent_again_to_the_queue_it_was_sent_to(app: Celery, guard: Guard, index: GuardedTask) -> None:
    index.apply_async(("doc",), queue="slow")
    assert len(sent(app, "slow")) == 1
    threading.Event().wait(0.05)
    guard.reconcile()
    assert len(sent(app, "slow")) == 1
    index.apply(("doc",), {"text": "transient"}, task_id=guard.works["index"].history("doc")[0].id)
    assert len(sent(app, "slow")) == 1, "and so is one that comes later"
    assert sent(app) == []


def test_a_job_that_was_not_requested_through_its_task_is_not_sent(
    app: Celery, guard: Guard, caplog: pytest.LogCaptureFixture
) -> None:
    @guarded(app, guard, key="document", name="index")
    def index(run: Run, document: str) -> str:
        return document

    guard.works["index"].admit("doc")
    guard.reconcile()
    assert sent(app) == []
    assert [record.message.split()[0] for record in caplog.records] == ["message.unknown"]


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


def test_a_delivery_does_the_work_and_a_second_one_returns_the_reason(index: GuardedTask) -> None:
    job = index.delay("doc").id
    done = index.apply(("doc",), task_id=job).get()
    assert done == {"verdict": "done", "reason": "success", "outcome": "success", "value": "doc: built"}
    again = index.apply(("doc",), task_id=job).get()
    assert (again["verdict"], again["reason"]) == ("skipped", "already_success")


def test_a_message_of_an_unknown_job_is_skipped(index: GuardedTask) -> None:
    assert index.apply(("doc",), task_id="stranger").get()["reason"] == "unknown_job"


def test_a_permanent_failure_makes_the_celery_task_fail(index: GuardedTask) -> None:
    job = index.delay("doc", text="permanent").id
    with pytest.raises(GuardedWorkFailed, match="The task 'index' failed with the error 'bad_file'"):
        index.apply(("doc", "permanent"), task_id=job).get()
    other = index.delay("empty", text="nothing").id
    with pytest.raises(GuardedWorkFailed, match="no_result"):
        index.apply(("empty", "nothing"), task_id=other).get()


def test_a_transient_failure_sends_the_message_again_later(app: Celery, index: GuardedTask) -> None:
    job = index.delay("doc", text="transient").id
    sent(app)
    # `retries` counts only held locks, so a transient failure resets it to zero.
    postponed = index.apply(("doc",), {"text": "transient"}, task_id=job, retries=3).get()
    assert (postponed["verdict"], postponed["reason"]) == ("postponed", "rate_limited")
    (message,) = sent(app)
    assert (message.headers["id"], message.headers["retries"]) == (job, 0)
    assert message.headers["eta"] is not None
    assert message.payload[0:2] == [["doc"], {"text": "transient"}]


def hold(app: Celery, guard: Guard) -> tuple[str, threading.Event, threading.Thread, GuardedTask]:
    """Start a run that holds its key until the event is set."""
    begun, go_on = threading.Event(), threading.Event()

    @guarded(app, guard, key="document", name="slow")
    def slow(run: Run, document: str) -> str:
        begun.set()
        assert go_on.wait(PATIENCE_SECONDS)
        return document

    job = str(slow.delay("doc").id)
    thread = threading.Thread(target=slow.apply, args=(("doc",),), kwargs={"task_id": job})
    thread.start()
    assert begun.wait(PATIENCE_SECONDS)
    return job, go_on, thread, slow


def test_a_held_lock_sends_the_message_again_a_limited_number_of_times(app: Celery, guard: Guard) -> None:
    job, go_on, thread, slow = hold(app, guard)
    sent(app)
    held = slow.apply(("doc",), task_id=job, retries=1).get()
    assert held["verdict"] == "lock_held"
    (message,) = sent(app)
    assert (message.headers["id"], message.headers["retries"]) == (job, 2)
    spent = slow.apply(("doc",), task_id=job, retries=3).get()
    assert (spent["verdict"], spent["reason"]) == ("skipped", "lock_held")
    assert sent(app) == []
    assert guard.works["slow"].status("doc").status is Status.INDEXING
    go_on.set()
    thread.join()
    assert guard.works["slow"].status("doc").status is Status.SUCCESS


def test_the_call_is_stored_as_plain_json(guard: Guard, index: GuardedTask) -> None:
    job = guard.store.job(index.delay("doc", text="kept").id)
    assert json.loads(job.payload or "") == {"args": ["doc"], "kwargs": {"text": "kept"}, "options": {}}
