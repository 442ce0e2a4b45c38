"""The routes of `/jobs`: pauses, statistics of the queue, and the long poll for one job."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from pydantic import Field

from holdfast.api.auth import Service
from holdfast.api.idempotency import IdempotentRoute
from holdfast.api.long_poll import WaitSeconds, wait_until_settled
from holdfast.service.http_models import PauseResponse, RequestBody
from holdfast.service.routes import PATH_PARAMS
from holdfast.service.schemas import Job, QueueStats

router = APIRouter(prefix="/jobs", tags=["jobs"], route_class=IdempotentRoute)

JobId = Annotated[str, Path(**PATH_PARAMS["job"].limits)]


class ResumeRequest(RequestBody):
    """The base to resume."""

    base: str | None = Field(None, description="Only this base; null: all bases.", max_length=200)


class PauseRequest(ResumeRequest):
    """The base to pause."""

    stop: bool = Field(False, description="Also interrupt running work; it resumes after the pause.")


@router.get("/overview")
def read_queue(
    service: Service,
    base: Annotated[str | None, Query(max_length=200)] = None,
    hours: Annotated[int, Query(ge=1, le=24 * 30)] = 24,
) -> QueueStats:
    """Return statistics of the queue for the last hours."""
    return service.jobs.overview(base, timedelta(hours=hours))


@router.get("/{job}")
async def get_job(service: Service, job: JobId, request: Request, wait: WaitSeconds = 0) -> Job:
    """Return a job: its progress, and why it waits. With `wait`, respond when it has ended or the time is over."""
    return await wait_until_settled(request, partial(service.jobs.get, job), lambda found: found.ended, wait)


@router.post(":pause")
def pause_queue(service: Service, pause: PauseRequest) -> PauseResponse:
    """Pause a base, or all bases: workers start no new work."""
    return PauseResponse(changed=service.jobs.pause(pause.base, stop=pause.stop))


@router.post(":resume")
def resume_queue(service: Service, resume: ResumeRequest) -> PauseResponse:
    """Resume a paused base, or all bases."""
    return PauseResponse(changed=service.jobs.resume(resume.base))
