"""The guard with activities of Temporal, on a real server.

Temporal rejects the completion of an attempt that has timed out. What this attempt wrote meanwhile is in the world;
the fence of the guard keeps readers from seeing it.
"""

from __future__ import annotations

import asyncio
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from temporalio import activity, workflow
from temporalio.client import Client, WorkflowFailureError
from temporalio.common import RetryPolicy
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from holdfast.engine.states import Outcome
from holdfast.errors import Permanent, StaleLease, Transient
from holdfast.guard import Guard
from holdfast.guard.temporal import guarded_activity
from holdfast.settings import Settings
from tests.support.timeouts import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from holdfast.guard import Run
    from tests.support.servers import Temporal

SECOND = timedelta(seconds=1)


@workflow.defn(sandboxed=False)
class Index:
    @workflow.run
    async def run(self, document: str, seconds: float) -> Any:
        return await workflow.execute_activity(
            "index",
            document,
            start_to_close_timeout=timedelta(seconds=seconds),
            retry_policy=RetryPolicy(initial_interval=SECOND / 5, maximum_interval=SECOND),
        )


@pytest.fixture
def guard(database_url: str) -> Iterator[Guard]:
    made = Guard(
        Settings(
            database=database_url,
            lease=2 * SECOND,
            heartbeat=SECOND / 2,
            backoff=SECOND / 5,
            lock_held_delay=SECOND / 2,
        )
    )
    yield made
    made.close()


def run_workflow(
    temporal: Temporal, indexing: Callable[..., Any], *, seconds: float = 60.0, times: int = 1
) -> list[Any]:
    """Run the workflow so many times, one after the other, with a worker in this process; return the results."""

    async def run() -> list[Any]:
        client = await Client.connect(temporal.url)
        queue = uuid.uuid4().hex
        with ThreadPoolExecutor(4) as threads:
            async with Worker(
                client,
                task_queue=queue,
                workflows=[Index],
                activities=[indexing],
                activity_executor=threads,
                workflow_runner=UnsandboxedWorkflowRunner(),
                graceful_shutdown_timeout=timedelta(seconds=PATIENCE_SECONDS),  # then it interrupts late attempts
            ):
                async with asyncio.timeout(PATIENCE_SECONDS):
                    return [
                        await client.execute_workflow(
                            Index.run, args=["42", seconds], id=f"{queue}-{number}", task_queue=queue
                        )
                        for number in range(times)
                    ]

    return asyncio.run(run())


@pytest.mark.smoke
def test_an_activity_runs_once_and_a_later_workflow_skips_the_finished_work(temporal: Temporal, guard: Guard) -> None:
    paid: list[int] = []

    @guarded_activity(guard, name="index")
    def index(run: Run, document: str) -> str:
        paid.append(run.fence)
        return f"indexed {document}"

    assert run_workflow(temporal, index, times=2)[0] == "indexed 42"
    assert len(paid) == 1
    assert guard.works["index"].served("42") == paid[0]


def test_attempts_of_an_activity_are_one_job_until_the_guard_gives_up(temporal: Temporal, guard: Guard) -> None:
    attempts: list[int] = []

    @guarded_activity(guard, name="index", operation="force")
    def index(run: Run, document: str) -> str:
        attempts.append(run.attempt)
        if run.attempt < 3:
            raise Transient("rate_limited")
        return document

    assert run_workflow(temporal, index) == ["42"]
    assert attempts == [1, 2, 3]
    assert len(guard.works["index"].history("42")) == 1


def test_work_that_fails_for_good_fails_the_activity_without_another_attempt(temporal: Temporal, guard: Guard) -> None:
    attempts: list[int] = []

    @guarded_activity(guard, name="index")
    def index(run: Run, document: str) -> str:
        attempts.append(run.attempt)
        raise Permanent("quota_exhausted")

    with pytest.raises(WorkflowFailureError) as raised:
        run_workflow(temporal, index)
    assert raised.value.cause.__cause__.type == "quota_exhausted"  # type: ignore[union-attr]
    assert attempts == [1]


def test_temporal_rejects_a_late_completion_and_the_guard_its_late_writes(temporal: Temporal, guard: Guard) -> None:
    """The first attempt hangs beyond its timeout and its lease, as in a paused process, and wakes up later."""
    world: dict[str, str] = {}  # a store without transactions
    refused: list[str] = []
    rejected: list[RPCStatusCode] = []
    second_done, first_done = threading.Event(), threading.Event()

    @guarded_activity(guard, name="index")
    def index(run: Run, document: str) -> str:
        if run.attempt > 1:
            world[f"cards:{run.fence}"] = "new"
            return "new"
        token = activity.info().task_token
        run._task._heartbeat.stop()  # a paused process renews nothing
        try:
            assert second_done.wait(PATIENCE_SECONDS)
            world[f"cards:{run.fence}"] = "late"
            try:
                with run.commit():
                    pass
            except StaleLease as stale:
                refused.append(stale.code)
            rejected.append(asyncio.run(complete_late(temporal, token)))
        finally:
            first_done.set()
        return "late"

    async def use() -> Any:
        return await asyncio.to_thread(run_workflow, temporal, index, seconds=1.0)

    work = guard.works["index"]

    def watch() -> None:
        for _ in range(int(PATIENCE_SECONDS / 0.05)):
            newest = next(iter(work.history("42")), None)
            if newest is not None and newest.outcome is Outcome.SUCCESS:
                break
            threading.Event().wait(0.05)
        second_done.set()

    watcher = threading.Thread(target=watch)
    watcher.start()
    assert asyncio.run(use()) == ["new"]
    watcher.join()
    assert first_done.wait(PATIENCE_SECONDS)
    assert refused == ["stale_lease"]
    assert rejected == [RPCStatusCode.NOT_FOUND]
    assert sorted(world.values()) == ["late", "new"]  # both were written
    assert world[f"cards:{work.served('42')}"] == "new"  # and one is served


async def complete_late(temporal: Temporal, token: bytes) -> RPCStatusCode:
    """Complete the activity as the late attempt; return why the server rejects it."""
    client = await Client.connect(temporal.url)
    with pytest.raises(RPCError) as raised:
        await client.get_async_activity_handle(task_token=token).complete("late")
    return raised.value.status
