"""The queue: running and waiting jobs in the order they are served, then ended jobs."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Literal

from fastapi import APIRouter, Query
from fastapi.responses import HTMLResponse

from holdfast.errors import UnknownJob
from holdfast.service.schemas import Job, Operation, Outcome, Status
from holdfast.web.render import CurrentPage, blank_row

if TYPE_CHECKING:
    from holdfast.service.local import LocalService

router = APIRouter()

PAGE_SIZE = 50
LONG_RUNNING_SHOWN = 10  # jobs, the longest-running first
PRIORITIES = range(10)
STATE_FILTERS = (
    Status.INDEXING,
    Status.QUEUED,
    Status.DELETING,
    Outcome.FAILED,
    Outcome.DEGRADED,
    Outcome.SUCCESS,
    Outcome.CANCELLED,
)
BLANK_JOB = blank_row(Job, subject="document", operation=Operation.INDEX, state=Status.QUEUED)


@router.get("/queue")
def queue_page(
    context: CurrentPage,
    base: Annotated[str, Query(max_length=200)] = "",
    state: Status | Outcome | Literal[""] = "",
    page: Annotated[int, Query(ge=1, le=1_000_000)] = 1,
    cursor: Annotated[str | None, Query(max_length=500)] = None,
) -> HTMLResponse:
    service, shown_base = context.service, context.resolve_base(base)
    found = service.jobs.list(
        shown_base,
        states=[state] if state else None,
        cursor=cursor,
        page=1 if cursor else page,  # behind the pages with numbers, `page` is only shown
        size=PAGE_SIZE,
    )
    jobs = replace(found, items=[_add_waiting_reasons(service, one) for one in found.items])
    queue = service.jobs.overview(shown_base)
    limit = queue.long_running_seconds
    long_running = service.jobs.list(shown_base, longer_than=limit, size=LONG_RUNNING_SHOWN).items if limit else []
    asked = {"base": shown_base or "", "state": state, "page": page, "size": PAGE_SIZE, "cursor": cursor}
    return context.render(
        "queue.html",
        found=jobs,
        queue=queue,
        long_running=long_running,
        blank=BLANK_JOB,
        chips=STATE_FILTERS,
        priorities=PRIORITIES,
        everywhere=service.authorization.caller.bases is None,
        asked=asked,
        data={"jobs": jobs, "queue": queue, "asked": asked, "everywhere": service.authorization.caller.bases is None},
    )


def _add_waiting_reasons(service: LocalService, job: Job) -> Job:
    """Add why a job is not running; lists of jobs do not contain it."""
    if job.outcome is None and job.progress is None:
        with suppress(UnknownJob):  # its base may be deleted by now
            return replace(job, waiting_for=service.jobs.get(job.id).waiting_for)
    return job
