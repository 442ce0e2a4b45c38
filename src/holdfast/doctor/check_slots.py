"""Checks slots and jobs: what is kept for quick reading, and who works on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.doctor.report import Check, Issue, ScannedBatch
from holdfast.engine.store import ACTIVE_JOB_STATES, LARGEST_BATCH, ConsistencyChecker, JobFilter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from holdfast.engine import OwnerId
    from holdfast.engine.store import SqlStore

OWNERS_PER_BATCH = 100  # owners, each with a handful of slots
MAX_EXPLAINED_JOBS = 50  # jobs, in the order they are served, that are asked why they wait
STUCK_REASONS = frozenset(
    {"no_worker", "kind_unclaimed", "worker_lost"}
)  # of the reasons to wait, those that need people


class SlotChecks:
    """Looks through owners and their jobs."""

    def __init__(self, store: SqlStore, named: Callable[[str], str]) -> None:
        self._store = store
        self._consistency = ConsistencyChecker(store.database)
        self._base_label = named  # what people call a base

    def checks(self) -> list[Check]:
        """Return them; an owner without slots goes before its job is ended."""
        return [
            Check("status_differs", self._find_wrong_statuses, self._repair_statuses),
            Check("job_differs", self._find_wrong_jobs, self._repair_jobs),
            Check("nobody_works", self._find_stuck_jobs),
        ]

    def _find_wrong_statuses(self) -> Iterator[ScannedBatch]:
        after = 0
        while True:
            rows, wrong = self._consistency.find_wrong_statuses(after, OWNERS_PER_BATCH)
            if not rows:
                return
            found = [Issue(self._base_label(row.base), f"owner {row.owner} says {row.status}", row.id) for row in wrong]
            yield ScannedBatch(len(rows), found)
            after = rows[-1].id

    def _repair_statuses(self, troubles: Sequence[Issue]) -> int:
        return self._consistency.repair_statuses(_owner_ids(troubles))

    def _find_wrong_jobs(self) -> Iterator[ScannedBatch]:
        after = 0
        while True:
            rows, wrong = self._consistency.find_miscounted_jobs(after, OWNERS_PER_BATCH)
            if not rows:
                break
            bases = {row.id: row.base for row in rows}
            found = [
                Issue(
                    self._base_label(bases[one.owner]),
                    f"{one.job} counts {one.recorded} and has {one.actual}",
                    one.owner,
                )
                for one in wrong
            ]
            yield ScannedBatch(len(rows), found)
            after = rows[-1].id
        yield from self._find_lost_jobs()

    def _find_lost_jobs(self) -> Iterator[ScannedBatch]:
        after = 0
        while jobs := self._consistency.list_active_jobs(after, LARGEST_BATCH):
            lost = [job for job in jobs if job.orphaned]
            said = [f"{job.id} of owner {job.owner}, who is gone" for job in lost]
            found = [Issue(self._base_label(job.base), what, job.id) for job, what in zip(lost, said, strict=True)]
            yield ScannedBatch(len(jobs), found)
            after = jobs[-1].owner_id

    def _repair_jobs(self, troubles: Sequence[Issue]) -> int:
        lost = [one.key for one in troubles if isinstance(one.key, str)]
        own = _owner_ids([one for one in troubles if not isinstance(one.key, str)])
        return (self._consistency.end_orphaned_jobs(lost) if lost else 0) + (
            self._consistency.repair_jobs(own) if own else 0
        )

    def _find_stuck_jobs(self) -> Iterator[ScannedBatch]:
        """Ask those who are served first why they wait: whoever is behind them waits for them."""
        page = self._store.list_jobs(JobFilter(states=ACTIVE_JOB_STATES), size=MAX_EXPLAINED_JOBS)
        found = []
        for job in (one.job for one in page.jobs):
            reasons = [reason for reason in self._store.explain_job(job.id) if reason.code in STUCK_REASONS]
            base = self._base_label(job.base)
            found += [Issue(base, f"{job.id}: {one.format_message(base)}", job.id) for one in reasons[:1]]
        yield ScannedBatch(len(page.jobs), found)


def _owner_ids(troubles: Sequence[Issue]) -> list[OwnerId]:
    return list(dict.fromkeys(one.key for one in troubles))
