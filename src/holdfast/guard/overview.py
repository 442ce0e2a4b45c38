"""What runs, what ended and what was refused, for the commands and the page of a guard."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from holdfast.clock import Moment, as_datetime
from holdfast.engine.store import JobFilter
from holdfast.errors import BadRequest
from holdfast.guard.answers import JobState, Plain

if TYPE_CHECKING:
    from holdfast.engine.store import ListedJob
    from holdfast.guard.guard import Guard

DAY = timedelta(days=1)
# The words of the store for each of ours.
STORED_STATES = {
    JobState.QUEUED: {"queued"},
    JobState.RUNNING: {"indexing"},
    JobState.SUCCEEDED: {"success", "degraded"},
    JobState.FAILED: {"failed"},
    JobState.CANCELLED: {"cancelled"},
    JobState.SUPERSEDED: {"superseded"},
    JobState.DELETED: {"deleted", "deleting"},
}
STATES = {stored: state for state, many in STORED_STATES.items() for stored in many}


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkSummary(Plain):
    """One work: its jobs now, and its jobs and refused requests of the last 24 hours."""

    work: str
    queued: int
    running: int
    succeeded: int
    failed: int
    refused: int  # of all time that is kept
    saved: float  # estimated cost of the refused requests
    oldest_queued: str | None  # in UTC, as ISO 8601
    paused: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLine(Plain):
    """A job in a list."""

    job: str
    work: str
    key: str
    state: JobState
    operation: str
    requester: str
    done: int
    total: int
    created_at: str
    finished_at: str | None
    error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusalLine(Plain):
    """A request that started no work."""

    at: str
    work: str
    key: str
    reason: str
    requester: str
    cost: float
    job: str | None  # that already did this work


def summarise_works(guard: Guard) -> list[WorkSummary]:
    """Return a summary of each work that is registered in this process."""
    with guard.store.database.shared_reading():
        return [_summarise(guard, work) for work in guard.works]


def list_jobs(guard: Guard, work: str | None = None, state: str | None = None, limit: int = 50) -> list[JobLine]:
    """Return active jobs in the order of the queue, then ended jobs, newest first."""
    states = None if state is None else _parse_state(state)
    found = guard.store.list_jobs(JobFilter(base=work, states=states), size=limit)
    return [_make_line(listed) for listed in found.jobs]


def list_refusals(guard: Guard, work: str | None = None, key: str | None = None, limit: int = 50) -> list[RefusalLine]:
    """Return requests that started no work, newest first."""
    return [
        RefusalLine(
            at=_format(one.at),
            work=one.base,
            key=one.owner,
            reason=one.reason,
            requester=one.requester,
            cost=one.cost,
            job=one.job,
        )
        for one in guard.store.list_refusals(work, key, limit=limit)
    ]


def _summarise(guard: Guard, work: str) -> WorkSummary:
    found = guard.store.overview(work, DAY)
    refused = guard.store.count_refusals(work)
    return WorkSummary(
        work=work,
        queued=found.active.get("queued", 0),
        running=found.active.get("indexing", 0),
        succeeded=found.ended.get("success", 0) + found.ended.get("degraded", 0),
        failed=found.ended.get("failed", 0),
        refused=sum(one.times for one in refused),
        saved=sum(one.cost for one in refused),
        oldest_queued=_format(found.oldest_queued) if found.oldest_queued is not None else None,
        paused=any(pause.base in ("", work) for pause in found.pauses),
    )


def _parse_state(state: str) -> frozenset[str]:
    known = {str(one): stored for one, stored in STORED_STATES.items()}
    if state not in known:
        raise BadRequest("guard_state_unknown", state=state, known=", ".join(known))
    return frozenset(known[state])


def _make_line(listed: ListedJob) -> JobLine:
    job, progress = listed.job, listed.progress
    return JobLine(
        job=job.id,
        work=job.base,
        key=job.owner,
        state=STATES[listed.state],
        operation=str(job.operation),
        requester=job.requester,
        done=progress.done if progress else 0,
        total=progress.total if progress else 0,
        created_at=_format(job.created_at),
        finished_at=_format(job.finished_at) if job.finished_at is not None else None,
        error=job.results.get(job.base, {}).get("error"),
    )


def _format(moment: Moment) -> str:
    return as_datetime(moment).isoformat(timespec="seconds").replace("+00:00", "Z")
