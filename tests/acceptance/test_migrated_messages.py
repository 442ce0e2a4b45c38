"""Messages that celery-once left in the broker, received by workers that have the guard.

The messages have the headers, body and properties of those that `QueueOnce` of celery-once 3.0.1 sent with Celery 5.7
to a real Valkey. They have no header of the guard. celery-singleton 0.3.1 sends the same ones without `once`.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import pytest
from celery import states

from holdfast.engine.states import Status
from tests.acceptance.test_canvas import PARKED, START, Stage, Steps, get
from tests.support.processes import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.servers import Valkey

pytestmark = pytest.mark.celery
ONCE = {"graceful": True, "timeout": 5}


@pytest.fixture(scope="module")
def stage(valkey: Valkey, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("migrated")
    made = Stage(valkey.url, valkey.url.replace("/0", "/1"), folder, database=f"sqlite:///{folder}/guard.db")
    try:
        yield made
    finally:
        made.close()


def leave(stage: Stage, steps: Steps, how: str = "", *, queue: str = "celery", chain: list[Any] | None = None) -> Any:
    """Put the message of an older call into a queue, and return its result."""
    task_id = str(uuid.uuid4())
    kwargs = {"key": steps.key, "how": how}
    unused = ("shadow", "eta", "expires", "group", "group_index", "parent_id", "stamped_headers")
    headers: dict[str, Any] = {
        **dict.fromkeys(unused),
        "lang": "py",
        "task": "guarded.step",
        "id": task_id,
        "retries": 0,
        "timelimit": [None, None],
        "root_id": task_id,
        "argsrepr": repr((START,)),
        "kwargsrepr": repr(kwargs),
        "origin": "gen31543@web",
        "ignore_result": False,
        "replaced_task_nesting": 0,
        "stamps": {},
    }
    embedded = {"callbacks": None, "errbacks": None, "chain": chain, "chord": None}
    with stage.tasks.app.connection_for_write() as connection, connection.Producer() as producer:
        producer.publish(
            [[START], kwargs, embedded],
            exchange="",
            routing_key=queue,
            declare=[stage.tasks.app.amqp.queues[queue]],
            serializer="json",
            headers=headers,
            correlation_id=task_id,
            reply_to=str(uuid.uuid4()),
            delivery_mode=2,
            priority=0,
            once=ONCE,
        )
    return stage.tasks.app.AsyncResult(task_id)


def steps_of(stage: Stage, case: str) -> Steps:
    _, steps = stage.steps(case)
    return steps


@pytest.mark.smoke
def test_a_call_that_waits_in_the_queue_is_admitted_under_its_id(stage: Stage) -> None:
    steps = steps_of(stage, "queued")
    app = stage.tasks.app
    app.amqp.queues.select_add(PARKED)
    result = leave(stage, steps, queue=PARKED)
    assert stage.guard.works["guarded.step"].status(steps.key).status is Status.NOT_INDEXED
    app.control.add_consumer(PARKED, reply=True, timeout=5)
    try:
        assert get(result) == "start>a"
    finally:
        app.control.cancel_consumer(PARKED, reply=True, timeout=5)
    (job,) = stage.guard.works["guarded.step"].history(steps.key)
    assert (job.id, job.outcome) == (result.id, "success")


def test_two_calls_whose_lock_had_expired_run_once(stage: Stage) -> None:
    steps = steps_of(stage, "expired_lock")
    first, second = (leave(stage, steps, "hold") for _ in range(2))
    until(lambda: stage.count("ran", steps.key) == 1, "none runs")
    new = stage.tasks.guarded_step.delay(START, key=steps.key)
    assert new.admission.verdict == "joined"
    assert {one.state for one in (first, second, new)} == {states.PENDING}
    stage.release(steps.key)
    assert [get(one) for one in (first, second, new)] == ["start>a"] * 3
    assert stage.count("ran", steps.key) == 1


def test_a_call_that_arrives_after_a_newer_one_gets_its_result(stage: Stage) -> None:
    steps = steps_of(stage, "late")
    assert get(stage.tasks.guarded_step.delay(START, key=steps.key)) == "start>a"
    assert get(leave(stage, steps)) == "start>a"
    assert stage.count("ran", steps.key) == 1


def test_a_call_in_a_chain_continues_once(stage: Stage) -> None:
    steps = steps_of(stage, "chained")
    after = {**stage.tasks.after.s(key=steps.case), "options": {"task_id": str(uuid.uuid4())}}
    leave(stage, steps, "twice", chain=[after])
    leave(stage, steps, "twice")
    until(lambda: stage.count("ran", steps.key) == 1, "it does not run")
    stage.release(steps.key)
    assert get(stage.tasks.app.AsyncResult(after["options"]["task_id"])) == "start>a|after"
    assert stage.count("after", steps.case) == 1
    assert stage.count("ran", steps.key) == 1


def test_a_call_whose_worker_is_killed_runs_again(stage: Stage) -> None:
    steps = steps_of(stage, "killed")
    assert get(leave(stage, steps, "kill")) == "start>a"
    assert stage.count("ran", steps.key) == 2
