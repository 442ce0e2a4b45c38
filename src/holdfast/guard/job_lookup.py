"""Reads a job by its id alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.clock import as_datetime
from holdfast.engine import SlotState
from holdfast.errors import UnknownOwner
from holdfast.guard.answers import STATE_OF_OUTCOME, STATE_OF_SLOT, JobState, JobStatus

if TYPE_CHECKING:
    from holdfast.clock import Moment
    from holdfast.engine import Slot
    from holdfast.engine.store import Job, SqlStore


def read_job(store: SqlStore, job: str) -> JobStatus:
    """Return a job with its progress and reports. Raises `UnknownJob`."""
    with store.database.shared_reading():
        found = store.job(job)
        details = store.job_details(job)
        slot = _find_slot(store, found)
    active = found.outcome is None
    return JobStatus(
        job=found.id,
        work=found.base,
        key=found.owner,
        generation=found.generation,
        state=_state(found, slot),
        requester=found.requester,
        project=details.project if details else "",
        outcome=found.outcome,
        progress=slot.progress if slot and active else None,
        counters=details.counters if details else {},
        partial=details.partial if details else None,
        result=details.result if details else None,
        attempt=slot.attempts if slot else 0,
        error=found.results.get(found.base, {}).get("error") or (slot.error_code if slot and active else None),
        tokens=details.tokens if details else 0,
        price=details.price if details else 0.0,
        created_at=_format(found.created_at),
        finished_at=_format(found.finished_at) if found.finished_at is not None else None,
    )


def _find_slot(store: SqlStore, job: Job) -> Slot | None:
    """Return the slot while it belongs to this job."""
    try:
        slot = store.owner(job.base, job.owner).slot(job.base)
    except UnknownOwner:
        return None
    return slot if slot is not None and slot.job == job.id else None


def _state(job: Job, slot: Slot | None) -> JobState:
    if job.outcome is not None:
        return STATE_OF_OUTCOME[job.outcome]
    return STATE_OF_SLOT.get(slot.state if slot else SlotState.QUEUED, JobState.QUEUED)


def _format(moment: Moment) -> str:
    return as_datetime(moment).isoformat().replace("+00:00", "Z")
