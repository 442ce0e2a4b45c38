"""Cancel all, retry all and clear: at once for a few, a bulk job with progress for many."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from holdfast.bases import statements as base_sql
from holdfast.catalog import repository_statements as catalog_sql
from holdfast.db.database import Transaction
from holdfast.documents import bulk, bulk_run
from holdfast.engine.admission import Request
from holdfast.engine.dependencies import SlotSpec
from holdfast.engine.states import Operation, Outcome
from holdfast.errors import BaseFailed
from holdfast.service.local import LocalService
from holdfast.service.opening import local_caller
from tests.integration.test_bulk_jobs import LEASE, NO_TEXT, Killed, between, folder, kill_after, listed, put, start
from tests.support.audit import audit_quiet
from tests.support.harness import Rig

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import Any

    from holdfast.service.jobs import BulkProgress
    from tests.support.clock import FakeClock


@pytest.fixture
def rig(database_url: str, tmp_path: Path, clock: FakeClock) -> Iterator[Rig]:
    rig = Rig(database_url, tmp_path / "blobs", clock, indexes=("fulltext",))
    yield rig
    rig.close()


@pytest.fixture
def service(rig: Rig) -> LocalService:
    return LocalService(rig.library, local_caller())


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Process at most three items in a request, and two in a batch."""
    monkeypatch.setattr(bulk, "ITEMS_AT_ONCE", 3)
    monkeypatch.setattr(bulk_run, "ITEMS_PER_CLEAN_UP", 2)


def progress(service: LocalService, job: str) -> BulkProgress:
    found = service.jobs.get(job).bulk
    assert found is not None
    return found


def only_bulk(rig: Rig) -> None:
    """Run only bulk jobs."""
    rig.worker.indexers = {"bulk": rig.indexers["bulk"]}
    rig.work()
    rig.worker.indexers = rig.indexers


def states(rig: Rig, items: list[int]) -> list[str]:
    return [str(rig.store.owner(rig.base.key, str(item)).status) for item in items]


def test_a_few_jobs_are_cancelled_at_once(rig: Rig, service: LocalService) -> None:
    items = put(rig, 3)
    summary = service.jobs.cancel_all("shelf")
    assert (summary.found, summary.accepted, summary.jobs) == (3, 3, [])
    assert states(rig, items) == ["not_indexed"] * 3
    assert service.jobs.cancel_all("shelf").found == 0
    assert service.jobs.cancel_all("shelf").answers == {}
    service.documents.matching("shelf", "retry")
    assert service.jobs.cancel_all().accepted == 3


def test_many_jobs_are_cancelled_by_a_job_with_progress(rig: Rig, service: LocalService, clock: FakeClock) -> None:
    items = put(rig, 7)
    assert service.jobs.cancel_all("shelf", dry_run=True).found == 7
    summary = service.jobs.cancel_all("shelf")
    (job,) = summary.jobs
    assert (summary.found, summary.accepted, summary.answers) == (7, 0, {})
    assert states(rig, items) == ["queued"] * 7
    waiting = service.jobs.get(job)
    assert waiting.progress is not None
    assert (waiting.state, waiting.progress.done, waiting.progress.total) == ("queued", 0, 7)
    clock.advance(timedelta(seconds=1))
    late = put(rig, 1, folder(rig, "late"))
    only_bulk(rig)
    assert states(rig, [*items, *late]) == [*["not_indexed"] * 7, "queued"]
    done = progress(service, job)
    assert (done.action, done.done, done.total, done.answers) == ("cancel", 7, 7, {"accepted: cancel": 7})
    assert service.jobs.get(job).outcome is Outcome.SUCCESS


def test_a_cancel_of_everything_first_ends_the_work_that_requests_other_work(rig: Rig, service: LocalService) -> None:
    items = put(rig, 6)
    rig.work()
    service.bases.change("shelf", chunk_size=96, chunk_overlap=0)
    reindex = start(service, "force", documents=items)
    delete = start(service, "delete", documents=items[:4])
    rollout = service.bases.get("shelf").rollout_job or ""
    assert service.jobs.cancel_all("shelf", dry_run=True).found == 2
    summary = service.jobs.cancel_all("shelf")
    assert (summary.found, summary.answers, summary.jobs) == (2, {"accepted: cancel": 2}, [])
    assert {service.jobs.get(one).outcome for one in (reindex, rollout)} == {Outcome.CANCELLED}
    assert service.jobs.get(delete).outcome is None, "deletes continue"
    rig.work()
    assert service.jobs.get(delete).outcome is Outcome.SUCCESS
    assert listed(service) == set(items[4:])


def test_a_cancelled_cancel_of_everything_keeps_the_rest_of_the_queue(
    rig: Rig, service: LocalService, monkeypatch: pytest.MonkeyPatch
) -> None:
    items = put(rig, 6)
    (job,) = service.jobs.cancel_all("shelf").jobs
    with monkeypatch.context() as meddle:
        between(meddle, lambda: service.jobs.cancel(job), after=2)
        only_bulk(rig)
    assert service.jobs.get(job).outcome is Outcome.CANCELLED
    assert progress(service, job).done == 4
    assert states(rig, items) == ["not_indexed"] * 4 + ["queued"] * 2


def test_a_second_cancel_of_everything_lets_the_first_finish(rig: Rig, service: LocalService) -> None:
    items = put(rig, 5)
    (first,) = service.jobs.cancel_all("shelf").jobs
    rig.clock.advance(timedelta(seconds=1))
    (second,) = service.jobs.cancel_all("shelf").jobs
    only_bulk(rig)
    assert {service.jobs.get(one).outcome for one in (first, second)} == {Outcome.SUCCESS}
    assert states(rig, items) == ["not_indexed"] * 5


def test_many_failed_documents_are_retried_by_a_job_that_a_repeat_joins(rig: Rig, service: LocalService) -> None:
    items = put(rig, 5, text=NO_TEXT)
    rig.work()
    assert states(rig, items) == ["failed"] * 5
    assert service.jobs.retry_all("shelf", dry_run=True).found == 5
    (job,) = service.jobs.retry_all("shelf").jobs
    assert service.jobs.retry_all("shelf", degraded=True).jobs != [job]
    assert service.jobs.retry_all("shelf").jobs == [job]
    rig.worker.run_next(1)
    done = progress(service, job)
    assert (done.action, done.done, done.total) == ("retry", 5, 5)
    assert done.answers == {"accepted: not_complete": 5}
    assert service.jobs.get(job).outcome is Outcome.SUCCESS


def test_documents_that_fail_later_are_not_retried(
    rig: Rig, service: LocalService, monkeypatch: pytest.MonkeyPatch
) -> None:
    items = put(rig, 5, text=NO_TEXT)
    rig.work()
    (job,) = service.jobs.retry_all("shelf").jobs
    late: list[int] = []

    def fail_later() -> None:
        late.extend(put(rig, 1, folder(rig, "late"), b"  " + NO_TEXT))
        rig.hire("other").run_next(100)

    with monkeypatch.context() as meddle:
        between(meddle, fail_later)
        rig.worker.run_next(1)
    assert progress(service, job).done == 5
    assert [rig.store.owner(rig.base.key, str(item)).generation for item in (*items, *late)] == [2, 2, 2, 2, 2, 1]


def test_a_few_failed_documents_are_retried_at_once(rig: Rig, service: LocalService) -> None:
    items = put(rig, 3, text=NO_TEXT)
    rig.work()
    summary = service.jobs.retry_all("shelf")
    assert (summary.found, summary.answers, summary.jobs) == (3, {"accepted: not_complete": 3}, [])
    assert states(rig, items) == ["queued"] * 3


def test_a_failed_bulk_job_is_not_retried(rig: Rig, service: LocalService, monkeypatch: pytest.MonkeyPatch) -> None:
    items = put(rig, 6)
    rig.work()
    job = start(service, "reindex", documents=items)
    problem = '{"code": "away", "params": {"message": "It is away."}}'

    def fail() -> None:
        rig.store.database.write(
            lambda tx: tx.run(catalog_sql.FAIL_BASE, id=rig.base.id, problem=problem), durable=True
        )

    with monkeypatch.context() as meddle:
        between(meddle, fail)
        rig.worker.run_next(1)
    assert service.jobs.get(job).outcome is Outcome.FAILED
    with pytest.raises(BaseFailed):
        service.jobs.retry_all("shelf")
    rig.store.database.write(lambda tx: tx.run(base_sql.CLEAR_BASE_PROBLEM, id=rig.base.id), durable=True)
    before = rig.count("jobs")
    assert service.jobs.retry_all("shelf", dry_run=True).found == 0
    assert service.jobs.retry_all("shelf").found == 0
    assert rig.count("jobs") == before


def test_the_bases_of_a_request_count_together_and_each_has_a_job(rig: Rig, service: LocalService) -> None:
    put(rig, 2)
    service.bases.create("other")
    for number in range(2):
        service.documents.note("other", f"{number}", f"text {number}")
    service.bases.create("empty")
    jobs = service.jobs.cancel_all().jobs
    assert [service.jobs.get(job).base for job in jobs] == ["other", "shelf"]
    only_bulk(rig)
    assert {one.status for base in ("shelf", "other") for one in service.documents.list(base).items} == {"not_indexed"}


@pytest.mark.parametrize("committed", [False, True])
@pytest.mark.parametrize("action", ["cancel", "retry", "clear"])
def test_a_crash_loses_nothing_and_repeats_nothing(
    rig: Rig, service: LocalService, monkeypatch: pytest.MonkeyPatch, action: str, *, committed: bool
) -> None:
    items = put(rig, 6, text=NO_TEXT if action == "retry" else None)
    if action == "retry":
        rig.work()
    before = [rig.store.owner(rig.base.key, str(item)).generation for item in items]
    requests: dict[str, Any] = {
        "cancel": service.jobs.cancel_all, "retry": service.jobs.retry_all, "clear": service.bases.clear,
    }  # fmt: skip
    (job,) = requests[action]("shelf").jobs
    with monkeypatch.context() as crash:
        kill_after(crash, 1, committed=committed)
        with pytest.raises(Killed):
            only_bulk(rig)
    assert progress(service, job).done == (4 if committed else 2)
    rig.worker = rig.hire("other")
    rig.clock.advance(LEASE)
    only_bulk(rig)
    assert service.jobs.get(job).outcome is Outcome.SUCCESS
    ended = progress(service, job)
    assert (ended.done, ended.total, sum(ended.answers.values())) == (6, 6, 6)
    if action == "retry":
        assert [rig.store.owner(rig.base.key, str(item)).generation for item in items] == [one + 1 for one in before]
    if action == "clear":
        assert listed(service) == set()


def test_a_large_base_is_cleared_by_a_job_with_its_cards(rig: Rig, service: LocalService) -> None:
    rig.store.admit([Request(base=rig.base.key, owner="cards", operation=Operation.FORCE, slots=(SlotSpec("cards"),))])
    put(rig, 3, folder(rig, "deep", folder(rig, "folder")))
    put(rig, 2)
    rig.work()
    summary = service.bases.clear("shelf")
    (job,) = summary.jobs
    assert summary.found == 7
    assert str(rig.store.owner(rig.base.key, "cards").status) == "deleting"
    rig.worker.run_next(1)
    done = progress(service, job)
    assert (service.jobs.get(job).outcome, done.done, done.total) == (Outcome.SUCCESS, 7, 7)
    assert done.answers == {"accepted: delete": 3}
    assert listed(service) == set()
    events = [event.type for event in service.events.list(base="shelf").items]
    assert events.count("base.cleared") == 1
    while rig.library.sweep(100):
        rig.work()
    assert rig.count("items") == 0
    audit_quiet(rig)


def test_a_small_base_is_cleared_at_once(rig: Rig, service: LocalService) -> None:
    put(rig, 3)
    summary = service.bases.clear("shelf")
    assert (summary.found, summary.answers, summary.jobs) == (3, {"accepted: delete": 3}, [])
    assert listed(service) == set()
    assert service.bases.clear("shelf").answers == {}


def test_a_job_for_jobs_that_have_ended_meanwhile_does_nothing(rig: Rig, service: LocalService) -> None:
    items = put(rig, 5)
    (job,) = service.jobs.cancel_all("shelf").jobs
    for item in items:
        service.documents.cancel("shelf", item)
    only_bulk(rig)
    assert service.jobs.get(job).outcome is Outcome.SUCCESS
    assert (progress(service, job).done, progress(service, job).answers) == (0, {})


def test_a_cancelled_clear_keeps_what_it_has_not_deleted_and_what_came_later(
    rig: Rig, service: LocalService, monkeypatch: pytest.MonkeyPatch
) -> None:
    items = put(rig, 6)
    rig.work()
    (job,) = service.bases.clear("shelf").jobs
    late = put(rig, 1, folder(rig, "late"))
    with monkeypatch.context() as meddle:
        between(meddle, lambda: service.jobs.cancel(job), after=2)
        rig.work()
    assert listed(service, kinds=["file"]) == {*items[4:], *late}
    assert "base.cleared" not in [event.type for event in service.events.list(base="shelf").items]
    (again,) = service.bases.clear("shelf").jobs
    rig.work()
    assert service.jobs.get(again).outcome is Outcome.SUCCESS
    assert listed(service) == set()


@pytest.mark.parametrize("what", ["cancel", "retry", "clear"])
def test_a_request_costs_the_same_for_any_number_of_documents(
    rig: Rig, service: LocalService, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    def costs() -> tuple[int, int]:
        """Return how many statements a request runs, and how many rows it sends and reads."""
        sizes: list[int] = []
        real = Transaction.run

        def counted(self: Transaction, statement: Any, rows: Any = None, **values: Any) -> Any:
            found = real(self, statement, rows, **values)
            sizes.append(len(found) + len(rows or ()))
            return found

        with monkeypatch.context() as meter:
            meter.setattr(Transaction, "run", counted)
            if what == "cancel":
                (job,) = service.jobs.cancel_all("shelf").jobs
            else:
                (job,) = (service.jobs.retry_all if what == "retry" else service.bases.clear)("shelf").jobs
        service.jobs.cancel(job)
        return len(sizes), sum(sizes)

    put(rig, 5, text=NO_TEXT)
    rig.work() if what == "retry" else None
    costs()  # the first job creates its owner
    few = costs()
    put(rig, 200, folder(rig, "more"), text=NO_TEXT)
    rig.work() if what == "retry" else None
    assert costs() == few
