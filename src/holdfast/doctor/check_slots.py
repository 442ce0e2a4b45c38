"""Checks slots and jobs: what is kept for quick reading, and who works on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.doctor.report import Check, Portion, Trouble
from holdfast.engine.store import LARGEST_BATCH, WORKING, Auditing, JobFilter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from holdfast.engine import OwnerId
    from holdfast.engine.store import SqlStore

TOGETHER = 100  # owners, each with a handful of slots
FIRST = 50  # jobs, in the order they are served, that are asked why they wait
STUCK = frozenset({"no_worker", "kind_unclaimed", "worker_lost"})  # of the reasons to wait, those that need people


class SlotChecks:
    """Looks through owners and their jobs."""

    def __init__(self, store: SqlStore, named: Callable[[str], str]) -> None:
        self._store = store
        self._auditing = Auditing(store.database)
        self._named = named  # what people call a base

    def checks(self) -> list[Check]:
        """Return them; an owner without slots goes before its job is ended."""
        return [
            Check("status_differs", self._statuses, self._mend_statuses),
            Check("job_differs", self._jobs, self._mend_jobs),
            Check("nobody_works", self._stuck),
        ]

    def _statuses(self) -> Iterator[Portion]:
        after = 0
        while True:
            rows, wrong = self._auditing.statuses(after, TOGETHER)
            if not rows:
                return
            found = [Trouble(self._named(row.base), f"owner {row.owner} says {row.status}", row.id) for row in wrong]
            yield Portion(len(rows), found)
            after = rows[-1].id

    def _mend_statuses(self, troubles: Sequence[Trouble]) -> int:
        return self._auditing.mend_statuses(_ids(troubles))

    def _jobs(self) -> Iterator[Portion]:
        after = 0
        while True:
            rows, wrong = self._auditing.jobs(after, TOGETHER)
            if not rows:
                break
            bases = {row.id: row.base for row in rows}
            found = [
                Trouble(self._named(bases[one.owner]), f"{one.job} counts {one.says} and has {one.has}", one.owner)
                for one in wrong
            ]
            yield Portion(len(rows), found)
            after = rows[-1].id
        yield from self._lost()

    def _lost(self) -> Iterator[Portion]:
        after = 0
        while jobs := self._auditing.active_jobs(after, LARGEST_BATCH):
            lost = [job for job in jobs if job.lost]
            said = [f"{job.id} of owner {job.owner}, who is gone" for job in lost]
            found = [Trouble(self._named(job.base), what, job.id) for job, what in zip(lost, said, strict=True)]
            yield Portion(len(jobs), found)
            after = jobs[-1].owner_id

    def _mend_jobs(self, troubles: Sequence[Trouble]) -> int:
        lost = [one.key for one in troubles if isinstance(one.key, str)]
        own = _ids([one for one in troubles if not isinstance(one.key, str)])
        return (self._auditing.end_lost(lost) if lost else 0) + (self._auditing.mend_jobs(own) if own else 0)

    def _stuck(self) -> Iterator[Portion]:
        """Ask those who are served first why they wait: whoever is behind them waits for them."""
        page = self._store.list_jobs(JobFilter(states=WORKING), size=FIRST)
        found = []
        for job in (one.job for one in page.jobs):
            reasons = [reason for reason in self._store.explain_job(job.id) if reason.code in STUCK]
            base = self._named(job.base)
            found += [Trouble(base, f"{job.id}: {one.sentence(base)}", job.id) for one in reasons[:1]]
        yield Portion(len(page.jobs), found)


def _ids(troubles: Sequence[Trouble]) -> list[OwnerId]:
    return list(dict.fromkeys(one.key for one in troubles))
