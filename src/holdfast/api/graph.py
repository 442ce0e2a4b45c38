"""`/bases/{base}/graph`: the graph of a base, to be drawn and asked for its evidence."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from holdfast.api.auth import Service
from holdfast.api.bases import BaseName
from holdfast.service.schemas import GraphView, ServedPassage

router = APIRouter(prefix="/bases/{base}/graph", tags=["search"])

EntityKey = Annotated[str, Query(min_length=1, max_length=500, description="the key of an entity")]


@router.get("")
def draw_graph(
    front: Service,
    base: BaseName,
    around: Annotated[str | None, Query(max_length=500, description="only what is near the entity of this key")] = None,
    depth: Annotated[int, Query(ge=1, le=3, description="how many steps away from it")] = 1,
    limit: Annotated[int, Query(ge=1, le=1000, description="entities, at most")] = 300,
) -> GraphView:
    """Return the entities that most documents speak of with what joins them, or what stands around one of them."""
    return front.asking.graph(base, around=around, depth=depth, limit=limit)


@router.get("/edges")
def list_evidence(
    front: Service,
    base: BaseName,
    source: EntityKey,
    target: EntityKey,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
) -> list[ServedPassage]:
    """Return the passages that speak of two entities, those first in which a relation between them was found."""
    return front.asking.evidence(base, source, target, limit=limit)
