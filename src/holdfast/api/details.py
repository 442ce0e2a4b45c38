"""`/bases/{base}/documents/{document}/…`: what is known of one document beside its text."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from holdfast.api.auth import Service
from holdfast.api.bases import BaseName
from holdfast.api.documents import DocumentId
from holdfast.service.schemas import Card, DocumentEntity, DocumentUsage, HistoryEntry, MissingChunk, Page

router = APIRouter(prefix="/bases/{base}/documents/{document}", tags=["documents"])


@router.get("/entities")
def list_document_entities(front: Service, base: BaseName, document: DocumentId) -> list[DocumentEntity]:
    """Return the entities that a document names, with the number of chunks that do, the most frequent first."""
    return front.dossiers.entities(base, document)


@router.get("/cards")
def list_document_cards(
    front: Service,
    base: BaseName,
    document: DocumentId,
    cursor: Annotated[str | None, Query(max_length=50)] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
) -> Page[Card]:
    """Return the questions that a document answers, each with its answer and the passage both come from."""
    return front.dossiers.cards(base, document, cursor=cursor, limit=limit)


@router.get("/missing")
def list_document_missing(
    front: Service, base: BaseName, document: DocumentId, limit: Annotated[int, Query(ge=1, le=500)] = 100
) -> list[MissingChunk]:
    """Return the chunks that indexes of a document lack and do not find, each with the reason, and how it begins."""
    return front.dossiers.missing(base, document, limit=limit)


@router.get("/usage")
def read_document_usage(front: Service, base: BaseName, document: DocumentId) -> DocumentUsage:
    """Tell what was paid for a document, and what it was spared because an answer was known."""
    return front.dossiers.usage(base, document)


@router.get("/history")
def read_document_history(
    front: Service,
    base: BaseName,
    document: DocumentId,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
) -> list[HistoryEntry]:
    """Return what happened to a document, newest first: requests and their ends, and the attempts of each index."""
    return front.dossiers.history(base, document, limit=limit)
