"""Calls of guarded tasks: what a second call with the same id gets, what a message keeps, and who is answered when.

They run on Celery's in-memory broker and result backend, as in `test_guarded_task`.
"""

from __future__ import annotations

import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from celery import Celery, states
from celery.exceptions import Reject
from kombu import Exchange, Queue
from sqlalchemy import delete

from holdfast.engine.states import Outcome, Status
from holdfast.errors import BadRequest, GuardedWorkFailed, Permanent, Transient
from holdfast.guard import Guard, Run
from holdfast.guard.celery import GuardedTask, guarded
from holdfast.guard.tables import results
from holdfast.settings import Settings
from tests.support.celery_messages import execute, execute_all, find_answered, get, sent, take

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
    made = Guard(Settings(database=sqlite_url, backoff=SECOND / 50, attempts=2, ring_again=SECOND / 100))
    yield made
    made.close()


@pytest.fixture
def make(app: Celery, guard: Guard) -> Callable[..., GuardedTask]:
    def make(**options: Any) -> GuardedTask:
        @guarded(app, guard, **{"key": "document", "name": "index", **options})
        def index(run: Run, document: str, text: Any = "built") -> Any:
            if text == "permanent":
                raise Permanent("bad_file")
            if text == "transient" and run.attempt == 1:
                raise Transient("rate_limited")
            return f"{document}: {text}"

        return index

    return make


@pytest.fixture
def index(make: Callable[..., GuardedTask]) -> GuardedTask:
    return make()


@pytest.fixture
def heard(app: Celery) -> list[Any]:
    """The values that the plain task `hear` got, which continues after others."""
    values: list[Any] = []

    @app.task(shared=False, name="hear")  # type: ignore[untyped-decorator]  # Celery has no types
    def hear(value: Any) -> None:
        values.append(value)

    return values


def ids(messages: list[Any]) -> list[str]:
    return [message.headers["id"] for message in messages]


def wait_and_reconcile(guard: Guard) -> None:
    """Let the reconciler send what was lost."""
    time.sleep(0.05)
    guard.reconcile()


def test_a_second_call_with_the_same_id_gets_the_decision_on_the_first(guard: Guard, index: GuardedTask) -> None:
    first, again = (index.apply_async(("doc",), task_id="one").admission for _ in range(2))
    assert (again.verdict, again.job, again.generation) == (first.verdict, "one", 1) == ("accepted", first.job, 1)
    refused, again = (index.apply_async(("nobody",), operation="retry", task_id="two").admission for _ in range(2))
    assert (again.verdict, again.reason) == (refused.verdict, refused.reason) == ("rejected", "unknown_owner")
    assert (again.job, again.generation) == (None, None)


def test_a_second_call_with_the_id_of_a_revoked_one_is_rejected(index: GuardedTask) -> None:
    index.delay("doc")
    index.apply_async(("doc",), task_id="joined").revoke()
    again = index.apply_async(("doc",), task_id="joined").admission
    assert (again.verdict, again.status) == ("rejected", Status.QUEUED)


def test_a_refused_call_with_a_known_id_is_answered_once(app: Celery, index: GuardedTask) -> None:
    for _ in range(2):
        index.apply_async(("nobody",), operation="retry", task_id="one")
    assert ids(sent(app)) == ["one"]


def test_a_call_that_was_answered_gets_no_further_message(app: Celery, guard: Guard, index: GuardedTask) -> None:
    first, joined = (index.apply_async(("doc",), operation="change", fingerprint="one") for _ in range(2))
    execute_all(app)
    newer = index.apply_async(("doc",), operation="change", fingerprint="two")
    first.revoke()
    joined.revoke()
    assert ids(sent(app)) == [newer.id]
    guard.works["index"].cancel("doc")
    assert newer.id in ids(sent(app))
    assert index.calls.release(guard.works["index"].job(newer.id)) == []


def test_a_newer_request_answers_only_the_calls_of_its_own_key(app: Celery, index: GuardedTask) -> None:
    index.apply_async(("other",), operation="change", fingerprint="one")
    old = index.apply_async(("doc",), operation="change", fingerprint="one")
    sent(app)
    newer = index.apply_async(("doc",), operation="change", fingerprint="two")
    assert sorted(ids(sent(app))) == sorted([old.id, newer.id])


def test_a_refused_call_is_answered_alone(index: GuardedTask) -> None:
    index.delay("doc")
    refused = index.apply_async(("nobody",), operation="retry")
    time.sleep(0.05)
    assert [call.id for call in index.calls.take_due()] == [refused.id]


def test_a_call_that_is_being_answered_is_not_answered_a_second_time(index: GuardedTask) -> None:
    first, second = (index.calls.get(index.delay(key).id) for key in ("one", "two"))
    assert index.calls.claim_answer(first)
    assert not index.calls.claim_answer(first)
    assert index.calls.claim_answer(second)


def test_a_pass_of_the_reconciler_that_finds_nothing_writes_nothing(guard: Guard, index: GuardedTask) -> None:
    index.delay("doc")
    guard.store.database.write = None  # type: ignore[method-assign, assignment]  # every write would fail
    assert index.calls.take_due() == []
    index.calls.sweep()


def test_cancelled_work_answers_joined_calls_at_once(app: Celery, guard: Guard, index: GuardedTask) -> None:
    result, joined = index.delay("doc"), index.delay("doc")
    sent(app)
    guard.works["index"].cancel("doc")
    assert sorted(ids(sent(app))) == sorted([result.id, joined.id])


def test_a_revoked_call_whose_job_has_ended_leaves_a_newer_job_alone(
    app: Celery, guard: Guard, index: GuardedTask
) -> None:
    old = index.delay("doc")
    execute_all(app)
    newer = index.apply_async(("doc",), operation="force")
    joined = index.delay("doc")
    sent(app)
    old.revoke()
    assert index.calls.release(guard.works["index"].job(old.id)) == []
    assert sent(app) == []
    assert [job.outcome for job in guard.works["index"].history("doc")] == [None, Outcome.SUCCESS]
    assert joined.admission.job == newer.id


def test_a_call_without_a_result_continues_although_it_joined(
    app: Celery, make: Callable[..., GuardedTask], heard: list[Any]
) -> None:
    index = make(ignore_result=True)
    index.delay("doc")
    linked = index.apply_async(("doc",), link=app.tasks["hear"].s())
    by_name = app.send_task("index", ("doc",), link=app.tasks["hear"].s(), ignore_result=True)
    app.send_task("index", ("doc",), ignore_result=True)
    assert [execute(app, message) for message in reversed(sent(app))] == ["IGNORED", "IGNORED", states.SUCCESS]
    answers = sent(app)
    assert sorted(ids(answers)) == sorted([linked.id, by_name.id]), "nothing waits for the other calls"
    for message in answers:
        execute(app, message)
    execute_all(app)
    assert heard == ["doc: built", "doc: built"]


def test_a_direct_call_sends_no_message(app: Celery, guard: Guard, index: GuardedTask) -> None:
    index("doc")
    index("doc")
    index.apply(("other",))
    wait_and_reconcile(guard)
    assert sent(app) == []


def test_a_job_without_a_call_does_not_keep_the_reconciler_from_others(
    app: Celery, guard: Guard, index: GuardedTask
) -> None:
    guard.store.admit([index.work.make_request("adopted")])
    lost = index.delay("doc")
    sent(app)
    wait_and_reconcile(guard)
    assert ids(sent(app)) == [lost.id]


def test_a_retry_changes_only_its_own_message(app: Celery, guard: Guard) -> None:
    @guarded(app, guard, key="document", bind=True, name="again")
    def again(self: GuardedTask, run: Run, document: str, tries: int = 0) -> None:
        raise self.retry(args=[document], kwargs={"tries": tries + 1}, countdown=0.01, max_retries=5)

    again.delay("one")
    again.delay("two")
    execute(app, sent(app)[0])
    sent(app)
    wait_and_reconcile(guard)
    assert [message.payload[0:2] for message in sent(app)] == [[["one"], {"tries": 1}], [["two"], {}]]


@pytest.mark.parametrize("serializer", ["of the call", "of the task"])
def test_arguments_are_stored_with_the_serializer_that_sends_them(
    app: Celery, make: Callable[..., GuardedTask], serializer: str
) -> None:
    app.conf.update(accept_content=["json", "pickle"], result_serializer="pickle")
    index = make(**({"serializer": "pickle"} if serializer == "of the task" else {}))
    options = {"serializer": "pickle"} if serializer == "of the call" else {}
    result = index.apply_async(("doc",), {"text": {"a set"}}, **options)
    execute_all(app)
    assert get(result) == "doc: {'a set'}"


def test_objects_of_one_publication_are_not_stored(app: Celery, guard: Guard, index: GuardedTask) -> None:
    with app.connection_for_write() as connection:
        index.apply_async(("doc",), connection=connection, queue=Queue("slow"))
    first = take(app, "slow")
    wait_and_reconcile(guard)
    assert take(app, "slow").headers["root_id"] == first.headers["root_id"] == first.headers["id"]


def test_a_call_within_a_task_has_this_task_as_its_parent_also_when_it_is_sent_again(
    app: Celery, guard: Guard, index: GuardedTask
) -> None:
    @app.task(shared=False, name="parent", bind=True)  # type: ignore[untyped-decorator]  # Celery has no types
    def parent(self: Any) -> list[str]:
        first = index.apply_async(("doc",), parent_id=None, root_id=None)  # as some canvases pass them
        made = [first, index.delay("doc"), index.apply_async(("doc",), add_to_parent=False)]
        assert [child.id for child in self.request.children] == [one.id for one in made[:2]]
        return [one.id for one in made]

    outer = app.send_task("parent", root_id="root")
    assert execute(app, take(app)) == states.SUCCESS
    first = take(app)
    wait_and_reconcile(guard)
    again = take(app)
    for message in (first, again):
        assert (message.headers["parent_id"], message.headers["root_id"]) == (outer.id, "root")


def test_a_call_by_name_is_sent_again_to_its_queue_with_its_options_and_those_of_the_task(
    app: Celery, make: Callable[..., GuardedTask]
) -> None:
    make(time_limit=30)
    with Celery("other", broker="memory://", set_as_current=False) as other:  # it does not know the task
        result = other.send_task("index", ("doc", "transient"), queue="slow", ignore_result=True)
    first = take(app, "slow")
    assert execute(app, first) == states.RETRY
    again = take(app, "slow")
    assert (again.headers["id"], again.headers["ignore_result"]) == (result.id, True)
    assert (first.headers["timelimit"], again.headers["timelimit"]) == ([None, None], [30, None])


def test_a_call_by_name_with_an_exchange_is_sent_again_to_this_exchange(app: Celery, index: GuardedTask) -> None:
    with app.connection_for_write() as connection:
        Queue("routed", Exchange("shop"), routing_key="to.shop")(connection.default_channel).declare()
    result = app.send_task("index", ("doc", "transient"), exchange="shop", routing_key="to.shop")
    assert execute(app, take(app, "routed")) == states.RETRY
    assert take(app, "routed").headers["id"] == result.id


def test_own_headers_stay_with_a_call_that_is_applied_here(app: Celery, guard: Guard) -> None:
    @guarded(app, guard, key="document", bind=True)
    def index(self: GuardedTask, run: Run, document: str) -> str:
        return str(self.request.headers["tenant"])

    assert index.apply(("doc",), headers={"tenant": "acme"}, requester="ann").get() == "acme"
    assert guard.works[index.name].history("doc")[0].requester == "ann"


def test_a_call_that_cannot_be_admitted_fails_where_it_is_applied(index: GuardedTask) -> None:
    result = index.apply(())
    assert (result.state, result.admission) == (states.FAILURE, None)
    assert isinstance(result.result, BadRequest)


def test_a_call_for_adopted_work_returns_none(app: Celery, guard: Guard, index: GuardedTask) -> None:
    guard.store.adopt([index.work.make_request("doc")])
    result = index.delay("doc")
    assert execute_all(app) == [states.SUCCESS]
    assert get(result) is None


def test_a_failed_job_whose_error_was_removed_still_answers_its_calls(
    app: Celery, guard: Guard, index: GuardedTask
) -> None:
    index.delay("doc", text="permanent")
    joined = index.delay("doc")
    execute(app, take(app))
    guard.store.database.write(lambda tx: tx.run(delete(results)), durable=True)
    execute_all(app)
    with pytest.raises(GuardedWorkFailed, match="bad_file"):
        get(joined)


def test_a_rejected_message_answers_its_call(app: Celery, guard: Guard) -> None:
    @guarded(app, guard, key="document")
    def index(run: Run, document: str) -> None:
        raise Reject("no", requeue=False)

    result = index.delay("doc")
    execute(app, take(app))
    assert find_answered(guard) == {result.id}


def test_a_revoked_id_of_an_unknown_call_changes_nothing(guard: Guard, index: GuardedTask) -> None:
    index.cancel_call("of a plain task")
    assert guard.works["index"].history("doc") == []
