"""Compares what is kept for quick reading with what it is derived from: the status of an owner, the count of a job.

Both are written in the transaction that moves the slots, so within one snapshot they agree, whoever works. What does
not is mended under the lock of its owner, from what stands there then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import literal_column, select, update

from holdfast.db import LIMIT, NOW, batch, number
from holdfast.engine.effects import Settlement, job_event, results_of, statuses
from holdfast.engine.slot import JobId
from holdfast.engine.states import Outcome
from holdfast.engine.status import outcome_of
from holdfast.engine.store import statements as sql
from holdfast.engine.store.rows import owner_of
from holdfast.engine.store.tables import jobs, owners, slots
from holdfast.engine.store.transitions import Snapshot, record

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from holdfast.db import Database, Transaction
    from holdfast.engine.effects import Event
    from holdfast.engine.slot import OwnerId, Slot
    from holdfast.engine.store.rows import OwnerRow

OWNERS = select(owners).where(owners.c.id > number("after")).order_by(owners.c.id).limit(LIMIT)
_row = batch(owner=int)
COUNTING_JOBS = select(jobs.c.owner_id, jobs.c.id, jobs.c.open).where(
    jobs.c.outcome.is_(None), jobs.c.owner_id.in_(select(_row.c.owner))
)
_row = batch(job=str)
ENDED_JOBS = select(jobs.c.id).where(jobs.c.outcome.is_not(None), jobs.c.id.in_(select(_row.c.job)))
_row = batch(job=str, open=int)
REOPEN = (
    update(jobs)
    .values(open=_row.c.open, outcome=None, results=None, finished_at=None)
    .where(jobs.c.id == _row.c.job)
    .returning(jobs.c.id)
)
# Of owners that are gone: whoever removes the last slot ends the job in the same transaction.
_ownerless = ~select(owners.c.id).where(owners.c.id == jobs.c.owner_id).exists()
ACTIVE_JOBS = (
    select(jobs.c.owner_id, jobs.c.id, jobs.c.base, jobs.c.owner, _ownerless)
    .where(jobs.c.outcome.is_(None), jobs.c.owner_id > number("after"))
    .order_by(jobs.c.owner_id)
    .limit(LIMIT)
)
_row = batch(job=str)
END_LOST = (
    update(jobs)
    .values(open=0, outcome=literal_column(f"'{Outcome.DELETED}'"), finished_at=NOW)
    .where(jobs.c.id == _row.c.job, jobs.c.outcome.is_(None), _ownerless)
    .returning(jobs.c.id)
)
_row = batch(owner=int)
REMOVE_EMPTY = (
    owners.delete()
    .where(owners.c.id.in_(select(_row.c.owner)), ~select(slots.c.id).where(slots.c.owner_id == owners.c.id).exists())
    .returning(owners.c.id)
)


class Miscounted(NamedTuple):
    """A job that says that so many of its slots have not settled, and how many there are."""

    job: JobId
    owner: OwnerId
    says: int
    has: int


class Active(NamedTuple):
    """A job that has not ended, and whether its owner is gone."""

    owner_id: OwnerId
    id: JobId
    base: str
    owner: str
    lost: bool


class Auditing:
    """Reads and mends one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def owners(self, tx: Transaction, after: int, limit: int) -> list[OwnerRow]:
        """Read owners in the order of their ids."""
        return [owner_of(row) for row in tx.run(OWNERS, after=after, limit=limit)]

    def statuses(self, after: int, limit: int) -> tuple[list[OwnerRow], list[OwnerRow]]:
        """Read the next owners, and which of them show something else than their slots, or have none."""
        with self._database.reading() as tx:
            rows = self.owners(tx, after, limit)
            found = Snapshot(tx, [row.id for row in rows])
        fresh = statuses([row.id for row in rows], found.slots.values())
        return rows, [row for row in rows if fresh.get(row.id) != row.status]

    def jobs(self, after: int, limit: int) -> tuple[list[OwnerRow], list[Miscounted]]:
        """Read the next owners, and which of their jobs count wrong."""
        with self._database.reading() as tx:
            rows = self.owners(tx, after, limit)
            return rows, _miscounted(tx, Snapshot(tx, [row.id for row in rows]), [row.id for row in rows])

    def active_jobs(self, after: int, limit: int) -> list[Active]:
        """Read jobs that have not ended, in the order of their owners."""
        with self._database.reading() as tx:
            return [Active(*row) for row in tx.run(ACTIVE_JOBS, after=after, limit=limit)]

    def mend_statuses(self, ids: Sequence[OwnerId]) -> int:
        """Write the status that the slots have; an owner without slots goes. Return how many were wrong."""

        def work(tx: Transaction) -> int:
            snapshot = Snapshot.locked(tx, ids)
            fresh = statuses(ids, snapshot.slots.values())
            wrong = {owner: status for owner, status in fresh.items() if snapshot.statuses[owner] != status}
            tx.run(sql.SET_STATUS, [[owner, str(status)] for owner, status in wrong.items()])
            return len(wrong) + len(tx.run(REMOVE_EMPTY, [[owner] for owner in ids if owner not in fresh]))

        return self._database.write(work, durable=True)

    def mend_jobs(self, ids: Sequence[OwnerId]) -> int:
        """Let jobs count the slots they have, and end where there are none; return how many were mended."""

        def work(tx: Transaction) -> int:
            snapshot = Snapshot.locked(tx, ids)
            wrong = _miscounted(tx, snapshot, ids)
            counting = [one for one in wrong if one.says]
            rest = {one.job: _rest(one, snapshot.of(one.owner)) for one in counting}
            rows = [[one.job, one.says - one.has, str(rest[one.job][0]), rest[one.job][1]] for one in counting]
            ended = {job for job, outcome in tx.run(sql.SETTLE, rows) if outcome is not None}
            known = [(one, snapshot.of(one.owner)) for one in counting if one.job in ended]
            record(tx, [_ended(one, slots) for one, slots in known if slots])
            again = tx.run(REOPEN, [[one.job, one.has] for one in wrong if not one.says])
            return len(counting) + len(again)

        return self._database.write(work, durable=True)

    def end_lost(self, ids: Sequence[str]) -> int:
        """End jobs whose owner is gone; return how many."""
        return self._database.write(lambda tx: len(tx.run(END_LOST, [[job] for job in ids])), durable=True)


def _miscounted(tx: Transaction, snapshot: Snapshot, ids: Sequence[OwnerId]) -> list[Miscounted]:
    """Compare the jobs of owners with their slots; one that ended counts nothing."""
    counting = {job: (owner, says) for owner, job, says in tx.run(COUNTING_JOBS, [[owner] for owner in ids])}
    unsettled: dict[JobId, list[Slot]] = {}
    for slot in snapshot.slots.values():
        if not slot.resting:
            unsettled.setdefault(slot.job, []).append(slot)
    found = [
        Miscounted(JobId(job), owner, says, has)
        for job, (owner, says) in counting.items()
        if says != (has := len(unsettled.get(JobId(job), ())))
    ]
    busy = {owner for owner, _ in counting.values()}
    idle = {job: some for job, some in unsettled.items() if job not in counting and some[0].owner_id not in busy}
    for (job,) in tx.run(ENDED_JOBS, [[job] for job in idle]):
        found.append(Miscounted(JobId(job), idle[JobId(job)][0].owner_id, 0, len(idle[JobId(job)])))
    return found


def _own(one: Miscounted, slots: Iterable[Slot]) -> list[Slot]:
    return [slot for slot in slots if slot.job == one.job]


def _rest(one: Miscounted, slots: Iterable[Slot]) -> tuple[Outcome, str]:
    """Tell how a job ended that has nothing left to do: whoever took all its slots came after it."""
    own = _own(one, slots)
    return (outcome_of(own) if own else Outcome.SUPERSEDED), results_of(own)


def _ended(one: Miscounted, slots: Sequence[Slot]) -> Event:
    outcome, results = _rest(one, slots)
    slot = next(iter(_own(one, slots) or slots))
    return job_event(Settlement(job=one.job, settled=one.says, outcome=outcome, results=results, slot=slot))
