"""The study cards of a base: which set is shown, how far the next one is, and the cards themselves."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import HTMLResponse

from holdfast.api.bases import Name
from holdfast.api.cards import TYPES
from holdfast.web.render import Visiting

router = APIRouter()

LIMIT = 25
QUESTIONS = "questions"  # the index that cards are made of


# What a script clones a card from.
BLANK = {
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
def cards_page(visit: Visiting, base: Name, cursor: Annotated[str | None, Query(max_length=30)] = None) -> HTMLResponse:
    """Show the study cards of a base."""
    front = visit.front
    shelf = front.bases.get(base)
    status = front.cards.status(base)
    found = front.cards.list(base, cursor=cursor, limit=LIMIT)
    wanted = QUESTIONS in shelf.settings.indexes
    asked = {"cursor": cursor}
    return visit.paint(
        "cards.html",
        base=shelf,
        standing=status,
        found=found,
        wanted=wanted,
        hindrance=shelf.not_enabled.get(QUESTIONS),
        forms=tuple(TYPES),
        blank=BLANK,
        asked=asked,
        data={
            "asked": asked,
            "limit": LIMIT,
            "status": status,
            "next": found.next_cursor,
            "possible": wanted and QUESTIONS not in shelf.not_enabled,
        },
    )
