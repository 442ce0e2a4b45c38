"""The event of every attempt contains what the attempt used and the rows that it made, on both databases."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.catalog.chunk_lists import ChunkLists
from holdfast.content import read
from holdfast.engine.slot import BuildResult, Fault
from holdfast.engine.states import Operation
from holdfast.engine.store.base import Failure
from holdfast.errors import Permanent, Transient
from holdfast.process_usage import ProcessUsage
from tests.support.harness import Rig
from tests.support.samples import pdf
from tests.support.scripted_workers import Scripted, worker
from tests.support.stores import ONE, request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from holdfast.engine.store.sql_store import SqlStore
    from holdfast.engine.task import Task
    from tests.support.clock import FakeClock

SECOND = timedelta(seconds=1)
PARTS = [f"## Part {number}\n\nThe krill of part {number} is old and grey today." for number in range(10)]


@pytest.fixture
def rig(database_url: str, tmp_path: Path, clock: FakeClock) -> Iterator[Rig]:
    rig = Rig(database_url, tmp_path / "blobs", clock, chunk_size=32, chunk_overlap=0)
    yield rig
    rig.close()


def last(store: SqlStore, kind: str, type_: str) -> Mapping[str, Any]:
    """Return the data of the last event of this type about slots of this kind."""
    found = [line.event for line in store.events() if (line.event.kind, line.event.type) == (kind, type_)]
    return found[-1].parsed_data


def rows(data: Mapping[str, Any]) -> tuple[int, int, int]:
    return data.get("written", 0), data.get("kept", 0), data.get("removed", 0)


def take(clock: FakeClock, error: Exception | None = None) -> Callable[[Task], BuildResult]:
    """Return a build that uses the processor, three seconds of the clock, and counts rows."""

    def build(task: Task) -> BuildResult:
        until = time.thread_time() + 0.01
        while time.thread_time() < until:
            pass
        clock.advance(3 * SECOND)
        task.count_rows(written=1, kept=9, removed=1)
        if error is not None:
            raise error
        return BuildResult()

    return build


@pytest.mark.parametrize(
    ("error", "type_"),
    [(None, "slot.completed"), (Transient("timeout"), "slot.postponed"), (Permanent("bad_file"), "slot.failed")],
)
def test_an_attempt_records_what_it_used_however_it_ends(
    store: SqlStore, clock: FakeClock, error: Exception | None, type_: str
) -> None:
    store.admit([request(slots=ONE)])
    clock.advance(5 * SECOND)
    worker(store, clock, take(clock, error)).run_next(1)
    data = last(store, "cards", type_)
    assert (data["ran_ms"], data["waited_ms"], rows(data)) == (3000, 5000, (1, 9, 1))
    assert 10 <= data["cpu_ms"] < 3000
    assert data["peak_kb"] > 10_000


def test_a_returned_attempt_records_what_it_used(store: SqlStore, clock: FakeClock) -> None:
    store.admit([request(slots=ONE)])

    def build(task: Task) -> BuildResult:
        clock.advance(2 * SECOND)
        executor.stop()
        task.checkpoint()
        return BuildResult()

    executor = worker(store, clock, build)
    executor.run_next(1)
    assert last(store, "cards", "slot.released")["ran_ms"] == 2000


def test_a_clean_up_records_what_it_used(store: SqlStore, clock: FakeClock) -> None:
    store.admit([request(slots=ONE)])
    store.admit([request(operation=Operation.DELETE)])

    def remove(task: Task) -> None:
        clock.advance(SECOND)
        task.count_rows(removed=7)

    worker(store, clock, remove=remove).run_next(1)
    data = last(store, "cards", "slot.forgotten")
    assert (data["ran_ms"], data["removed"]) == (1000, 7)


def test_a_result_that_the_indexer_publishes_itself_records_what_it_used(store: SqlStore, clock: FakeClock) -> None:
    store.admit([request(slots=ONE)])

    def build(task: Task) -> BuildResult:
        clock.advance(SECOND)
        task.count_rows(written=4)
        with task.publish():
            return BuildResult()

    worker(store, clock, build).run_next(1)
    data = last(store, "cards", "slot.completed")
    assert (data["ran_ms"], data["written"]) == (1000, 4)


def test_the_attempts_of_a_batch_share_the_time_of_their_preparation(store: SqlStore, clock: FakeClock) -> None:
    class Prepared(Scripted):
        def begin(self, _: Sequence[Task]) -> None:
            clock.advance(10 * SECOND)

        def remove_all(self, tasks: Sequence[Task]) -> None:
            clock.advance(6 * SECOND)
            for task in tasks:
                task.count_rows(removed=2)

    store.admit([request(owner, slots=ONE) for owner in ("one", "two")])
    executor = worker(store, clock)
    executor.indexers = {"cards": Prepared(lambda _: BuildResult(), lambda _: None)}
    assert executor.run_next(2) == 2
    assert last(store, "cards", "slot.completed")["ran_ms"] == 5000
    store.admit([request(owner, Operation.DELETE) for owner in ("one", "two")])
    assert executor.run_next(2) == 2
    data = last(store, "cards", "slot.forgotten")
    assert (data["ran_ms"], data["removed"]) == (3000, 2)


def test_an_edit_of_one_paragraph_writes_one_row_keeps_the_others_and_removes_one(rig: Rig) -> None:
    rig.index("parts.md", "\n\n".join(PARTS))
    kinds = ("content", "vector", "fulltext")
    assert {kind: rows(last(rig.store, kind, "slot.completed")) for kind in kinds} == dict.fromkeys(kinds, (10, 0, 0))
    rig.index("parts.md", "\n\n".join(PARTS).replace("part 7 is old", "part 7 was young"))
    assert {kind: rows(last(rig.store, kind, "slot.completed")) for kind in kinds} == dict.fromkeys(kinds, (1, 9, 1))


def test_a_new_recipe_replaces_every_row_but_no_missing_chunk(rig: Rig) -> None:
    rig.index("parts.md", "\n\n".join(PARTS))
    slot, lists = rig.slot("parts.md", "vector"), ChunkLists(rig.store.database)
    source, recipe = slot.source or 0, slot.recipe or 0
    assert lists.count_replaced([(slot.id, source, recipe)]) == {}
    assert lists.count_replaced([(slot.id, source, recipe + 1)]) == {slot.id: 10}
    missing = f"INSERT INTO library_missing VALUES ({slot.id}, {rig.rows('vector')[0]}, '')"  # noqa: S608 - numbers of this test
    with rig.store.database.writing(durable=True) as tx:
        tx.run_sql(missing)
    assert lists.count_replaced([(slot.id, source, recipe + 1)]) == {slot.id: 9}


def test_a_rebuild_keeps_all_rows(rig: Rig) -> None:
    rig.index("parts.md", "\n\n".join(PARTS))
    rig.ask("parts.md", Operation.REINDEX)
    rig.work()
    kinds = ("content", "vector", "fulltext")
    assert {kind: rows(last(rig.store, kind, "slot.completed")) for kind in kinds} == dict.fromkeys(kinds, (0, 10, 0))


def test_a_failed_attempt_counts_the_rows_that_it_wrote_and_the_next_one_keeps_them(
    rig: Rig, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    index: Any = rig.library.indexes["fulltext"]
    fill = index.fill

    def break_off(work: Any) -> None:
        fill(replace(work, pieces=work.pieces[:4]))
        raise Transient("timeout")

    monkeypatch.setattr(index, "ready", lambda _: None)
    monkeypatch.setattr(index, "fill", break_off)
    rig.index("parts.md", "\n\n".join(PARTS))
    assert rows(last(rig.store, "fulltext", "slot.postponed")) == (4, 0, 0)
    monkeypatch.setattr(index, "fill", fill)
    clock.advance(timedelta(hours=1))
    rig.work()
    assert rows(last(rig.store, "fulltext", "slot.completed")) == (6, 4, 0)
    result = rig.store.job(rig.slot("parts.md", "fulltext").job).results["fulltext"]
    assert (rows(result), result["attempts"]) == ((10, 0, 0), 2)


def test_the_process_that_reads_a_file_counts_for_the_attempt(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def report_more(*args: Any, report: Callable[[ProcessUsage], None], **more: Any) -> Any:
        report(ProcessUsage(cpu_ms=60_000, peak_kb=1 << 30))
        return read(*args, report=report, **more)

    monkeypatch.setattr("holdfast.indexes.content_slot.read", report_more)
    rig.index("hello.pdf", pdf("Hello from the heron."))
    data = last(rig.store, "content", "slot.completed")
    assert data["cpu_ms"] > 60_000
    assert data["peak_kb"] == 1 << 30


def test_a_delete_counts_the_removed_chunks_of_each_document(rig: Rig) -> None:
    rig.index("parts.md", "\n\n".join(PARTS))
    rig.index("short.md", PARTS[0])
    rig.delete("parts.md", "short.md")
    rig.work()
    removed = [
        line.event.parsed_data["removed"]
        for line in rig.store.events()
        if (line.event.kind, line.event.type) == ("content", "slot.forgotten")
    ]
    assert sorted(removed) == [1, 10]


def test_the_results_of_a_job_add_up_all_its_attempts(store: SqlStore, clock: FakeClock) -> None:
    job = store.admit([request(slots=ONE)])[0].job or ""
    clock.advance(5 * SECOND)

    def shut_down(task: Task) -> BuildResult:
        clock.advance(2 * SECOND)
        task.count_rows(written=2)
        executor.stop()
        task.checkpoint()
        return BuildResult()

    executor = worker(store, clock, shut_down)
    executor.run_next(1)
    worker(store, clock, take(clock, Transient("timeout"))).run_next(1)
    clock.advance(timedelta(hours=1))
    worker(store, clock, take(clock)).run_next(1)
    result = store.job(job).results["cards"]
    assert (result["state"], result["attempts"], result["ran_ms"]) == ("ready", 2, 8000)
    assert rows(result) == (4, 6, 2)
    assert result["cpu_ms"] >= 20
    (ended,) = [line.event for line in store.events() if line.event.type == "job.success"]
    assert ended.parsed_data["results"]["cards"] == result


def test_a_new_request_starts_to_count_anew(store: SqlStore, clock: FakeClock) -> None:
    store.admit([request(slots=ONE)])
    worker(store, clock, take(clock)).run_next(1)
    job = store.admit([request(operation=Operation.CHANGE, slots=ONE, fingerprint="new")])[0].job or ""
    worker(store, clock, take(clock)).run_next(1)
    assert store.job(job).results["cards"]["ran_ms"] == 3000


def test_a_slot_that_its_worker_never_finished_reports_only_its_attempts(store: SqlStore, clock: FakeClock) -> None:
    job = store.admit([request(slots=ONE)])[0].job or ""
    (ticket,) = store.claim_next(["cards"], "worker", 1)
    store.fail([Failure(ticket=ticket, fault=Fault("worker_lost"))])
    assert store.job(job).results == {"cards": {"state": "failed", "missing": 0, "error": "worker_lost", "attempts": 1}}
