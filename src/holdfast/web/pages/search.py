"""What a base is asked: a search that shows how each channel ranked, and questions with cited answers."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Literal

from fastapi import APIRouter, Query
from fastapi.responses import HTMLResponse

from holdfast.api.bases import BaseName
from holdfast.service.schemas import Hits, ItemKind, Mode
from holdfast.web.highlight import highlight_words
from holdfast.web.render import CurrentPage

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from holdfast.service.schemas import Base, Hit, Problem

router = APIRouter()

HIT_LIMITS = (5, 10, 20, 50)
MAX_FOLDERS = 200  # that are offered to search in
MODES = (Mode.MIX, Mode.NAIVE, Mode.LOCAL, Mode.GLOBAL, Mode.HYBRID)

QueryText = Annotated[str, Query(max_length=10_000)]
# What a script clones a hit from.
BLANK_HIT = {
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
    visit: CurrentPage,
    base: BaseName,
    q: QueryText = "",
    channel: Annotated[list[str] | None, Query(max_length=50)] = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 10,
    below: Annotated[int | Literal[""] | None, Query()] = None,
) -> HTMLResponse:
    """Search a base."""
    front = visit.service
    channels = front.authorization.library.searcher.channels
    shelf = front.bases.get(base)
    began = time.perf_counter()
    hits = (
        front.asking.search(base, q, limit=limit, channels=channel or None, below=[below] if below else ())
        if q.strip()
        else Hits()
    )
    took = (time.perf_counter() - began) * 1000
    folders = front.documents.list(base, kinds=[ItemKind.DIRECTORY, ItemKind.SITEMAP], size=MAX_FOLDERS).items
    return visit.render(
        "search.html",
        base=shelf,
        q=q,
        hits=hits,
        took=took,
        best=_best_scores(hits),
        channels=channels,
        lacking=_unavailable_channels(shelf, channels),
        chosen_channels=channel or channels,
        limit=limit,
        limits=sorted({*HIT_LIMITS, limit}),
        below=below,
        folders=folders,
        documents=front.bases.counts(base).documents,
        marked=highlight_words,
        blank=BLANK_HIT,
    )


@router.get("/bases/{base}/ask")
def ask_page(visit: CurrentPage, base: BaseName, q: QueryText = "", mode: Mode = Mode.MIX) -> HTMLResponse:
    """Show where to ask. An answer may cost something, so following a link never asks for one."""
    return visit.render("ask.html", base=visit.service.bases.get(base), q=q, mode=mode, modes=MODES)


def _unavailable_channels(base: Base, channels: Collection[str]) -> dict[str, Problem | None]:
    """Return the channels that a base does not have, each with the reason, none where nobody asked for it."""
    return {one: base.not_enabled.get(one) for one in channels if one not in base.settings.indexes} | {
        one: reason for one, reason in base.not_enabled.items() if one in channels
    }


def _best_scores(hits: Iterable[Hit]) -> dict[str, float]:
    """Return the best score of each channel: their scales differ, so each is shown beside its own best."""
    found: dict[str, float] = {}
    for hit in hits:
        for kind, one in hit.channels.items():
            found[kind] = max(found.get(kind, 0.0), one.score)
    return found
