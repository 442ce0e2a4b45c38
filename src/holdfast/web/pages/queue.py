"""The queue: what is served and what waits, in that order, then what ended."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter, Query
from fastapi.responses import HTMLResponse

from holdfast.errors import UnknownJob
from holdfast.service.schemas import Outcome, Status
from holdfast.web.render import CurrentPage

if TYPE_CHECKING:
    from holdfast.service.local import LocalService
    from holdfast.service.schemas import Job

router = APIRouter()

PAGE_SIZE = 50
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


# What a script clones a row from.
BLANK_JOB: dict[str, Any] = {
    "id": "",
    "base": "",
    "document": None,
    "name": "",
    "subject": "document",
    "operation": "index",
    "requester": "",
    "priority": 5,
    "state": Status.QUEUED,
    "outcome": None,
    "created_at": None,
    "finished_at": None,
    "results": {},
    "progress": None,
    "waiting_for": [],
}


@router.get("/queue")
def queue_page(
    visit: CurrentPage,
    base: Annotated[str, Query(max_length=200)] = "",
    state: Status | Outcome | Literal[""] = "",
    page: Annotated[int, Query(ge=1, le=10_000)] = 1,
) -> HTMLResponse:
    """Show the queue."""
    front, meant = visit.service, visit.resolve_base(base)
    found = front.jobs.list(meant, states=[state] if state else None, page=page, size=PAGE_SIZE)
    jobs = replace(found, items=[_add_waiting_reasons(front, one) for one in found.items])
    queue = front.jobs.overview(meant)
    asked = {"base": meant or "", "state": state, "page": page, "size": PAGE_SIZE}
    return visit.render(
        "queue.html",
        found=jobs,
        queue=queue,
        blank=BLANK_JOB,
        chips=STATE_FILTERS,
        priorities=PRIORITIES,
        everywhere=front.authorization.caller.bases is None,
        asked=asked,
        data={"jobs": jobs, "queue": queue, "asked": asked, "everywhere": front.authorization.caller.bases is None},
    )


def _add_waiting_reasons(front: LocalService, job: Job) -> Job:
    """Add why a job is not worked on now; lists do not tell it."""
    if job.outcome is None and job.progress is None:
        with suppress(UnknownJob):  # its base was deleted meanwhile
            return replace(job, waiting_for=front.jobs.get(job.id).waiting_for)
    return job
