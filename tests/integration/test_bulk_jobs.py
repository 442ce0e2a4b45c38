"""Bulk operations on many documents are jobs: one short request, batches in a worker, progress, cancel, crashes."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.catalog import repository_statements as catalog_sql
from holdfast.catalog.repository import ItemKind
from holdfast.db.database import Transaction
from holdfast.documents import bulk, bulk_run
from holdfast.documents.bulk_run import BulkRun
from holdfast.documents.requests import Upload
from holdfast.engine.states import Operation, Outcome
from holdfast.errors import BadRequest, Conflict, Permanent, PreconditionFailed, StateConflict, UnknownItem
from holdfast.service.local import LocalService
from holdfast.service.messages import BulkSummary
from holdfast.service.opening import local_caller
from tests.support.audit import audit_quiet
from tests.support.harness import Rig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from holdfast.service.jobs import Job
    from tests.support.clock import FakeClock

LEASE = timedelta(minutes=3)
NO_TEXT = b" \n"


class Killed(BaseException):
    """The worker process ends here."""


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


def put(rig: Rig, count: int, parent: int = 0, text: bytes | None = None) -> list[int]:
    """Add documents, not indexed yet."""
    uploads = [
        Upload(f"{parent}-{number}.md", text + b"\n" * number if text else f"{parent} {number}".encode(), parent=parent)
        for number in range(count)
    ]
    return [reply.item or 0 for reply in rig.library.adder.add(rig.base, uploads)]


def folder(rig: Rig, name: str, parent: int = 0) -> int:
    (reply,) = rig.library.adder.add(rig.base, [Upload(name, kind=ItemKind.DIRECTORY, parent=parent)])
    return reply.item or 0


def listed(service: LocalService, **filters: Any) -> set[int]:
    return {one.id for one in service.documents.list("shelf", size=500, **filters).items}


def start(service: LocalService, action: str, **which: Any) -> str:
    """Request a bulk operation that becomes a job; return the id of the job."""
    if "documents" in which:
        summary = service.documents.many("shelf", action, which["documents"])
    else:
        summary = service.documents.matching("shelf", action, **which)
    assert isinstance(summary, BulkSummary)
    assert (summary.accepted, summary.answers) == (0, {})
    (job,) = summary.jobs
    return job


def generations(rig: Rig, items: Sequence[int]) -> list[int]:
    return [rig.store.owner(rig.base.key, str(item)).generation for item in items]


def kill_after(monkeypatch: pytest.MonkeyPatch, steps: int, *, committed: bool) -> None:
    """End the worker in a step, before or after the commit of that step."""
    real = BulkRun.step
    taken = Counter[str]()

    def step(self: BulkRun) -> Any:
        taken["steps"] += 1
        if taken["steps"] > steps and not committed:
            raise Killed
        replies = real(self)
        if taken["steps"] > steps:
            raise Killed
        return replies

    monkeypatch.setattr(BulkRun, "step", step)


def between(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object], *, after: int = 1) -> None:
    """Run `act` once, after this many steps."""
    real = BulkRun.step
    taken = Counter[str]()

    def step(self: BulkRun) -> Any:
        if taken["steps"] == after:
            taken["steps"] += 1
            act()
        taken["steps"] += 1
        return real(self)

    monkeypatch.setattr(BulkRun, "step", step)


def test_a_large_selection_becomes_a_job_with_progress(rig: Rig, service: LocalService) -> None:
    items = put(rig, 7)
    job = start(service, "delete", kinds=["file"])
    assert listed(service) == set(items)
    waiting = service.jobs.get(job)
    assert (waiting.state, waiting.subject, waiting.ended) == ("queued", "bulk", False)
    assert waiting.progress is not None
    assert (waiting.progress.done, waiting.progress.total) == (0, 7)
    rig.work()
    ended = service.jobs.get(job)
    assert ended.outcome is Outcome.SUCCESS
    assert ended.bulk is not None
    assert (ended.bulk.action, ended.bulk.found, ended.bulk.done, ended.bulk.total) == ("delete", 7, 7, 7)
    assert ended.bulk.answers == {"accepted: delete": 7}
    assert listed(service) == set()
    assert [one.id for one in service.jobs.list("shelf").items if one.bulk] == [job]
    while rig.library.sweep(100):
        rig.work()
    assert rig.count("items") == 0


@pytest.mark.parametrize(
    ("action", "reason"), [("reindex", "reindex"), ("force", "forced"), ("index", "already_indexed")]
)
def test_a_job_requests_the_same_work_as_a_request(rig: Rig, service: LocalService, action: str, reason: str) -> None:
    items = put(rig, 5)
    rig.work()
    before = generations(rig, items)
    job = start(service, action, documents=items[::-1])
    rig.work()
    found = service.jobs.get(job).bulk
    verdict = "skipped" if action == "index" else "accepted"
    assert found is not None
    assert found.answers == {f"{verdict}: {reason}": 5}
    assert generations(rig, items) == [one + (action != "index") for one in before]
    rig.sweep()
    audit_quiet(rig)


def test_a_bulk_cancel_runs_before_the_work_that_it_cancels(rig: Rig, service: LocalService) -> None:
    items = put(rig, 9)
    start(service, "cancel", kinds=["file"])
    rig.worker.run_next(1)
    assert {service.documents.get("shelf", item).status for item in items} == {"not_indexed"}


def test_a_request_costs_the_same_for_any_number_of_documents(
    rig: Rig, service: LocalService, monkeypatch: pytest.MonkeyPatch
) -> None:
    def costs(**which: Any) -> tuple[int, int]:
        """Return how many statements a request runs, and how many rows it sends and reads."""
        sizes: list[int] = []
        real = Transaction.run

        def counted(self: Transaction, statement: Any, rows: Any = None, **values: Any) -> Any:
            found = real(self, statement, rows, **values)
            sizes.append(len(found) + len(rows or ()))
            return found

        with monkeypatch.context() as meter:
            meter.setattr(Transaction, "run", counted)
            job = start(service, "retry", **which)
        service.jobs.cancel(job)
        return len(sizes), sum(sizes)

    items = put(rig, 10)
    costs(documents=items)  # the first job creates its owner
    few_ids, few_matches = costs(documents=items[:5]), costs(kinds=["file"])
    items += put(rig, 300, folder(rig, "more"))
    assert costs(documents=items) == few_ids
    assert costs(kinds=["file"]) == few_matches


@pytest.mark.parametrize("committed", [False, True])
@pytest.mark.parametrize("steps", [0, 1, 3])
def test_a_job_continues_after_a_crash_and_requests_nothing_twice(
    rig: Rig, service: LocalService, monkeypatch: pytest.MonkeyPatch, steps: int, *, committed: bool
) -> None:
    items = put(rig, 9)
    rig.work()
    before = generations(rig, items)
    job = start(service, "force", documents=items)
    with monkeypatch.context() as crash:
        kill_after(crash, steps, committed=committed)
        with pytest.raises(Killed):
            rig.work()
    done = (steps + committed) * 2
    stopped = service.jobs.get(job).bulk
    assert stopped is not None
    assert stopped.done == done
    rig.worker = rig.hire("other")
    rig.work()  # the documents that were requested are indexed, so a second request would be accepted
    rig.clock.advance(LEASE)
    rig.work()
    assert generations(rig, items) == [one + 1 for one in before]
    ended = service.jobs.get(job)
    assert ended.bulk is not None
    assert (ended.outcome, ended.bulk.answers) == (Outcome.SUCCESS, {"accepted: forced": 9})


@pytest.mark.parametrize("committed", [False, True])
@pytest.mark.parametrize("steps", range(5))
def test_a_crash_within_a_folder_requests_nothing_twice(
    rig: Rig, service: LocalService, monkeypatch: pytest.MonkeyPatch, steps: int, *, committed: bool
) -> None:
    whole = folder(rig, "folder")
    inner = put(rig, 4, folder(rig, "deep", whole))
    beside = put(rig, 1)
    rig.work()
    before = generations(rig, [*inner, *beside])
    job = start(service, "force")
    with monkeypatch.context() as crash:
        kill_after(crash, steps, committed=committed)
        with pytest.raises(Killed):
            rig.work()
    rig.worker = rig.hire("other")
    rig.work()
    rig.clock.advance(LEASE)
    rig.work()
    assert generations(rig, [*inner, *beside]) == [one + 1 for one in before]
    ended = service.jobs.get(job)
    assert ended.bulk is not None
    assert (ended.bulk.answers, ended.bulk.found) == ({"accepted: forced": 2}, 7)
    assert ended.bulk.done == ended.bulk.total


def test_a_cancelled_job_stops_before_its_next_batch_and_keeps_what_it_did(
    rig: Rig, service: LocalService, monkeypatch: pytest.MonkeyPatch
) -> None:
    items = put(rig, 9)
    rig.work()
    job = start(service, "delete", documents=items)
    with monkeypatch.context() as meddle:
        between(meddle, lambda: service.jobs.cancel(job), after=2)
        rig.work()
    ended = service.jobs.get(job)
    assert ended.bulk is not None
    assert (ended.outcome, ended.bulk.done, ended.bulk.total) == (Outcome.CANCELLED, 4, 9)
    assert ended.bulk.answers == {"accepted: delete": 4}
    assert listed(service) == set(items[4:])
    with pytest.raises(Conflict, match="nothing to cancel"):
        service.jobs.cancel(job)
    rest = start(service, "delete", documents=items[4:])
    rig.work()
    assert service.jobs.get(rest).outcome is Outcome.SUCCESS
    assert listed(service) == set()


@pytest.mark.parametrize("inside", [False, True])
def test_a_cancelled_job_requests_no_more_work(
    rig: Rig, service: LocalService, monkeypatch: pytest.MonkeyPatch, *, inside: bool
) -> None:
    whole = folder(rig, "folder")
    items = put(rig, 6, whole if inside else 0)
    rig.work()
    before = generations(rig, items)
    job = start(service, "force") if inside else start(service, "force", documents=items)
    with monkeypatch.context() as meddle:
        between(meddle, lambda: service.jobs.cancel(job), after=2)
        rig.worker.run_next(1)
    assert service.jobs.get(job).outcome is Outcome.CANCELLED
    changed = [now - then for now, then in zip(generations(rig, items), before, strict=True)]
    assert 0 < sum(changed) < 6, changed


def test_a_job_whose_documents_no_longer_match_does_nothing(rig: Rig, service: LocalService) -> None:
    items = put(rig, 5, text=NO_TEXT)
    rig.work()
    job = start(service, "delete", states=["failed"])
    for item in items:
        service.documents.retry("shelf", item)
    rig.worker.run_next(1)
    assert service.jobs.get(job).outcome is Outcome.SUCCESS
    assert listed(service) == set(items)


def test_a_second_operation_runs_beside_the_first_and_a_repeat_joins_it(
    rig: Rig, service: LocalService, monkeypatch: pytest.MonkeyPatch
) -> None:
    items = put(rig, 8)
    rig.work()
    first = start(service, "reindex", documents=items)
    assert start(service, "reindex", documents=items) == first
    second = start(service, "delete", documents=items[:4])
    assert second != first
    other = rig.hire("other")
    between(monkeypatch, lambda: other.run_next(1))
    rig.work()
    assert {service.jobs.get(job).outcome for job in (first, second)} == {Outcome.SUCCESS}
    assert listed(service) == set(items[4:])
    assert start(service, "reindex", documents=items[4:]) not in (first, second)


def test_a_base_refuses_more_than_twenty_active_bulk_jobs(rig: Rig, service: LocalService) -> None:
    items = put(rig, 24)
    jobs = {start(service, "retry", documents=items[first : first + 4]) for first in range(20)}
    assert len(jobs) == 20
    with pytest.raises(StateConflict, match="20 bulk jobs"):
        start(service, "retry", documents=items[20:])
    assert start(service, "retry", documents=items[:4]) in jobs
    service.jobs.cancel(next(iter(jobs)))
    start(service, "retry", documents=items[20:])


def test_a_delete_of_the_base_ends_its_bulk_jobs(
    rig: Rig, service: LocalService, monkeypatch: pytest.MonkeyPatch
) -> None:
    items = put(rig, 9)
    rig.work()
    job = start(service, "force", documents=items)
    jobs_before = rig.count("jobs")
    with monkeypatch.context() as meddle:
        other = rig.hire("other")

        def delete() -> None:
            rig.library.bases.delete(rig.base)
            other.run_next(1)

        between(meddle, delete)
        rig.worker.run_next(1)
    assert rig.store.job(job).outcome is Outcome.DELETED
    assert rig.count("jobs") > jobs_before
    for _ in range(9):
        rig.work()
        rig.clock.advance(timedelta(minutes=1))
        rig.library.sweep(100)
    assert (rig.count("bases"), rig.count("items"), rig.count("owners")) == (0, 0, 0)


def test_a_pause_does_not_hold_a_bulk_job_back(rig: Rig, service: LocalService) -> None:
    items = put(rig, 5)
    service.jobs.pause("shelf", stop=True)
    job = start(service, "cancel", documents=items)
    assert service.jobs.get(job).waiting_for[0].code == "next"
    rig.work()
    assert service.jobs.get(job).outcome is Outcome.SUCCESS
    assert {one.status for one in service.documents.list("shelf").items} == {"not_indexed"}


def test_a_bulk_job_does_not_use_the_quota_but_its_requests_do(rig: Rig, service: LocalService) -> None:
    items = put(rig, 6)
    rig.work()
    service.bases.change("shelf", jobs_per_day=4)
    job = start(service, "reindex", documents=items)
    rig.work()
    found = service.jobs.get(job).bulk
    assert found is not None
    assert found.answers == {"accepted: reindex": 4, "rejected: quota_exhausted": 2}
    job = start(service, "delete", documents=items)
    rig.work()
    assert service.jobs.get(job).outcome is Outcome.SUCCESS


def test_documents_that_no_longer_match_or_came_later_are_left_alone(
    rig: Rig, service: LocalService, monkeypatch: pytest.MonkeyPatch
) -> None:
    items = put(rig, 6, text=NO_TEXT)
    rig.work()
    start(service, "delete", states=["failed"])
    late: list[int] = []

    def meddle() -> None:
        service.documents.retry("shelf", items[-1])
        late.extend(put(rig, 1, folder(rig, "late"), NO_TEXT))

    between(monkeypatch, meddle)
    rig.worker.run_next(1)
    assert listed(service, kinds=["file"]) == {items[-1], *late}


def test_an_action_on_a_large_folder_is_a_job_that_its_reply_names(rig: Rig, service: LocalService) -> None:
    whole = folder(rig, "folder")
    inner = put(rig, 5, whole)
    rig.work()
    reply = service.documents.reindex("shelf", whole)
    assert (reply.reason, reply.document, reply.name) == ("bulk_started", whole, "folder")
    assert reply.job is not None
    rig.worker.run_next(1)
    found = service.jobs.get(reply.job)
    assert found.bulk is not None
    assert (found.outcome, found.bulk.answers) == (Outcome.SUCCESS, {"accepted: reindex": 1})
    assert (found.bulk.found, found.bulk.done, found.bulk.total) == (1, 6, 6)
    assert listed(service, states=["queued"]) == {whole, *inner}
    service.documents.cancel("shelf", inner[0])  # at rest, but others below the folder are not
    refused = service.documents.reindex("shelf", whole)
    rig.worker.run_next(1)
    found = service.jobs.get(refused.job or "")
    assert found.bulk is not None
    assert found.bulk.answers == {"rejected: not_terminal": 1}
    assert inner[0] not in listed(service, states=["queued"])
    deleted = service.documents.delete("shelf", whole)
    rig.worker.run_next(1)
    found = service.jobs.get(deleted.job or "")
    assert found.bulk is not None
    assert (found.bulk.answers, found.bulk.done, found.bulk.total) == ({"accepted: delete": 1}, 6, 6)
    assert listed(service) == set()


def test_a_delete_by_filter_counts_each_item_once_and_clears_no_base(rig: Rig, service: LocalService) -> None:
    put(rig, 3, folder(rig, "deep", folder(rig, "folder")))
    put(rig, 2)
    kept = [folder(rig, "kept")]
    kept += put(rig, 1, kept[0], NO_TEXT)
    rig.work()
    ready: dict[str, Any] = {"states": ["success"], "dry_run": True}
    assert service.documents.matching("shelf", "retry", **ready).found == 7, "with the folders"
    assert service.documents.matching("shelf", "reindex", **ready).found == 5, "a reindex covers all below a folder"
    job = start(service, "delete", states=["success"], kinds=["file", "directory"])
    rig.worker.run_next(1)
    found = service.jobs.get(job).bulk
    assert found is not None
    assert (found.found, found.done, found.total) == (7, 7, 7)
    assert listed(service) == set(kept)
    start(service, "delete", documents=put(rig, 4, kept[0]))
    rig.worker.run_next(1)
    assert "base.cleared" not in [event.type for event in service.events.list(base="shelf").items]


def test_a_finished_job_does_not_keep_the_text_of_its_filter(rig: Rig, service: LocalService) -> None:
    put(rig, 5)
    job = start(service, "delete", text="0-")
    assert '"0-"' in (rig.store.job(job).payload or "")
    rig.work()
    assert '"0-"' not in (rig.store.job(job).payload or "")


def test_a_large_folder_that_changed_meanwhile_is_left_alone(rig: Rig, service: LocalService) -> None:
    whole = folder(rig, "folder")
    put(rig, 5, whole)
    before = rig.count("jobs")
    with pytest.raises(PreconditionFailed):
        service.documents.delete("shelf", whole, unless_changed=[7])
    assert rig.count("jobs") == before


def test_the_clean_up_of_many_documents_is_retried_in_a_failed_base(rig: Rig, service: LocalService) -> None:
    service.documents.many("shelf", "delete", put(rig, 3))
    service.documents.matching("shelf", "delete", states=["queued"])
    other = put(rig, 4)
    start(service, "delete", documents=other)
    rig.worker.indexers = {"bulk": rig.indexers["bulk"]}
    rig.work()
    rig.library.catalog.fail_base(rig.base.key, Permanent("model_gone", "The model is gone."))
    job = start(service, "retry", deleting=True)
    rig.work()
    assert service.jobs.get(job).outcome is Outcome.SUCCESS


def test_a_filter_below_a_deleted_folder_matches_nothing(rig: Rig, service: LocalService) -> None:
    whole = folder(rig, "folder")
    put(rig, 2, whole)
    assert service.documents.matching("shelf", "retry", parent=whole, dry_run=True).found == 2
    service.documents.delete("shelf", whole)
    with pytest.raises(UnknownItem):
        service.documents.matching("shelf", "retry", parent=whole)


def test_deleted_documents_of_a_selection_are_only_cleaned_up(rig: Rig, service: LocalService) -> None:
    items = put(rig, 6)
    rig.work()
    service.documents.many("shelf", "delete", items[:2])
    force, retry = start(service, "force", documents=items), start(service, "retry", documents=items)
    rig.worker.indexers = {"bulk": rig.indexers["bulk"]}  # nothing is cleaned up meanwhile
    rig.work()
    forced, retried = service.jobs.get(force).bulk, service.jobs.get(retry).bulk
    assert forced is not None
    assert forced.answers == {"rejected: being_deleted": 2, "accepted: forced": 4}
    assert retried is not None
    assert retried.answers == {"joined: already_deleting": 2, "joined: already_in_progress": 4}


def test_a_base_that_fails_meanwhile_ends_a_bulk_job_with_the_reason(
    rig: Rig, service: LocalService, monkeypatch: pytest.MonkeyPatch
) -> None:
    items = put(rig, 6)
    rig.work()
    job = start(service, "reindex", documents=items)
    problem = '{"code": "away", "params": {"message": "It is away."}}'

    def fail() -> None:
        rig.store.database.write(
            lambda tx: tx.run(catalog_sql.FAIL_BASE, id=rig.base.id, problem=problem), durable=True
        )

    between(monkeypatch, fail)
    rig.worker.run_next(1)
    ended = service.jobs.get(job)
    assert ended.bulk is not None
    assert (ended.outcome, ended.results["bulk"]["error"]) == (Outcome.FAILED, "base_not_usable")
    assert (ended.bulk.done, ended.bulk.answers) == (2, {"accepted: reindex": 2})


def test_a_selection_with_unknown_documents_is_refused_as_a_whole(rig: Rig, service: LocalService) -> None:
    items = put(rig, 6)
    before = rig.count("jobs")
    with pytest.raises(UnknownItem, match="999"):
        service.documents.many("shelf", "delete", [*items, 999])
    with pytest.raises(UnknownItem):
        service.documents.many("shelf", "delete", [*items, 2**63 - 1])
    with pytest.raises(BadRequest, match=r"0-0\.md"):
        service.documents.many("shelf", "refresh", items)
    assert rig.count("jobs") == before


def test_a_bulk_job_is_retried_by_requesting_it_again(rig: Rig, service: LocalService) -> None:
    job = start(service, "cancel", documents=put(rig, 5))
    service.jobs.cancel(job)
    with pytest.raises(BadRequest, match="belongs to base 'shelf' itself"):
        service.jobs.retry(job)


def test_the_jobs_of_documents_name_their_own_operation(rig: Rig, service: LocalService) -> None:
    items = put(rig, 5)
    rig.work()
    start(service, "reindex", documents=items)
    rig.worker.run_next(1)
    found: list[Job] = service.jobs.list("shelf", states=["queued"]).items
    assert {(one.operation, one.document in items, one.bulk) for one in found} == {(Operation.REINDEX, True, None)}
