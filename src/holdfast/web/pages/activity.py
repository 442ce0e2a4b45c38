"""The activity page, with three views: events, refused duplicates, and deliveries of webhooks."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter, Query
from fastapi.responses import HTMLResponse

from holdfast.auth import Scope
from holdfast.service.schemas import Delivery, Event, Operation, RefusedRequest
from holdfast.web.render import CurrentPage, blank_row

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.service.local import LocalService

router = APIRouter()

PAGE_SIZE = 50
VIEWS = ("events", "duplicates", "deliveries")
TOPICS = ("job", "index", "document", "base", "cards", "queue", "webhook")
Topic = Literal["job", "index", "document", "base", "cards", "queue", "webhook", ""]

BLANK_ROWS = {
    "events": blank_row(Event, type="job.accepted", kind=""),
    "duplicates": blank_row(RefusedRequest, operation=Operation.INDEX),
    "deliveries": blank_row(Delivery, type="job.accepted", state="waiting"),
}


@router.get("/activity")
def activity_page(
    context: CurrentPage,
    base: Annotated[str, Query(max_length=200)] = "",
    view: Literal["events", "duplicates", "deliveries"] = "events",
    topic: Topic = "",
    webhook: Annotated[int | None, Query(ge=1, lt=2**63)] = None,
    cursor: Annotated[str | None, Query(max_length=50)] = None,
) -> HTMLResponse:
    service = context.service
    caller = service.authorization.caller
    allowed = caller.may(Scope.ADMIN) and caller.bases is None
    shown: dict[str, Any] = {"found": None, "counts": [], "webhooks": [], "names": {}}
    if view == "events":
        events = service.events.list(base or None, topics=[topic] if topic else None, cursor=cursor, limit=PAGE_SIZE)
        shown |= {
            "found": events,
            "names": _document_names(service, ((one.base, one.document) for one in events.items)),
        }
    elif view == "duplicates":
        base = context.resolve_base(base) or ""
        duplicates = service.accounts.duplicates(base or None, cursor=cursor, limit=PAGE_SIZE)
        ids = {one.name: one.id for one in service.bases.list()}
        names = _document_names(service, ((ids.get(one.base), one.document) for one in duplicates.items))
        shown |= {"found": duplicates, "names": names, "counts": service.accounts.duplicate_counts(base or None)}
    elif allowed:
        webhooks = service.webhooks.list()
        webhook = webhook or next((one.id for one in webhooks), None)
        deliveries = None if webhook is None else service.webhooks.deliveries(webhook, cursor=cursor, limit=PAGE_SIZE)
        shown |= {"webhooks": webhooks, "found": deliveries}
    asked = {"view": view, "base": base, "topic": topic, "webhook": webhook, "cursor": cursor}
    found = shown["found"]
    return context.render(
        "activity.html",
        views=VIEWS,
        topics=TOPICS,
        blank=BLANK_ROWS[view],
        allowed=allowed,
        everywhere=caller.bases is None or view == "events",
        asked=asked,
        data={"asked": asked, "limit": PAGE_SIZE, "names": shown["names"], "next": found and found.next_cursor},
        **shown,
    )


def _document_names(service: LocalService, about: Iterable[tuple[int | None, int | None]]) -> dict[int, str | None]:
    """Return the names of documents by id; None for deleted ones."""
    wanted: dict[int, set[int]] = defaultdict(set)
    for base, document in about:
        if base is not None and document is not None:
            wanted[base].add(document)
    bases = {one.id: one.name for one in service.bases.list()}
    found: dict[int, str | None] = {document: None for some in wanted.values() for document in some}
    for base, some in wanted.items():
        if base in bases:
            found |= {one.id: one.name for one in service.documents.statuses(bases[base], some)}
    return found
