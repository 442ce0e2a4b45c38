"""What happened, what was refused, and who was told: three views of one page."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter, Query
from fastapi.responses import HTMLResponse

from holdfast.auth import Scope
from holdfast.web.render import CurrentPage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.service.local import LocalService

router = APIRouter()

PAGE_SIZE = 50
VIEWS = ("events", "duplicates", "deliveries")
TOPICS = ("job", "index", "document", "base", "cards", "queue", "webhook")
Topic = Literal["job", "index", "document", "base", "cards", "queue", "webhook", ""]

# What a script clones a row from.
BLANK_ROWS = {
    "events": {"id": "", "type": "job.accepted", "at": None, "base": None, "document": None, "owner": "", "kind": "",
               "job": None, "data": {}},
    "duplicates": {"id": "", "at": None, "base": "", "document": None, "subject": "", "operation": "index",
                   "verdict": "joined", "reason": "", "job": None, "requester": "", "cost": 0},
    "deliveries": {"id": "", "type": "job.accepted", "state": "waiting", "attempts": 0, "status": None, "reason": None,
                   "created_at": None, "tried_at": None, "next_at": None},
}  # fmt: skip


@router.get("/activity")
def activity_page(
    visit: CurrentPage,
    base: Annotated[str, Query(max_length=200)] = "",
    view: Literal["events", "duplicates", "deliveries"] = "events",
    topic: Topic = "",
    webhook: Annotated[int | None, Query(ge=1, lt=2**63)] = None,
    cursor: Annotated[str | None, Query(max_length=50)] = None,
) -> HTMLResponse:
    """Show a view of what happened."""
    front = visit.service
    caller = front.authorization.caller
    allowed = caller.may(Scope.ADMIN) and caller.bases is None
    shown: dict[str, Any] = {"found": None, "counts": [], "webhooks": [], "names": {}}
    if view == "events":
        told = front.events.list(base or None, topics=[topic] if topic else None, cursor=cursor, limit=PAGE_SIZE)
        shown |= {"found": told, "names": _document_names(front, ((one.base, one.document) for one in told.items))}
    elif view == "duplicates":
        base = visit.resolve_base(base) or ""
        refused = front.accounts.duplicates(base or None, cursor=cursor, limit=PAGE_SIZE)
        ids = {one.name: one.id for one in front.bases.list()}
        names = _document_names(front, ((ids.get(one.base), one.document) for one in refused.items))
        shown |= {"found": refused, "names": names, "counts": front.accounts.duplicate_counts(base or None)}
    elif allowed:
        hooks = front.webhooks.list()
        webhook = webhook or next((one.id for one in hooks), None)
        sent = None if webhook is None else front.webhooks.deliveries(webhook, cursor=cursor, limit=PAGE_SIZE)
        shown |= {"webhooks": hooks, "found": sent}
    asked = {"view": view, "base": base, "topic": topic, "webhook": webhook, "cursor": cursor}
    found = shown["found"]
    return visit.render(
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


def _document_names(front: LocalService, about: Iterable[tuple[int | None, int | None]]) -> dict[int, str | None]:
    """Return what documents of bases are called; None for those that are gone."""
    wanted: dict[int, set[int]] = defaultdict(set)
    for base, document in about:
        if base is not None and document is not None:
            wanted[base].add(document)
    bases = {one.id: one.name for one in front.bases.list()}
    found: dict[int, str | None] = {document: None for some in wanted.values() for document in some}
    for base, some in wanted.items():
        if base in bases:
            found |= {one.id: one.name for one in front.documents.statuses(bases[base], some)}
    return found
