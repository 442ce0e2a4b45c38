"""What a guarded Celery task costs beside its own work: transactions, commits that wait for the disk, and threads."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
from celery import Celery, states

from holdfast.db.database import Database
from holdfast.engine.states import Status
from holdfast.guard import Guard
from holdfast.guard.celery import GuardedTask, guarded
from holdfast.guard.tables import calls
from holdfast.settings import Settings
from tests.support.celery_messages import execute, execute_all, sent, take

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.guard import Run

WRITES = ("write", "write_single")
READS = ("reading", "read")


@pytest.fixture
def app() -> Iterator[Celery]:
    made = Celery("shop", broker="memory://", backend="cache+memory://", set_as_current=False)
    yield made
    sent(made)  # empties the queue, because the in-memory broker outlives the app
    made.close()


@pytest.fixture
def guard(sqlite_url: str) -> Iterator[Guard]:
    made = Guard(Settings(database=sqlite_url))
    yield made
    made.close()


@pytest.fixture
def index(app: Celery, guard: Guard) -> GuardedTask:
    @guarded(app, guard, key="document", name="index")
    def index(run: Run, document: str) -> str:
        return f"{run.key}: built"

    return index


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bool | None]]:
    """Collect the transactions of the database: the method, and whether its commit waits for the disk."""
    found: list[tuple[str, bool | None]] = []
    for name in (*WRITES, *READS):
        original = getattr(Database, name)

        def note(self: Database, *args: Any, name: str = name, original: Any = original, **options: Any) -> Any:
            found.append((name, options.get("durable")))
            return original(self, *args, **options)

        monkeypatch.setattr(Database, name, note)
    return found


def test_a_call_without_accidents_takes_one_read_and_four_writes(
    app: Celery,
    index: GuardedTask,
    used: list[tuple[str, bool | None]],
) -> None:
    index.delay("first")
    execute_all(app)  # starts the heartbeat
    used.clear()
    result = index.delay("doc")
    assert used == [("write", True)], "the admission, with the record that the message is sent"
    message = take(app)
    used.clear()
    assert execute(app, message) == states.SUCCESS
    assert used == [
        ("read", None),  # the call and its job
        ("write", False),  # claim
        ("write", True),  # publish: the result, the report, and the reserved answer
        ("write_single", False),  # the call was answered
    ]
    assert result.get() == "doc: built"


def test_the_record_of_an_answer_waits_for_the_disk_only_if_something_continues(
    app: Celery,
    index: GuardedTask,
    used: list[tuple[str, bool | None]],
) -> None:
    """A power cut may lose it. Then the call is answered again: the same result is stored, or a callback runs twice."""
    index.delay("plain")
    execute_all(app)
    assert used[-1] == ("write_single", False)
    index.apply_async(("linked",), link=index.si("callback"))
    execute(app, take(app))
    assert ("write_single", True) in used


def test_a_worker_that_dies_after_the_commit_leaves_the_answer_to_another_delivery(
    app: Celery,
    guard: Guard,
    index: GuardedTask,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    result = index.delay("doc")
    message = take(app)

    def die(*_: Any, **__: Any) -> None:
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(index.backend, "mark_as_done", die)
        with pytest.raises(SystemExit):
            execute(app, message)
    assert guard.works["index"].status("doc").status is Status.SUCCESS
    assert execute(app, message) == "IGNORED", "the answer is reserved for the delivery that published"
    guard.store.database.write(lambda tx: tx.run(calls.update().values(until=0, sent_at=0)), durable=True)
    guard.reconcile()
    assert execute(app, take(app)) == states.SUCCESS
    assert result.get() == "doc: built"
    assert len(guard.works["index"].history("doc")) == 1


def test_calls_that_joined_are_released_with_the_result(
    app: Celery,
    guard: Guard,
    index: GuardedTask,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If the worker dies before it sends their messages, the reconciler sends them."""
    first, joined = index.delay("doc"), index.delay("doc")
    message = take(app)

    def die(*_: Any) -> None:
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(GuardedTask, "send_answer", die)
        with pytest.raises(SystemExit):
            execute(app, message)
    guard.store.database.write(lambda tx: tx.run(calls.update().values(until=0, sent_at=0)), durable=True)
    guard.reconcile()
    assert set(execute_all(app)) == {states.SUCCESS}
    assert first.get() == joined.get() == "doc: built"


def test_all_runs_of_a_process_share_one_heartbeat_that_ends_with_the_guard(
    app: Celery,
    guard: Guard,
    index: GuardedTask,
) -> None:
    before = threading.active_count()
    for number in range(3):
        index.delay(f"doc {number}")
        execute_all(app)
    assert threading.active_count() == before + 1
    assert guard.store.count_workers() == 1
    guard.close()
    assert threading.active_count() == before
    assert guard.store.count_workers() == 0


def test_a_report_is_written_with_the_result(app: Celery, guard: Guard) -> None:
    @guarded(app, guard, key="document", name="count")
    def count(run: Run, document: str) -> dict[str, int]:
        for number in range(3):
            run.checkpoint(counters={"pairs": number})
        return {"pairs": len(document)}

    result = count.delay("doc")
    execute_all(app)
    job = guard.job(result.id)
    assert (job.state, job.counters, job.result) == ("succeeded", {"pairs": 2}, {"pairs": 3})
    assert sent(app) == []
