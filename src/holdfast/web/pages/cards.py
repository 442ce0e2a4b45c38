"""The study cards of a base: which set is shown, how far the next one is, and the cards themselves."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import HTMLResponse

from holdfast.api.bases import BaseName
from holdfast.api.cards import MEDIA_TYPES
from holdfast.web.render import CurrentPage

router = APIRouter()

PAGE_SIZE = 25
QUESTIONS_INDEX = "questions"  # the index that cards are made of


# What a script clones a card from.
BLANK_CARD = {
    "place": "",
    "question": "",
    "answer": "",
    "document": "",
    "name": "",
    "chunk": "",
    "headings": [],
    "passage": "",
}


@router.get("/bases/{base}/cards")
def cards_page(
    visit: CurrentPage, base: BaseName, cursor: Annotated[str | None, Query(max_length=30)] = None
) -> HTMLResponse:
    """Show the study cards of a base."""
    front = visit.service
    shelf = front.bases.get(base)
    status = front.cards.status(base)
    found = front.cards.list(base, cursor=cursor, limit=PAGE_SIZE)
    wanted = QUESTIONS_INDEX in shelf.settings.indexes
    asked = {"cursor": cursor}
    return visit.render(
        "cards.html",
        base=shelf,
        standing=status,
        found=found,
        wanted=wanted,
        hindrance=shelf.not_enabled.get(QUESTIONS_INDEX),
        forms=tuple(MEDIA_TYPES),
        blank=BLANK_CARD,
        asked=asked,
        data={
            "asked": asked,
            "limit": PAGE_SIZE,
            "status": status,
            "next": found.next_cursor,
            "possible": wanted and QUESTIONS_INDEX not in shelf.not_enabled,
        },
    )
