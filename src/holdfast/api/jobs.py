"""`/jobs`: pauses, the numbers of the queue, and the long poll for one job."""

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
    """What to resume."""

    base: str | None = Field(None, description="only this base; null: everything", max_length=200)


class PauseRequest(ResumeRequest):
    """What to pause."""

    stop: bool = Field(False, description="also call back what runs; it goes on after the pause")


@router.get("/overview")
def read_queue(
    service: Service,
    base: Annotated[str | None, Query(max_length=200)] = None,
    hours: Annotated[int, Query(ge=1, le=24 * 30)] = 24,
) -> QueueStats:
    """Return numbers about the queue within the last hours."""
    return service.jobs.overview(base, timedelta(hours=hours))


@router.get("/{job}")
async def get_job(service: Service, job: JobId, request: Request, wait: WaitSeconds = 0) -> Job:
    """Return a job with its progress and why it waits; with `wait`, respond when it has ended or the time is over."""
    return await wait_until_settled(request, partial(service.jobs.get, job), lambda found: found.ended, wait)


@router.post(":pause")
def pause_queue(service: Service, pause: PauseRequest) -> PauseResponse:
    """Start no new work in a base, or in all bases."""
    return PauseResponse(changed=service.jobs.pause(pause.base, stop=pause.stop))


@router.post(":resume")
def resume_queue(service: Service, resume: ResumeRequest) -> PauseResponse:
    """End a pause."""
    return PauseResponse(changed=service.jobs.resume(resume.base))
