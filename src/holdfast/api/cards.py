"""`/bases/{base}/cards`: study cards, made of a whole base."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query
from fastapi.responses import Response

from holdfast.api.auth import Service
from holdfast.api.bases import BaseName
from holdfast.api.idempotency import IdempotentRoute
from holdfast.service.schemas import Card, CardSetStatus, Page, Reply

router = APIRouter(prefix="/bases/{base}", tags=["cards"], route_class=IdempotentRoute)

MEDIA_TYPES = {"csv": "text/csv", "json": "application/json", "anki": "text/plain"}
TEXT_SCHEMA = {"type": "string"}
CARDS_SCHEMA = {"type": "array", "items": {"type": "object"}}


@router.get("/cards")
def list_cards(
    front: Service,
    base: BaseName,
    cursor: Annotated[str | None, Query(max_length=30)] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
) -> Page[Card]:
    """Return study cards, each with the passage it comes from."""
    return front.cards.list(base, cursor=cursor, limit=limit)


@router.get("/cards/status")
def read_cards(front: Service, base: BaseName) -> CardSetStatus:
    """Tell which set of cards is served, and how far the next one is."""
    return front.cards.status(base)


@router.post("/cards:generate", status_code=202)
def generate_cards(front: Service, base: BaseName) -> Reply:
    """Make a new set of cards; the old one is served until the new one is complete."""
    return front.cards.generate(base)


@router.post("/cards:cancel", status_code=202)
def cancel_cards(front: Service, base: BaseName) -> Reply:
    """Stop making cards."""
    return front.cards.cancel(base)


@router.get(
    "/cards/export",
    response_class=Response,
    responses={
        200: {
            "content": {
                type_: {"schema": CARDS_SCHEMA if form == "json" else TEXT_SCHEMA}
                for form, type_ in MEDIA_TYPES.items()
            }
        }
    },
)
def export_cards(front: Service, base: BaseName, form: Literal["csv", "json", "anki"] = "csv") -> Response:
    """Return all cards as a file for a spreadsheet, a program or Anki."""
    name = "cards.txt" if form == "anki" else f"cards.{form}"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Response(front.cards.export(base, form), media_type=MEDIA_TYPES[form], headers=headers)
