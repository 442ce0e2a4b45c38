"""Checks and repairs derived columns: the status of an owner and the open slots of a job.

Both are written in the transaction that changes the slots, so they agree within one snapshot. A repair locks the owner
and derives the value again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import select, update

from holdfast.db import LIMIT, NOW, batch, int_param, text_literal
from holdfast.engine.effects import Settlement, derive_statuses, format_results, make_job_event
from holdfast.engine.slot import JobId
from holdfast.engine.states import Outcome
from holdfast.engine.status import derive_outcome
from holdfast.engine.store import statements as sql
from holdfast.engine.store.rows import OwnerRow
from holdfast.engine.store.tables import jobs, owners, slots
from holdfast.engine.store.transitions import Snapshot, record_events

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from holdfast.db import Database, Transaction
    from holdfast.engine.effects import Event
    from holdfast.engine.slot import OwnerId, Slot

SELECT_OWNERS = select(owners).where(owners.c.id > int_param("after")).order_by(owners.c.id).limit(LIMIT)
_row = batch(owner=int)
SELECT_OPEN_COUNTS = select(jobs.c.owner_id, jobs.c.id, jobs.c.open).where(
    jobs.c.outcome.is_(None), jobs.c.owner_id.in_(select(_row.c.owner))
)
_row = batch(job=str)
SELECT_ENDED_JOBS = select(jobs.c.id).where(jobs.c.outcome.is_not(None), jobs.c.id.in_(select(_row.c.job)))
_row = batch(job=str, open=int)
REOPEN_JOBS = (
    update(jobs)
    .values(open=_row.c.open, outcome=None, results=None, finished_at=None)
    .where(jobs.c.id == _row.c.job)
    .returning(jobs.c.id)
)
# Jobs without an owner should not exist: deleting the last slot of an owner also ends its job.
_ownerless = ~select(owners.c.id).where(owners.c.id == jobs.c.owner_id).exists()
SELECT_ACTIVE_JOBS = (
    select(jobs.c.owner_id, jobs.c.id, jobs.c.base, jobs.c.owner, _ownerless)
    .where(jobs.c.outcome.is_(None), jobs.c.owner_id > int_param("after"))
    .order_by(jobs.c.owner_id)
    .limit(LIMIT)
)
_row = batch(job=str)
END_ORPHANED_JOBS = (
    update(jobs)
    .values(open=0, outcome=text_literal(Outcome.DELETED), finished_at=NOW)
    .where(jobs.c.id == _row.c.job, jobs.c.outcome.is_(None), _ownerless)
    .returning(jobs.c.id)
)
_row = batch(owner=int)
DELETE_EMPTY_OWNERS = (
    owners.delete()
    .where(owners.c.id.in_(select(_row.c.owner)), ~select(slots.c.id).where(slots.c.owner_id == owners.c.id).exists())
    .returning(owners.c.id)
)


class MiscountedJob(NamedTuple):
    """A job whose number of open slots is wrong."""

    job: JobId
    owner: OwnerId
    recorded: int
    actual: int


class ActiveJob(NamedTuple):
    """A job that has not ended, and whether its owner is missing."""

    owner_id: OwnerId
    id: JobId
    base: str
    owner: str
    orphaned: bool


class ConsistencyChecker:
    def __init__(self, database: Database) -> None:
        self._database = database

    def list_owners(self, tx: Transaction, after: int, limit: int) -> list[OwnerRow]:
        """Read owners by id."""
        return [OwnerRow(*row) for row in tx.run(SELECT_OWNERS, after=after, limit=limit)]

    def find_wrong_statuses(self, after: int, limit: int) -> tuple[list[OwnerRow], list[OwnerRow]]:
        """Read the next owners. Return them, and those with a wrong status or without slots."""
        with self._database.reading() as tx:
            rows = self.list_owners(tx, after, limit)
            snapshot = Snapshot(tx, [row.id for row in rows])
        fresh = derive_statuses([row.id for row in rows], snapshot.slots.values())
        return rows, [row for row in rows if fresh.get(row.id) != row.status]

    def find_miscounted_jobs(self, after: int, limit: int) -> tuple[list[OwnerRow], list[MiscountedJob]]:
        """Read the next owners. Return them, and their jobs with a wrong number of open slots."""
        with self._database.reading() as tx:
            rows = self.list_owners(tx, after, limit)
            return rows, _find_miscounted(tx, Snapshot(tx, [row.id for row in rows]), [row.id for row in rows])

    def list_active_jobs(self, after: int, limit: int) -> list[ActiveJob]:
        """Read jobs that have not ended, by owner id."""
        with self._database.reading() as tx:
            return [ActiveJob(*row) for row in tx.run(SELECT_ACTIVE_JOBS, after=after, limit=limit)]

    def repair_statuses(self, ids: Sequence[OwnerId]) -> int:
        """Write derived statuses, and delete owners without slots. Return how many were wrong."""

        def work(tx: Transaction) -> int:
            snapshot = Snapshot.load_locked(tx, ids)
            fresh = derive_statuses(ids, snapshot.slots.values())
            wrong = {owner: status for owner, status in fresh.items() if snapshot.statuses[owner] != status}
            tx.run(sql.SET_STATUS, [[owner, str(status)] for owner, status in wrong.items()])
            return len(wrong) + len(tx.run(DELETE_EMPTY_OWNERS, [[owner] for owner in ids if owner not in fresh]))

        return self._database.write(work, durable=True)

    def repair_jobs(self, ids: Sequence[OwnerId]) -> int:
        """Correct the number of open slots, and end jobs without any. Return how many were repaired."""

        def work(tx: Transaction) -> int:
            snapshot = Snapshot.load_locked(tx, ids)
            wrong = _find_miscounted(tx, snapshot, ids)
            counting = [miscount for miscount in wrong if miscount.recorded]
            results = {
                miscount.job: _derive_result(miscount, snapshot.slots_of(miscount.owner)) for miscount in counting
            }
            rows = [
                [
                    miscount.job,
                    miscount.recorded - miscount.actual,
                    str(results[miscount.job][0]),
                    results[miscount.job][1],
                ]
                for miscount in counting
            ]
            ended = {job for job, outcome in tx.run(sql.SETTLE_JOBS, rows) if outcome is not None}
            known = [(miscount, snapshot.slots_of(miscount.owner)) for miscount in counting if miscount.job in ended]
            record_events(tx, [_make_ended_event(miscount, slots) for miscount, slots in known if slots])
            again = tx.run(
                REOPEN_JOBS, [[miscount.job, miscount.actual] for miscount in wrong if not miscount.recorded]
            )
            return len(counting) + len(again)

        return self._database.write(work, durable=True)

    def end_orphaned_jobs(self, ids: Sequence[str]) -> int:
        """End jobs whose owner is missing. Return how many."""
        return self._database.write(lambda tx: len(tx.run(END_ORPHANED_JOBS, [[job] for job in ids])), durable=True)


def _find_miscounted(tx: Transaction, snapshot: Snapshot, ids: Sequence[OwnerId]) -> list[MiscountedJob]:
    """Compare the jobs of owners with their slots. An ended job must have no open slots."""
    counting = {
        job: (owner, recorded) for owner, job, recorded in tx.run(SELECT_OPEN_COUNTS, [[owner] for owner in ids])
    }
    unsettled: dict[JobId, list[Slot]] = {}
    for slot in snapshot.slots.values():
        if not slot.resting:
            unsettled.setdefault(slot.job, []).append(slot)
    miscounted = [
        MiscountedJob(JobId(job), owner, recorded, actual)
        for job, (owner, recorded) in counting.items()
        if recorded != (actual := len(unsettled.get(JobId(job), ())))
    ]
    busy = {owner for owner, _ in counting.values()}
    idle = {
        job: open_slots
        for job, open_slots in unsettled.items()
        if job not in counting and open_slots[0].owner_id not in busy
    }
    for (job,) in tx.run(SELECT_ENDED_JOBS, [[job] for job in idle]):
        miscounted.append(MiscountedJob(JobId(job), idle[JobId(job)][0].owner_id, 0, len(idle[JobId(job)])))
    return miscounted


def _own(job: MiscountedJob, slots: Iterable[Slot]) -> list[Slot]:
    return [slot for slot in slots if slot.job == job.job]


def _derive_result(job: MiscountedJob, slots: Iterable[Slot]) -> tuple[Outcome, str]:
    """Return the outcome of a job without open slots. If it has no slots at all, later jobs took them over."""
    own = _own(job, slots)
    return (derive_outcome(own) if own else Outcome.SUPERSEDED), format_results(own)


def _make_ended_event(job: MiscountedJob, slots: Sequence[Slot]) -> Event:
    outcome, results = _derive_result(job, slots)
    slot = next(iter(_own(job, slots) or slots))
    return make_job_event(Settlement(job=job.job, settled=job.recorded, outcome=outcome, results=results, slot=slot))
