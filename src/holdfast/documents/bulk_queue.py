"""Cancels all active jobs of bases, or retries everything in them that failed: at once, or as bulk jobs.

A cancel of the queue does not end deletes, nor bulk jobs that delete or cancel. First it ends the work that requests
other work, so that this does not refill the queue. A retry does not cover failed bulk jobs, because a new request
replaces them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from holdfast.documents import bulk
from holdfast.documents import statements as sql
from holdfast.documents.lists import NO_FILTER
from holdfast.documents.requests import DEFAULT_REQUEST_OPTIONS, Action
from holdfast.engine import BulkResult, summarize
from holdfast.engine.store import count_cancellable_jobs, count_retryable_owners, read_now

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.catalog import Base
    from holdfast.db import Transaction
    from holdfast.documents.bulk import BulkOperation, BulkOperations
    from holdfast.documents.lists import DocumentFilter
    from holdfast.documents.requests import RequestOptions
    from holdfast.engine.store import SqlStore


class ActiveBulkJob(NamedTuple):
    id: str
    operation: BulkOperation


class QueueOperations:
    """Applies bulk operations to the queue, or starts their jobs."""

    def __init__(self, store: SqlStore, bulk_operations: BulkOperations) -> None:
        self._store = store
        self._bulk = bulk_operations

    def count_cancellable(self, base: Base) -> int:
        """Return how many jobs `cancel` would end."""
        with self._store.database.reading() as tx:
            kept = [one for one in _read_bulk_jobs(tx, base) if not one.operation.builds]
            return count_cancellable_jobs(tx, base.key)[0] - len(kept)

    def count_retryable(self, base: Base, filter_: DocumentFilter) -> int:
        """Return how many owners with the states of the filter `retry` would cover."""
        with self._store.database.reading() as tx:
            return _count_retryable(tx, base, filter_)[0]

    def cancel(
        self, bases: Sequence[Base], requesters: Sequence[str], options: RequestOptions = DEFAULT_REQUEST_OPTIONS
    ) -> list[BulkResult]:
        """Cancel all active jobs of bases; `requesters` are the owners whose work requests other work.

        Jobs that are created after the request are not cancelled.
        """
        return self._apply_or_start([(base, self._prepare_cancel(base, requesters, options)) for base in bases])

    def retry(
        self, bases: Sequence[Base], filter_: DocumentFilter, options: RequestOptions = DEFAULT_REQUEST_OPTIONS
    ) -> list[BulkResult]:
        """Retry every owner with the states of the filter, each once."""
        return self._apply_or_start([(base, self._prepare_retry(base, filter_, options)) for base in bases])

    def _apply_or_start(self, operations: Sequence[tuple[Base, BulkOperation]]) -> list[BulkResult]:
        """Apply a few requests at once; the bases count together. Each base has a job of its own."""
        large = sum(one.total - one.done for _, one in operations) > bulk.ITEMS_AT_ONCE
        results: list[BulkResult] = []
        for base, operation in operations:
            if large and not operation.finished:
                results.append(self._bulk.start(base, operation))
                continue
            run = self._bulk.run(base, operation)
            while not run.operation.finished:
                run.step()
            results.append(BulkResult(found=operation.found, answers=run.operation.answers))
        return results

    def _prepare_cancel(self, base: Base, requesters: Sequence[str], options: RequestOptions) -> BulkOperation:
        with self._store.database.reading() as tx:
            jobs = [one.id for one in _read_bulk_jobs(tx, base) if one.operation.builds]
            jobs += [id_ for (id_,) in tx.run(sql.ACTIVE_JOBS, [[owner] for owner in requesters], base=base.key)]
        ended = summarize(self._store.cancel_jobs(jobs, options.requester))
        with self._store.database.reading() as tx:
            began = read_now(tx)
            found, newest = count_cancellable_jobs(tx, base.key)
            found += ended.found - len(_read_bulk_jobs(tx, base))
        operation = bulk.make_operation(
            Action.CANCEL, options, filter=NO_FILTER, found=found, newest=newest, queue=True, began=began
        )
        return replace(operation, done=ended.found, answers=ended.answers)

    def _prepare_retry(self, base: Base, filter_: DocumentFilter, options: RequestOptions) -> BulkOperation:
        with self._store.database.reading() as tx:
            found, newest = _count_retryable(tx, base, filter_)
        return bulk.make_operation(Action.RETRY, options, filter=filter_, found=found, newest=newest, queue=True)


def _count_retryable(tx: Transaction, base: Base, filter_: DocumentFilter) -> tuple[int, int]:
    """Return how many owners can be retried, and the last of them."""
    found, newest = count_retryable_owners(tx, base.key, filter_.statuses)
    rows = tx.run(sql.READ_OWNERS, [[owner] for owner in bulk.OWNERS], base=base.key)
    return found - len([status for _, _, status in rows if status in filter_.statuses]), newest


def _read_bulk_jobs(tx: Transaction, base: Base) -> list[ActiveBulkJob]:
    rows = tx.run(sql.READ_ACTIVE_JOBS, [[owner] for owner in bulk.OWNERS], base=base.key)
    found = [(id_, bulk.parse_bulk_job(owner, payload)) for id_, owner, payload in rows]
    return [ActiveBulkJob(id_, operation) for id_, operation in found if operation is not None]
