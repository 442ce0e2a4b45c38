"""The table of documents of a base, or of one folder in it."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query
from fastapi.responses import HTMLResponse

from holdfast.api.bases import BaseName
from holdfast.service.schemas import Document, ItemKind, Status
from holdfast.web.render import CurrentPage, blank_row

router = APIRouter()

PAGE_SIZES = (25, 50, 100, 200)
STATUS_FILTERS = (
    Status.INDEXING,
    Status.QUEUED,
    Status.SUCCESS,
    Status.DEGRADED,
    Status.FAILED,
    Status.NOT_INDEXED,
    Status.DELETING,
)
BLANK_DOCUMENT = blank_row(Document, kind=ItemKind.FILE, status=Status.NOT_INDEXED)


@router.get("/bases/{base}/documents")
def documents_page(
    context: CurrentPage,
    base: BaseName,
    status: Status | Literal[""] = "",
    kind: ItemKind | Literal[""] = "",
    text: Annotated[str, Query(max_length=200)] = "",
    parent: Annotated[int | None, Query(ge=0, lt=2**63)] = None,
    page: Annotated[int, Query(ge=1, le=100_000)] = 1,
    size: Annotated[int, Query(ge=1, le=500)] = 50,
    cursor: Annotated[str | None, Query(max_length=500)] = None,
) -> HTMLResponse:
    service = context.service
    deleting = status == Status.DELETING
    found = service.documents.list(
        base,
        parent=parent,
        states=[status] if status and not deleting else None,
        kinds=[kind] if kind else None,
        text=text or None,
        deleting=deleting,
        cursor=cursor,
        page=1 if cursor else page,  # behind the pages with numbers, `page` is only shown
        size=size,
    )
    asked = {
        "status": status,
        "kind": kind,
        "text": text,
        "parent": parent,
        "page": page,
        "size": size,
        "cursor": cursor,
    }
    return context.render(
        "documents.html",
        base=service.bases.get(base),
        found=found,
        counts=service.bases.counts(base),
        blank=BLANK_DOCUMENT,
        chips=STATUS_FILTERS,
        kinds=list(ItemKind),
        sizes=PAGE_SIZES,
        asked=asked,
        folder=service.documents.get(base, parent) if parent else None,
        data={"documents": found, "asked": asked},
    )
