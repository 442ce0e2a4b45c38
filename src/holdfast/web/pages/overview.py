"""The overview of all bases, or the welcome page while there is no base."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import HTMLResponse

from holdfast.auth import Scope
from holdfast.service.schemas import Status
from holdfast.web.render import CurrentPage

router = APIRouter()

WINDOW_HOURS = (24, 24 * 7, 24 * 30)
STATUSES = (
    Status.SUCCESS,
    Status.INDEXING,
    Status.QUEUED,
    Status.DEGRADED,
    Status.FAILED,
    Status.NOT_INDEXED,
    Status.DELETING,
)


@router.get("/")
def overview_page(
    context: CurrentPage, hours: Annotated[int, Query(ge=1, le=24 * 30)] = WINDOW_HOURS[0]
) -> HTMLResponse:
    service = context.service
    bases = service.bases.list()
    caller = service.authorization.caller
    makes = caller.bases is None and caller.may(Scope.ADMIN)
    if not bases:
        return context.render("overview.html", makes=makes, limited=caller.bases is not None, scope=str(caller.scope))
    found = service.overview(hours)
    return context.render(
        "overview.html",
        found=found,
        counts={base.name: service.bases.counts(base.name) for base in bases},
        failed=[base for base in bases if base.problem],
        states=STATUSES,
        windows=WINDOW_HOURS,
        hours=hours,
        writes=caller.may(Scope.WRITE),
        makes=makes,
        data={"overview": found, "hours": hours},
    )
