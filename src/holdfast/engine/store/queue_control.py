"""Control of the queue: priorities, cancel, retry, pauses and quotas.

Cancels and retries are ordinary requests. Operations on many jobs run in transactions of at most `LARGEST_BATCH` slots,
so that other writers do not wait long.
"""

from __future__ import annotations

import json
import math
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from holdfast.clock import Moment
from holdfast.engine.admission import DEFAULT_PRIORITY, AdmissionResult, Request, Verdict
from holdfast.engine.effects import Event
from holdfast.engine.queue import WHOLE_QUEUE, BulkResult, Quota, summarize
from holdfast.engine.slot import JobId
from holdfast.engine.states import Operation, Status
from holdfast.engine.store import queue_statements as queue
from holdfast.engine.store import statements as sql
from holdfast.engine.store.admission import AdmissionStore, check_priority, check_text
from holdfast.engine.store.base import LARGEST_BATCH
from holdfast.engine.store.rows import job_from_row, pause_from_row, quota_from_row
from holdfast.engine.store.tables import RETRYABLE_STATUSES
from holdfast.engine.store.transitions import Snapshot, make_storable, record_events
from holdfast.errors import BadRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from holdfast.db import Transaction
    from holdfast.engine.queue import Pause
    from holdfast.engine.slot import OwnerId
    from holdfast.engine.store.base import Job

T = TypeVar("T")
LARGEST_QUOTA = 2**31 - 1  # the largest INTEGER of PostgreSQL


class QueuedOwner(NamedTuple):
    """An owner whose job can be cancelled, or that can be retried, and the number of slots that this moves."""

    id: int
    size: int
    base: str
    owner: str
    job: str | None = None  # the active job, which can be cancelled

    def cancel_request(self, requester: str) -> Request:
        return Request(
            base=self.base,
            owner=self.owner,
            operation=Operation.CANCEL,
            job=None if self.job is None else JobId(self.job),
            cause="queue",
            requester=requester,
        )

    def retry_request(self, requester: str, priority: int = DEFAULT_PRIORITY) -> Request:
        return Request(
            base=self.base,
            owner=self.owner,
            operation=Operation.RETRY,
            priority=priority,
            cause="queue",
            requester=requester,
        )


class QueueControlStore(AdmissionStore):
    def reprioritise(self, jobs: Sequence[str], priority: int) -> list[AdmissionResult]:
        """Change the priority of active jobs: 0 first, 9 last. Running work continues."""
        check_priority(priority)
        known = self._read_jobs(jobs)
        results: dict[str, AdmissionResult] = {}
        for batch in split_by_size((job, job.open) for job in known.values()):
            change = partial(_change_priority, jobs=batch, priority=priority)
            results |= self.database.write(change, durable=True)
        return [results.get(job) or _make_unknown_result(job) for job in jobs]

    def cancel_jobs(self, jobs: Sequence[str], requester: str = "") -> list[AdmissionResult]:
        """Cancel jobs. A job that is no longer the active one of its owner is skipped."""
        known = self._read_jobs(jobs)
        pairs = [(id_, known[id_]) for id_ in jobs if id_ in known]
        results: dict[str, AdmissionResult] = {}
        for batch in split_by_size((pair, pair[1].open) for pair in pairs):
            requests = [
                QueuedOwner(job.owner_id, job.open, job.base, job.owner, job.id).cancel_request(requester)
                for _, job in batch
            ]
            for (id_, _), result in zip(batch, self.admit(requests), strict=True):
                results.setdefault(id_, result)
        return [results.get(job) or _make_unknown_result(job) for job in jobs]

    def cancel_all(self, base: str | None = None, *, dry_run: bool = False, requester: str = "") -> BulkResult:
        """Cancel all active jobs of a base, or of all bases. Deletes continue.

        Jobs that are created meanwhile are not cancelled, so the call ends.
        """
        with self.database.reading() as tx:
            if dry_run:
                return BulkResult(found=count_cancellable_jobs(tx, base)[0])
            began = read_now(tx)
        results: list[AdmissionResult] = []
        after = 0
        while page := self._read_page(partial(read_cancellable_jobs, base=base, began=began, after=after)):
            results += self.cancel_jobs([one.job for one in page if one.job is not None], requester)
            after = page[-1].id
        return summarize(results)

    def retry_all(
        self,
        base: str | None = None,
        *,
        degraded: bool = False,
        dry_run: bool = False,
        priority: int = DEFAULT_PRIORITY,
        requester: str = "",
    ) -> BulkResult:
        """Retry all failed owners of a base, or of all bases.

        With `degraded`, also those with missing chunks or slots. Each owner is retried once.
        """
        statuses = RETRYABLE_STATUSES if degraded else (Status.FAILED,)
        if dry_run:
            with self.database.reading() as tx:
                return BulkResult(found=count_retryable_owners(tx, base, statuses)[0])
        results: list[AdmissionResult] = []
        after = 0
        while page := self._read_page(partial(read_retryable_owners, base=base, statuses=statuses, after=after)):
            for batch in split_by_size((owner, owner.size) for owner in page):
                results += self.admit([owner.retry_request(requester, priority) for owner in batch])
            after = page[-1].id
        return summarize(results)

    def _read_page(self, read: Callable[..., list[QueuedOwner]]) -> list[QueuedOwner]:
        with self.database.reading() as tx:
            return read(tx, limit=LARGEST_BATCH)

    def pause(self, base: str | None = None, *, stop: bool = False, requester: str = "") -> bool:
        """Prevent claims in a base or in the whole queue. `stop` also stops running work.

        Return whether anything changed. A claim that runs at this moment may still succeed.
        """
        requester = make_storable(requester)
        values: dict[str, Any] = {"base": _validate_base(base), "stop": int(stop), "requester": requester}

        def work(tx: Transaction) -> bool:
            changed = bool(tx.run(queue.UPDATE_PAUSE, **values)) or bool(tx.run(queue.INSERT_PAUSE, **values))
            if changed:
                record_events(tx, [_make_queue_event("paused", base, stop=stop, requester=requester)])
            return changed

        return self.database.write(work, durable=True)

    def resume(self, base: str | None = None) -> bool:
        """End a pause. Return whether there was one. Rings that were lost during the pause are sent again at once."""

        def work(tx: Transaction) -> bool:
            changed = bool(tx.run(queue.END_PAUSE, base=_validate_base(base)))
            if changed:
                unanswered = tx.run(queue.SELECT_RUNG_WHILE_PAUSED, base=base or WHOLE_QUEUE, limit=LARGEST_BATCH)
                tx.run(queue.CLEAR_RINGS, unanswered)
                record_events(tx, [_make_queue_event("resumed", base)])
            return changed

        changed = self.database.write(work, durable=True)
        if changed:
            self.wake()
        return changed

    def pauses(self) -> list[Pause]:
        """Return the active pauses."""
        return [pause for pause in map(pause_from_row, self._read(sql.SELECT_PAUSES)) if pause.active]

    def set_quota(self, base: str, per_day: int | None) -> None:
        """Limit the build jobs that a base may start per day (UTC). None removes the limit.

        Counting starts with the first quota. A new limit keeps the count.
        """
        if per_day is not None and not 1 <= per_day <= LARGEST_QUOTA:
            raise BadRequest("quota_out_of_range", quota=per_day, largest=LARGEST_QUOTA)
        self.database.write(lambda tx: write_quota(tx, _validate_base(base), per_day), durable=True)

    def quota(self, base: str) -> Quota | None:
        """Return the quota of a base as of today."""
        with self.database.reading() as tx:
            now = tx.run(sql.SELECT_NOW)[0][0]
            quotas = [quota_from_row(row) for row in tx.run(queue.SELECT_QUOTA, base=base)]
        return quotas[0].as_of(now) if quotas else None

    def _read_jobs(self, jobs: Sequence[str]) -> dict[str, Job]:
        rows = self._read(queue.SELECT_JOBS, [[make_storable(job)] for job in dict.fromkeys(jobs)])
        return {job.id: job for job in map(job_from_row, rows)}


def read_now(tx: Transaction) -> Moment:
    """Return the time of the database, which dates jobs."""
    return Moment(tx.run(sql.SELECT_NOW)[0][0])


def read_cancellable_jobs(
    tx: Transaction, base: str | None, *, began: Moment, after: int, limit: int
) -> list[QueuedOwner]:
    """Return the active jobs that a cancel can end and that existed at `began`, for the owners after this one."""
    statement = queue.select_cancellable_jobs(queue.StatementFilters(base=base is not None))
    return [QueuedOwner(*row) for row in tx.run(statement, base=base, began=began, after=after, limit=limit)]


def count_cancellable_jobs(tx: Transaction, base: str | None) -> tuple[int, int]:
    """Return how many jobs can be cancelled, and the last owner of one."""
    ((found, last),) = tx.run(queue.count_cancellable_jobs(queue.StatementFilters(base=base is not None)), base=base)
    return found, last


def read_retryable_owners(
    tx: Transaction, base: str | None, statuses: Collection[Status], *, after: int, limit: int
) -> list[QueuedOwner]:
    """Return the owners of these statuses that can be retried, after this one. The index has one range per status."""
    statement = queue.select_retryable_owners(queue.StatementFilters(base=base is not None))
    values: dict[str, Any] = {"base": base, "after": after, "limit": limit}
    found = [QueuedOwner(*row) for status in statuses for row in tx.run(statement, status=str(status), **values)]
    return sorted(found)[:limit]


def count_retryable_owners(tx: Transaction, base: str | None, statuses: Collection[Status]) -> tuple[int, int]:
    """Return how many owners of these statuses can be retried, and the last of them."""
    statement = queue.count_retryable_owners(queue.StatementFilters(base=base is not None))
    counted = [tx.run(statement, base=base, status=str(status))[0] for status in statuses]
    return sum(found for found, _ in counted), max(last for _, last in counted)


def split_by_size(items: Iterable[tuple[T, int]]) -> Iterator[list[T]]:
    """Split into batches of at most `LARGEST_BATCH` slots in total. A larger thing is a batch of its own."""
    batch: list[T] = []
    room = LARGEST_BATCH
    for item, size in items:
        if batch and size > room:
            yield batch
            batch, room = [], LARGEST_BATCH
        batch.append(item)
        room -= max(1, size)
    if batch:
        yield batch


def _change_priority(tx: Transaction, jobs: Sequence[Job], priority: int) -> dict[str, AdmissionResult]:
    """Change the priority of jobs, and of their slots that are not at rest."""
    owners: set[OwnerId] = {job.owner_id for job in jobs}
    snapshot = Snapshot.load_locked(tx, owners)
    before = {job.id: job for job in map(job_from_row, tx.run(queue.SELECT_JOBS, [[job.id] for job in jobs]))}
    changed = {job for (job,) in tx.run(queue.UPDATE_JOB_PRIORITIES, [[job.id, priority] for job in jobs])}
    unsettled = [slot for slot in snapshot.slots.values() if slot.job in changed and not slot.resting]
    tx.run(queue.UPDATE_SLOT_PRIORITIES, [[slot.id, priority] for slot in unsettled])
    record_events(tx, [_make_priority_event(before[job], priority) for job in sorted(changed)])
    return {
        job.id: AdmissionResult(
            verdict=Verdict.ACCEPTED if job.id in changed else Verdict.SKIPPED,
            reason="reprioritised" if job.id in changed else "nothing_active" if job.outcome else "same_priority",
            status=Status(snapshot.statuses.get(job.owner_id, Status.NOT_INDEXED)),
            job=job.id,
            generation=job.generation,
        )
        for job in before.values()
    }


def write_quota(tx: Transaction, base: str, per_day: int | None) -> None:
    """Set the limit of build jobs per day. None removes it."""
    if per_day is None:
        tx.run(queue.DELETE_QUOTA, base=base)
    elif not tx.run(queue.UPDATE_QUOTA, base=base, per_day=per_day):
        tx.run(queue.INSERT_QUOTA, base=base, per_day=per_day)


def read_remaining_quota(tx: Transaction, base: str) -> float:
    """Return how many more jobs a base may start today. Locks the quota until the commit."""
    quotas = [quota_from_row(row) for row in tx.run(sql.LOCK_QUOTAS, [[base]])]
    return quotas[0].remaining(tx.run(sql.SELECT_NOW)[0][0]) if quotas else math.inf


def _make_priority_event(job: Job, priority: int) -> Event:
    data = json.dumps({"from": job.priority, "to": priority})
    return Event("job.reprioritised", job.base, job.owner, job=job.id, generation=job.generation, data=data)


def _make_queue_event(what: str, base: str | None, **facts: object) -> Event:
    return Event(f"queue.{what}", base or WHOLE_QUEUE, "", data=json.dumps(facts))


def _make_unknown_result(job: str) -> AdmissionResult:
    return AdmissionResult(verdict=Verdict.REJECTED, reason="unknown_job", status=Status.NOT_INDEXED, job=JobId(job))


def _validate_base(base: str | None) -> str:
    """Return the name of a base, or `WHOLE_QUEUE` for None."""
    if base is None:
        return WHOLE_QUEUE
    if not base:
        raise BadRequest("queue_base_empty")
    check_text("base", base)
    return base
