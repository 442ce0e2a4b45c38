"""`/jobs`: what is under way, in which order, and what came of it."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from holdfast.api.auth import Service
from holdfast.api.idempotency import IdempotentRoute
from holdfast.api.long_poll import WaitSeconds, wait_until_settled
from holdfast.service.schemas import BulkSummary, Job, Page, QueueStats, Reply

router = APIRouter(prefix="/jobs", tags=["jobs"], route_class=IdempotentRoute)

JobId = Annotated[str, Path(description="the id of a job", max_length=200)]


class CancelJobsRequest(BaseModel):
    """Which jobs are meant."""

    model_config = ConfigDict(extra="forbid")

    base: str | None = Field(None, description="only of this base; null: of all", max_length=200)
    dry_run: bool = Field(False, description="count, and change nothing")


class RetryJobsRequest(CancelJobsRequest):
    """What is tried again."""

    degraded: bool = Field(False, description="also documents that lack something")


class PauseRequest(BaseModel):
    """What is paused."""

    model_config = ConfigDict(extra="forbid")

    base: str | None = Field(None, description="only this base; null: everything", max_length=200)
    stop: bool = Field(False, description="also call back what runs; it goes on after the pause")


class ResumeRequest(BaseModel):
    """What is resumed."""

    model_config = ConfigDict(extra="forbid")

    base: str | None = Field(None, description="only this base; null: everything", max_length=200)


class PriorityRequest(BaseModel):
    """When something is served."""

    model_config = ConfigDict(extra="forbid")

    priority: int = Field(ge=0, le=9, description="0 is served first, 9 last")


class PauseResponse(BaseModel):
    """Whether a pause began or ended."""

    changed: bool


@router.get("")
def list_jobs(
    front: Service,
    base: Annotated[str | None, Query(max_length=200)] = None,
    document: Annotated[int | None, Query(ge=1, lt=2**63, description="only of this document of the base")] = None,
    state: Annotated[list[str] | None, Query(description="queued, indexing, deleting, or an outcome")] = None,
    requester: Annotated[str | None, Query(max_length=200)] = None,
    cursor: Annotated[str | None, Query(max_length=500)] = None,
    page: Annotated[int, Query(ge=1, le=10_000)] = 1,
    page_size: Annotated[int, Query(ge=1, le=500)] = 50,
) -> Page[Job]:
    """Return jobs: the active ones in the order in which they are served, then those that ended, newest first."""
    return front.jobs.list(
        base, document=document, states=state, requester=requester, cursor=cursor, page=page, size=page_size
    )


@router.get("/overview")
def read_queue(
    front: Service,
    base: Annotated[str | None, Query(max_length=200)] = None,
    hours: Annotated[int, Query(ge=1, le=24 * 30)] = 24,
) -> QueueStats:
    """Tell how the queue does, within the last hours."""
    return front.jobs.overview(base, timedelta(hours=hours))


@router.get("/{job}")
async def get_job(front: Service, job: JobId, request: Request, wait: WaitSeconds = 0) -> Job:
    """Return a job, with how far it is and why it waits; with `wait`, when it has ended or the time is over."""
    return await wait_until_settled(request, partial(front.jobs.get, job), lambda found: found.ended, wait)


@router.post("/{job}:cancel", status_code=202)
def cancel_job(front: Service, job: JobId) -> Reply:
    """Cancel a job; what was served stays served."""
    return front.jobs.cancel(job)


@router.post("/{job}:retry", status_code=202)
def retry_job(front: Service, job: JobId) -> Reply:
    """Build what a job left failed or lacking, and nothing else."""
    return front.jobs.retry(job)


@router.post("/{job}:prioritise")
def prioritise_job(front: Service, job: JobId, wanted: PriorityRequest) -> Reply:
    """Give an active job another priority."""
    return front.jobs.prioritise(job, wanted.priority)


@router.post(":cancel")
def cancel_all_jobs(front: Service, wanted: CancelJobsRequest) -> BulkSummary:
    """Stop all: cancel every active job of a base, or of all; deletes go on."""
    return front.jobs.cancel_all(wanted.base, dry_run=wanted.dry_run)


@router.post(":retry")
def retry_all_failed(front: Service, wanted: RetryJobsRequest) -> BulkSummary:
    """Ask for all that failed once more."""
    return front.jobs.retry_all(wanted.base, degraded=wanted.degraded, dry_run=wanted.dry_run)


@router.post(":pause")
def pause_queue(front: Service, wanted: PauseRequest) -> PauseResponse:
    """Let nothing of a base, or nothing at all, begin."""
    return PauseResponse(changed=front.jobs.pause(wanted.base, stop=wanted.stop))


@router.post(":resume")
def resume_queue(front: Service, wanted: ResumeRequest) -> PauseResponse:
    """End a pause."""
    return PauseResponse(changed=front.jobs.resume(wanted.base))
