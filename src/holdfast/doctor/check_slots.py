"""Checks slots and jobs: cached statuses, counters of jobs, and jobs that no worker takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.doctor.report import Check, Issue
from holdfast.engine import format_wait_reason
from holdfast.engine.store import ACTIVE_JOB_STATES, LARGEST_BATCH, ConsistencyChecker, JobFilter

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from holdfast.doctor.report import Locator
    from holdfast.engine import OwnerId
    from holdfast.engine.store import SqlStore

OWNERS_PER_BATCH = 100  # each owner has a handful of slots
MAX_EXPLAINED_JOBS = 50  # the first in the order in which they are served
STUCK_REASONS = frozenset({"no_worker", "kind_unclaimed", "worker_lost"})  # reasons to wait that need a person


class SlotChecks:
    """Checks owners and their jobs."""

    def __init__(self, store: SqlStore, locate: Locator) -> None:
        self._store = store
        self._consistency = ConsistencyChecker(store.database)
        self._locate = locate

    def checks(self) -> list[Check]:
        """Return the checks in order: an owner without slots is removed before its job is ended."""
        return [
            Check("status_differs", self._find_wrong_statuses, self._repair_statuses),
            Check("job_differs", self._find_wrong_jobs, self._repair_jobs),
            Check("nobody_works", self._find_stuck_jobs),
        ]

    def _find_wrong_statuses(self) -> Iterator[list[Issue]]:
        after = 0
        while True:
            rows, wrong = self._consistency.find_wrong_statuses(after, OWNERS_PER_BATCH)
            if not rows:
                return
            yield [
                Issue(self._locate(row.base), f"owner {row.owner} with status {row.status}", row.id) for row in wrong
            ]
            after = rows[-1].id

    def _repair_statuses(self, issues: Sequence[Issue]) -> int:
        return self._consistency.repair_statuses(_owner_ids(issues))

    def _find_wrong_jobs(self) -> Iterator[list[Issue]]:
        after = 0
        while True:
            rows, wrong = self._consistency.find_miscounted_jobs(after, OWNERS_PER_BATCH)
            if not rows:
                break
            bases = {row.id: row.base for row in rows}
            yield [
                Issue(
                    self._locate(bases[job.owner]),
                    f"{job.job} counts {job.recorded} open slots and has {job.actual}",
                    job.owner,
                )
                for job in wrong
            ]
            after = rows[-1].id
        yield from self._find_lost_jobs()

    def _find_lost_jobs(self) -> Iterator[list[Issue]]:
        after = 0
        while jobs := self._consistency.list_active_jobs(after, LARGEST_BATCH):
            yield [
                Issue(self._locate(job.base), f"{job.id} of owner {job.owner}, which no longer exists", job.id)
                for job in jobs
                if job.orphaned
            ]
            after = jobs[-1].owner_id

    def _repair_jobs(self, issues: Sequence[Issue]) -> int:
        lost = [issue.key for issue in issues if isinstance(issue.key, str)]
        own = _owner_ids([issue for issue in issues if not isinstance(issue.key, str)])
        return (self._consistency.end_orphaned_jobs(lost) if lost else 0) + (
            self._consistency.repair_jobs(own) if own else 0
        )

    def _find_stuck_jobs(self) -> Iterator[list[Issue]]:
        """Find stuck jobs among the first of the queue; all others wait for these."""
        page = self._store.list_jobs(JobFilter(states=ACTIVE_JOB_STATES), size=MAX_EXPLAINED_JOBS)
        found = []
        for job in (listed.job for listed in page.jobs):
            reasons = [reason for reason in self._store.explain_job(job.id) if reason.code in STUCK_REASONS]
            where = self._locate(job.base)
            found += [
                Issue(where, f"{job.id}: {format_wait_reason(reason, where.base)}", job.id) for reason in reasons[:1]
            ]
        yield found


def _owner_ids(issues: Sequence[Issue]) -> list[OwnerId]:
    return list(dict.fromkeys(issue.key for issue in issues))
