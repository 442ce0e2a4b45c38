"""`/duplicates`: requests that made no new work, and what they would have cost."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from holdfast.api.auth import Service
from holdfast.service.schemas import Page, RefusalCount, RefusedRequest

router = APIRouter(prefix="/duplicates", tags=["duplicates"])

BaseQuery = Annotated[str | None, Query(max_length=200, description="only of this base")]


@router.get("")
def list_duplicates(
    front: Service,
    base: BaseQuery = None,
    cursor: Annotated[str | None, Query(max_length=30)] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
) -> Page[RefusedRequest]:
    """Return refused requests, newest first: who asked, what stood in the way, what it would have cost."""
    return front.accounts.duplicates(base, cursor=cursor, limit=limit)


@router.get("/counts")
def count_duplicates(front: Service, base: BaseQuery = None) -> list[RefusalCount]:
    """Count refused requests by base, requester and reason, the most frequent first."""
    return front.accounts.duplicate_counts(base)
