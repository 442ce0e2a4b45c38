"""Two pages of a base: search, with the rank in each channel, and questions with cited answers."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Literal

from fastapi import APIRouter, Query
from fastapi.responses import HTMLResponse

from holdfast.api.bases import BaseName
from holdfast.service.schemas import Hit, Hits, ItemKind, Mode
from holdfast.web.highlight import highlight_words
from holdfast.web.render import CurrentPage, blank_row

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from holdfast.service.schemas import Base, Problem

router = APIRouter()

HIT_LIMITS = (5, 10, 20, 50)
MAX_FOLDERS = 200  # offered as a filter
MODES = (Mode.MIX, Mode.NAIVE, Mode.LOCAL, Mode.GLOBAL, Mode.HYBRID)

QueryText = Annotated[str, Query(max_length=10_000)]
BLANK_HIT = blank_row(Hit)


@router.get("/bases/{base}/search")
def search_page(
    context: CurrentPage,
    base: BaseName,
    q: QueryText = "",
    channel: Annotated[list[str] | None, Query(max_length=50)] = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 10,
    below: Annotated[int | Literal[""] | None, Query()] = None,
) -> HTMLResponse:
    service = context.service
    channels = service.authorization.library.searcher.channels
    base_info = service.bases.get(base)
    began = time.perf_counter()
    hits = (
        service.asking.search(base, q, limit=limit, channels=channel or None, below=[below] if below else ())
        if q.strip()
        else Hits()
    )
    took = (time.perf_counter() - began) * 1000
    folders = service.documents.list(base, kinds=[ItemKind.DIRECTORY, ItemKind.SITEMAP], size=MAX_FOLDERS).items
    return context.render(
        "search.html",
        base=base_info,
        q=q,
        hits=hits,
        took=took,
        best=_best_scores(hits),
        channels=channels,
        lacking=_unavailable_channels(base_info, channels),
        chosen_channels=channel or channels,
        limit=limit,
        limits=sorted({*HIT_LIMITS, limit}),
        below=below,
        folders=folders,
        documents=service.bases.counts(base).documents,
        marked=highlight_words,
        blank=BLANK_HIT,
    )


@router.get("/bases/{base}/ask")
def ask_page(context: CurrentPage, base: BaseName, q: QueryText = "", mode: Mode = Mode.MIX) -> HTMLResponse:
    """Show the form for questions. An answer may cost money, so opening a link never requests one."""
    return context.render("ask.html", base=context.service.bases.get(base), q=q, mode=mode, modes=MODES)


def _unavailable_channels(base: Base, channels: Collection[str]) -> dict[str, Problem | None]:
    """Return the channels that a base lacks, each with the reason; None if its settings do not include it."""
    return {one: base.not_enabled.get(one) for one in channels if one not in base.settings.indexes} | {
        one: reason for one, reason in base.not_enabled.items() if one in channels
    }


def _best_scores(hits: Iterable[Hit]) -> dict[str, float]:
    """Return the best score of each channel. Scales differ, so the page compares a score with its channel's best."""
    found: dict[str, float] = {}
    for hit in hits:
        for kind, one in hit.channels.items():
            found[kind] = max(found.get(kind, 0.0), one.score)
    return found
