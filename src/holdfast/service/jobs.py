"""Operations on the queue: list, cancel, retry and prioritise jobs; pause and resume."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from holdfast.auth import Scope
from holdfast.bases import REMOVING, ROLLOUT, parse_removal
from holdfast.catalog import SOURCE_PREFIX, parse_item_id
from holdfast.clock import as_datetime
from holdfast.documents import (
    REQUESTING,
    DocumentFilter,
    Progress,
    RequestOptions,
    parse_bulk_job,
    progress_of,
    refuse_failed,
)
from holdfast.engine import BulkResult, Operation, Outcome, Problem, Status, describe_reasons
from holdfast.engine.store import JobFilter
from holdfast.errors import BadRequest
from holdfast.llm import LedgerSummary
from holdfast.paging import Page
from holdfast.service.messages import format_answers, make_job_reply, merge_summaries, require_accepted
from holdfast.service.validation import ValidatedOperations

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from holdfast.catalog import Base
    from holdfast.documents import BulkOperation
    from holdfast.engine.store import Job as StoredJob
    from holdfast.engine.store import ListedJob, QueueOverview
    from holdfast.service.authorization import Authorization
    from holdfast.service.documents import LocalDocuments
    from holdfast.service.messages import BulkSummary, Reply

    Bases = list[Base]  # `list` is also a method


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkProgress:
    """The progress of a bulk operation, exact after each batch; also of a job that was cancelled or failed."""

    action: str
    found: int  # documents that matched when the operation was requested
    done: int  # items that were processed
    total: int  # items to process; grows with the items below folders and sitemaps
    answers: dict[str, int]  # by `verdict: reason`


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A request and its outcome."""

    id: str
    base: str
    document: int | None  # None: the job belongs to the base itself
    name: str  # name of the document; empty if the job has none, or the document is deleted
    subject: str  # document, source, cards …
    operation: Operation
    cause: str
    requester: str
    priority: int
    state: str  # queued, indexing, deleting, or the outcome
    outcome: Outcome | None
    generation: int
    created_at: datetime
    finished_at: datetime | None
    # By kind: state, missing, error; attempts; cpu_ms, peak_kb, ran_ms, waited_ms of all attempts; and for rows
    # written, kept, removed. Complete when the job has ended.
    results: dict[str, Any]
    running_since: datetime | None = None  # when its oldest running work was claimed
    cost: LedgerSummary | None = None  # what it paid, and what answers saved that were used again
    progress: Progress | None = None
    waiting_for: list[Problem] = field(default_factory=list)
    bulk: BulkProgress | None = None  # of a bulk operation

    @property
    def ended(self) -> bool:
        return self.outcome is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStats:
    """Statistics of the queue."""

    active: dict[str, int]  # jobs by state
    active_is_exact: bool  # False: there are at least so many active jobs
    ended: dict[str, int]  # jobs that ended within the window, by outcome
    window_seconds: int
    per_hour: float
    failure_rate: float | None
    oldest_queued: datetime | None
    paused: bool
    paused_bases: list[str]
    long_running_seconds: int  # work that runs longer than this is reported; 0: never


class LocalJobs(ValidatedOperations):
    def __init__(self, authorization: Authorization, documents: LocalDocuments) -> None:
        self._authorization = authorization
        self._documents = documents
        self._store = authorization.library.store

    def list(
        self,
        base: str | None = None,
        *,
        document: int | None = None,
        states: Collection[str] | None = None,
        requester: str | None = None,
        longer_than: int | None = None,
        cursor: str | None = None,
        page: int = 1,
        size: int = 50,
    ) -> Page[Job]:
        """Return jobs: first active jobs in the order in which they will run, then ended jobs, newest first.

        With `longer_than`, return only jobs whose work has been running for so many seconds, the longest first.
        `document` limits the list to one document of the base; a deleted document has no jobs.
        """
        target = self._authorization.find_base_or_all(base)
        if document is not None and target is None:
            raise BadRequest("document_without_base")
        names = self._authorization.base_names()
        filter_ = JobFilter(
            base=target.key if target else None,
            requester=requester,
            states=frozenset(states) if states else None,
            owners=None if document is None else (str(document), f"{SOURCE_PREFIX}{document}"),
            longer_than=None if longer_than is None else timedelta(seconds=longer_than),
        )
        found = self._store.list_jobs(filter_, cursor=cursor, page=page, size=size)
        jobs = [listed.job for listed in found.jobs]
        documents = self._find_document_names(*jobs)
        costs = self._authorization.library.paid_cache.summarize_jobs(jobs)
        items = [
            self._add_progress(
                _job_to_schema(
                    listed, names.get(listed.job.base, ""), documents.get(listed.job.id, ""), costs.get(listed.job.id)
                ),
                listed.job,
            )
            for listed in found.jobs
        ]
        return Page(items=items, next_cursor=found.cursor, total=found.total, total_is_exact=found.total_is_exact)

    def get(self, job: str) -> Job:
        """Return a job with its progress and the reasons why it waits."""
        found, base = self._authorization.find_job(job)
        reasons = self._store.explain_job(job) if found.outcome is None else []
        cost = self._authorization.library.paid_cache.summarize_jobs([found]).get(found.id)
        name = self._find_document_names(found).get(job, "")
        shown = _job_to_schema(self._store.read_listed_job(job), base, name, cost)
        return replace(self._add_progress(shown, found), waiting_for=describe_reasons(reasons, base))

    def cancel(self, job: str) -> Reply:
        """Cancel a job. Search keeps using the index that was built before. A delete cannot be cancelled.

        A cancelled bulk operation stops before its next batch; what it has done stays. If a rollout is cancelled,
        documents that are built with the new settings stay, and the others keep serving the old ones.
        """
        found, _ = self._authorization.find_job(job, Scope.WRITE)
        requester = self._authorization.requester
        if found.owner == ROLLOUT:
            result = self._authorization.library.bases.cancel_rollout(found.base, found.id, requester)
        else:
            (result,) = self._store.cancel_jobs([job], requester)
        if result.reason == "being_deleted":
            result = replace(result, reason="delete_not_cancelled")
        return require_accepted(make_job_reply(result, parse_item_id(found.owner)))

    def retry(self, job: str) -> Reply:
        """Build only what failed or is missing after a job."""
        found, name = self._authorization.find_job(job, Scope.WRITE)
        item = parse_item_id(found.owner)
        if item is None:
            raise BadRequest("job_of_a_base", job=job, base=name)
        return self._documents.retry(name, item)

    def prioritise(self, job: str, priority: int) -> Reply:
        """Change the priority of an active job: 0 runs first, 9 last."""
        found, _ = self._authorization.find_job(job, Scope.WRITE)
        (result,) = self._store.reprioritise([job], priority)
        return require_accepted(make_job_reply(result, parse_item_id(found.owner)))

    def cancel_all(self, base: str | None = None, *, dry_run: bool = False) -> BulkSummary:
        """Cancel every active job of a base, or of all bases. Deletes continue.

        Up to 250 jobs are cancelled at once. If there are more, a job for each base cancels them; the summary names
        these jobs.
        """
        targets, queue = self._find_targets(base), self._authorization.library.queue_operations
        if dry_run:
            counts = [BulkResult(found=queue.count_cancellable(target)) for target in targets]
            return merge_summaries(*counts, dry_run=True)
        return merge_summaries(*queue.cancel(targets, [ROLLOUT], self._options), dry_run=False)

    def retry_all(self, base: str | None = None, *, degraded: bool = False, dry_run: bool = False) -> BulkSummary:
        """Retry every failed document, with `degraded` also incomplete ones. Failed bases are skipped.

        Up to 250 documents are processed at once. If there are more, a job for each base requests their retries; the
        summary names these jobs.
        """
        targets, queue = self._find_targets(base), self._authorization.library.queue_operations
        if base is not None:
            refuse_failed(targets[0])
        usable = [target for target in targets if target.problem is None]
        states = DocumentFilter(states=[Status.FAILED, Status.DEGRADED] if degraded else [Status.FAILED])
        if dry_run:
            counts = [BulkResult(found=queue.count_retryable(target, states)) for target in usable]
            return merge_summaries(*counts, dry_run=True)
        return merge_summaries(*queue.retry(usable, states, self._options), dry_run=False)

    def pause(self, base: str | None = None, *, stop: bool = False) -> bool:
        """Pause a base, or all bases: workers start no new work. With `stop`, they also interrupt running work."""
        return self._store.pause(self._require_base_key(base), stop=stop, requester=self._authorization.requester)

    def resume(self, base: str | None = None) -> bool:
        """End a pause; return whether there was one."""
        return self._store.resume(self._require_base_key(base))

    def overview(self, base: str | None = None, window: timedelta = timedelta(days=1)) -> QueueStats:
        """Return statistics of the queue within a time window."""
        target = self._authorization.find_base_or_all(base)
        return queue_to_schema(
            self._store.overview(target.key if target else None, window), self._authorization.base_names()
        )

    def _find_document_names(self, *jobs: StoredJob) -> dict[str, str]:
        """Return the names of the documents of these jobs by job id, with one query."""
        items = {job.id: item for job in jobs if (item := parse_item_id(job.owner)) is not None}
        names = self._authorization.library.document_queries.names(items.values())
        return {job: names[item] for job, item in items.items() if item in names}

    def _add_progress(self, shown: Job, job: StoredJob) -> Job:
        """Add the progress to a job of a base that waits for documents: a rollout, or the removal of the base."""
        if job.outcome is not None:
            return shown
        if job.owner == ROLLOUT and shown.progress is None:
            return replace(shown, progress=progress_of(self._store.slot(job.base, ROLLOUT, ROLLOUT).progress))
        total = parse_removal(job)
        if total is None:
            return shown
        done = max(0, total - self._authorization.library.bases.count_items(job.base))
        progress = Progress(stage=REMOVING, done=done, total=total, share=done / total if total else None)
        return replace(shown, progress=progress)

    @property
    def _options(self) -> RequestOptions:
        return RequestOptions(requester=self._authorization.requester)

    def _find_targets(self, base: str | None) -> Bases:
        """Return a base, or all bases, which needs an API key for all bases."""
        if base is not None:
            return [self._authorization.find_base(base, Scope.WRITE)]
        self._authorization.require_all_bases(Scope.WRITE)
        return self._authorization.visible_bases()

    def _require_base_key(self, base: str | None) -> str | None:
        """Return the key of a base in the store. None means all bases, which needs an API key for all bases."""
        if base is not None:
            return self._authorization.find_base(base, Scope.WRITE).key
        self._authorization.require_all_bases(Scope.WRITE)
        return None


def queue_to_schema(overview: QueueOverview, names: Mapping[str, str]) -> QueueStats:
    """Return statistics of the queue, with the names of the bases that the caller sees."""
    return QueueStats(
        active=dict(overview.active),
        active_is_exact=overview.active_is_exact,
        ended=dict(overview.ended),
        window_seconds=int(overview.window.total_seconds()),
        per_hour=overview.per_hour,
        failure_rate=overview.failure_rate,
        oldest_queued=as_datetime(overview.oldest_queued),
        paused=any(pause.base == "" for pause in overview.pauses),
        paused_bases=[names[pause.base] for pause in overview.pauses if pause.base in names],
        long_running_seconds=int(overview.long_running.total_seconds()),
    )


def _job_to_schema(listed: ListedJob, base: str, name: str, cost: LedgerSummary | None) -> Job:
    job = listed.job
    operation = parse_bulk_job(job.owner, job.payload)
    progress = None if listed.progress is None else progress_of(listed.progress)
    if operation is not None and job.outcome is None:
        progress = Progress(
            stage=progress.stage if progress else REQUESTING,
            done=operation.done,
            total=operation.total,
            share=operation.done / operation.total if operation.total else None,
        )
    return Job(
        id=job.id,
        base=base,
        document=parse_item_id(job.owner),
        name=name,
        subject=job.owner.partition(":")[0] if parse_item_id(job.owner) is None else "document",
        operation=job.operation,
        cause=job.cause,
        requester=job.requester,
        priority=job.priority,
        state=listed.state,
        outcome=job.outcome,
        generation=job.generation,
        created_at=as_datetime(job.created_at),
        finished_at=as_datetime(job.finished_at),
        results={kind: dict(result) for kind, result in job.results.items()},
        running_since=as_datetime(listed.running_since),
        cost=cost,
        progress=progress,
        bulk=None if operation is None else _bulk_to_schema(operation),
    )


def _bulk_to_schema(operation: BulkOperation) -> BulkProgress:
    return BulkProgress(
        action=str(operation.action),
        found=operation.found,
        done=operation.done,
        total=operation.total,
        answers=format_answers(operation.answers),
    )
