"""The route of `/bases/{base}/cards/export`: study cards as a file."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter
from fastapi.responses import Response

from holdfast.api.auth import Service
from holdfast.api.bases import BaseName

router = APIRouter(prefix="/bases/{base}", tags=["cards"])

MEDIA_TYPES = {"csv": "text/csv", "json": "application/json", "anki": "text/plain"}
TEXT_SCHEMA = {"type": "string"}
CARDS_SCHEMA = {"type": "array", "items": {"type": "object"}}


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
def export_cards(service: Service, base: BaseName, form: Literal["csv", "json", "anki"] = "csv") -> Response:
    """Return all cards as a file for a spreadsheet, a program or Anki."""
    name = "cards.txt" if form == "anki" else f"cards.{form}"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Response(service.cards.export(base, form), media_type=MEDIA_TYPES[form], headers=headers)
