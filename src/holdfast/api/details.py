"""`/bases/{base}/documents/{document}/…`: what is known of one document beside its text."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from holdfast.api.auth import Front
from holdfast.api.bases import Name
from holdfast.api.documents import Id
from holdfast.service.schemas import Card, Cost, Happening, Mentioned, Missing, Page

router = APIRouter(prefix="/bases/{base}/documents/{document}", tags=["documents"])


@router.get("/entities")
def list_document_entities(front: Front, base: Name, document: Id) -> list[Mentioned]:
    """Return the entities that a document names, with the number of chunks that do, the most frequent first."""
    return front.dossiers.entities(base, document)


@router.get("/cards")
def list_document_cards(
    front: Front,
    base: Name,
    document: Id,
    cursor: Annotated[str | None, Query(max_length=50)] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
) -> Page[Card]:
    """Return the questions that a document answers, each with its answer and the passage both come from."""
    return front.dossiers.cards(base, document, cursor=cursor, limit=limit)


@router.get("/missing")
def list_document_missing(
    front: Front, base: Name, document: Id, limit: Annotated[int, Query(ge=1, le=500)] = 100
) -> list[Missing]:
    """Return the chunks that indexes of a document lack and do not find, each with the reason, and how it begins."""
    return front.dossiers.missing(base, document, limit=limit)


@router.get("/usage")
def read_document_usage(front: Front, base: Name, document: Id) -> Cost:
    """Tell what was paid for a document, and what it was spared because an answer was known."""
    return front.dossiers.usage(base, document)


@router.get("/history")
def read_document_history(
    front: Front,
    base: Name,
    document: Id,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
) -> list[Happening]:
    """Return what happened to a document, newest first: requests and their ends, and the attempts of each index."""
    return front.dossiers.history(base, document, limit=limit)
