"""The study cards of a base: the current set, the progress of the next one, and the cards."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import HTMLResponse

from holdfast.api.bases import BaseName
from holdfast.api.cards import MEDIA_TYPES
from holdfast.service.schemas import Card
from holdfast.web.render import CurrentPage, blank_row

router = APIRouter()

PAGE_SIZE = 25
QUESTIONS_INDEX = "questions"  # cards are made from this index
BLANK_CARD = blank_row(Card)


@router.get("/bases/{base}/cards")
def cards_page(
    context: CurrentPage, base: BaseName, cursor: Annotated[str | None, Query(max_length=30)] = None
) -> HTMLResponse:
    service = context.service
    base_info = service.bases.get(base)
    status = service.cards.status(base)
    found = service.cards.list(base, cursor=cursor, limit=PAGE_SIZE)
    wanted = QUESTIONS_INDEX in base_info.settings.indexes
    asked = {"cursor": cursor}
    return context.render(
        "cards.html",
        base=base_info,
        standing=status,
        found=found,
        wanted=wanted,
        hindrance=base_info.not_enabled.get(QUESTIONS_INDEX),
        forms=tuple(MEDIA_TYPES),
        blank=BLANK_CARD,
        asked=asked,
        data={
            "asked": asked,
            "limit": PAGE_SIZE,
            "status": status,
            "next": found.next_cursor,
            "possible": wanted and QUESTIONS_INDEX not in base_info.not_enabled,
        },
    )
