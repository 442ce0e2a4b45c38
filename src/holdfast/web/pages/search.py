"""What a base is asked: a search that shows how each channel ranked, and questions with cited answers."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Literal

from fastapi import APIRouter, Query
from fastapi.responses import HTMLResponse

from holdfast.api.bases import Name
from holdfast.service.schemas import Hits, Kind, Mode
from holdfast.web.highlight import marked
from holdfast.web.render import Visiting

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from holdfast.service.schemas import Base, Hit, Problem

router = APIRouter()

LIMITS = (5, 10, 20, 50)
FOLDERS = 200  # that are offered to search in
MODES = (Mode.MIX, Mode.NAIVE, Mode.LOCAL, Mode.GLOBAL, Mode.HYBRID)

Asked = Annotated[str, Query(max_length=10_000)]
# What a script clones a hit from.
BLANK = {
    "rank": 0,
    "score": 0.0,
    "document": 0,
    "name": "",
    "chunk": 0,
    "generation": 0,
    "headings": [],
    "text": "",
    "channels": {},
}


@router.get("/bases/{base}/search")
def search_page(
    visit: Visiting,
    base: Name,
    q: Asked = "",
    channel: Annotated[list[str] | None, Query(max_length=50)] = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 10,
    below: Annotated[int | Literal[""] | None, Query()] = None,
) -> HTMLResponse:
    """Search a base."""
    front = visit.front
    channels = front.authorization.library.searching.channels
    shelf = front.bases.get(base)
    began = time.perf_counter()
    hits = (
        front.asking.search(base, q, limit=limit, channels=channel or None, below=[below] if below else ())
        if q.strip()
        else Hits()
    )
    took = (time.perf_counter() - began) * 1000
    folders = front.documents.list(base, kinds=[Kind.DIRECTORY, Kind.SITEMAP], size=FOLDERS).items
    return visit.paint(
        "search.html",
        base=shelf,
        q=q,
        hits=hits,
        took=took,
        best=_best(hits),
        channels=channels,
        lacking=_lacking(shelf, channels),
        chosen_channels=channel or channels,
        limit=limit,
        limits=sorted({*LIMITS, limit}),
        below=below,
        folders=folders,
        documents=front.bases.counts(base).documents,
        marked=marked,
        blank=BLANK,
    )


@router.get("/bases/{base}/ask")
def ask_page(visit: Visiting, base: Name, q: Asked = "", mode: Mode = Mode.MIX) -> HTMLResponse:
    """Show where to ask. An answer may cost something, so following a link never asks for one."""
    return visit.paint("ask.html", base=visit.front.bases.get(base), q=q, mode=mode, modes=MODES)


def _lacking(base: Base, channels: Collection[str]) -> dict[str, Problem | None]:
    """Return the channels that a base does not have, each with the reason, none where nobody asked for it."""
    return {one: base.not_enabled.get(one) for one in channels if one not in base.settings.indexes} | {
        one: reason for one, reason in base.not_enabled.items() if one in channels
    }


def _best(hits: Iterable[Hit]) -> dict[str, float]:
    """Return the best score of each channel: their scales differ, so each is shown beside its own best."""
    found: dict[str, float] = {}
    for hit in hits:
        for kind, one in hit.channels.items():
            found[kind] = max(found.get(kind, 0.0), one.score)
    return found
