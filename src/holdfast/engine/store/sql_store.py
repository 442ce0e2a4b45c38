"""The complete store on SQLite or PostgreSQL."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from holdfast.clock import micros
from holdfast.engine.states import Status
from holdfast.engine.store import statements as sql
from holdfast.engine.store.adoption import AdoptionStore
from holdfast.engine.store.base import Owner
from holdfast.engine.store.job_details import JobDetailStore
from holdfast.engine.store.maintenance import MaintenanceStore
from holdfast.engine.store.queue_control import QueueControlStore
from holdfast.engine.store.queue_queries import QueueQueryStore
from holdfast.engine.store.rows import (
    OwnerRow,
    event_from_row,
    job_from_row,
    refusal_from_row,
    slot_from_joined_row,
)
from holdfast.engine.store.work_quotas import WorkQuotaStore
from holdfast.errors import UnknownJob, UnknownOwner, UnknownSlot

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.db import Transaction
    from holdfast.engine.slot import OwnerId, Ring, Slot
    from holdfast.engine.store.base import Job, LoggedEvent, Refusal


class SqlStore(WorkQuotaStore, JobDetailStore, AdoptionStore, QueueControlStore, QueueQueryStore, MaintenanceStore):
    """All verbs and reads. See `Store` for the contract with workers and reconcilers.

    Example:
        store = open_store("sqlite:///holdfast.db", rules=Rules(), clock=SystemClock())
        store.owner("handbook", "42").status
    """

    def owner(self, base: str, name: str) -> Owner:
        """Read an owner with its slots. Raises `UnknownOwner`."""
        with self.database.reading() as tx:
            rows = tx.run(sql.SELECT_OWNER, base=base, owner=name)
            if not rows:
                raise UnknownOwner(base, name)
            row = OwnerRow(*rows[0])
            slots = tuple(map(slot_from_joined_row, tx.run(sql.SELECT_SLOTS_OF_OWNER, base=base, owner=name)))
        return Owner(
            id=row.id,
            base=row.base,
            name=row.owner,
            generation=row.generation,
            fingerprint=row.fingerprint,
            status=Status(row.status),
            slots=slots,
        )

    def slot(self, base: str, name: str, kind: str) -> Slot:
        """Read one slot. Raises `UnknownOwner` or `UnknownSlot`."""
        slot = self.owner(base, name).slot(kind)
        if slot is None:
            raise UnknownSlot(base, name, kind)
        return slot

    def job(self, job: str) -> Job:
        """Read a job. Raises `UnknownJob`."""
        rows = self._read(sql.SELECT_JOB, job=job)
        if not rows:
            raise UnknownJob(job)
        return job_from_row(rows[0])

    def list_jobs_of_owner(self, owner: OwnerId, limit: int = 100) -> list[Job]:
        """Read the jobs of an owner, newest first."""
        return [job_from_row(row) for row in self._read(sql.SELECT_JOBS_OF_OWNER, owner_id=owner, limit=limit)]

    def list_jobs_of_rings(self, rings: Sequence[Ring]) -> list[Job]:
        """Read the jobs to which these rings belong."""
        rows = self._read(sql.SELECT_JOBS_OF_RINGS, [[ring.owner, ring.generation] for ring in rings])
        return [job_from_row(row) for row in rows]

    def list_unreported_jobs(self, base: str, limit: int, grace: timedelta = timedelta()) -> list[Job]:
        """Read jobs with `notify_on_end` that ended at least `grace` ago and were not reported, oldest first."""
        rows = self._read(sql.SELECT_UNREPORTED_JOBS, base=base, limit=limit, grace=micros(grace))
        return [job_from_row(row) for row in rows]

    def mark_reported(self, jobs: Sequence[Job]) -> None:
        if jobs:
            self.database.write(lambda tx: self.mark_reported_in(tx, [job.id for job in jobs]), durable=True)

    def mark_reported_in(self, tx: Transaction, jobs: Sequence[str]) -> None:
        tx.run(sql.MARK_JOBS_REPORTED, [[job] for job in jobs])

    def events(self, after: int = 0, limit: int = 1000) -> list[LoggedEvent]:
        """Read the event log after an id."""
        return [event_from_row(row) for row in self._read(sql.SELECT_EVENTS, after=after, limit=limit)]

    def refusals(self, after: int = 0, limit: int = 1000) -> list[Refusal]:
        """Read refused requests after an id."""
        return [refusal_from_row(row) for row in self._read(sql.SELECT_REFUSALS, after=after, limit=limit)]

    def counters(self) -> dict[str, int]:
        """Read the counters, such as `stale_write_rejected.*`."""
        return dict(self._read(sql.SELECT_COUNTERS))

    def close(self) -> None:
        self.database.close()
