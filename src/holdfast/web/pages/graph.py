"""The graph of a base: a list of its entities, which a script also draws, and what is known of one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Query
from fastapi.responses import HTMLResponse

from holdfast.api.bases import BaseName
from holdfast.errors import UnknownEntity
from holdfast.service.schemas import Entity
from holdfast.web.render import CurrentPage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.service.schemas import Node

router = APIRouter()

MAX_ENTITIES_DRAWN = 300  # entities at first
MAX_ENTITIES_LISTED = 100  # that begin with some words
MAX_COLOURED_KINDS = 6  # that have a colour of their own

EntityKey = Annotated[str, Query(max_length=500)]


@router.get("/bases/{base}/graph")
def graph_page(
    visit: CurrentPage,
    base: BaseName,
    text: Annotated[str, Query(max_length=200)] = "",
    around: EntityKey = "",
    entity: EntityKey = "",
    beside: EntityKey = "",
) -> HTMLResponse:
    """Show the graph of a base, or what stands around an entity; `beside` is the other end of a relation."""
    asking = visit.service.asking
    shelf = visit.service.bases.get(base)
    if "graph" not in shelf.settings.indexes or "graph" in shelf.not_enabled:
        return visit.render("graph.html", base=shelf, enabled=False)
    gone = ""
    try:
        view = asking.graph(base, around=around or None, depth=2, limit=MAX_ENTITIES_DRAWN)
    except UnknownEntity:  # nobody speaks of it any more
        gone, around = around, ""
        view = asking.graph(base, limit=MAX_ENTITIES_DRAWN)
    found = (
        asking.entities(base, text=text, limit=MAX_ENTITIES_LISTED) if text else [_to_entity(one) for one in view.nodes]
    )
    try:
        portrait = asking.entity(base, entity) if entity else None
    except UnknownEntity:
        gone, portrait = entity, None
    kinds = _assign_colours([*(one.kind for one in view.nodes), *(one.kind for one in found)])
    asked = {"text": text, "around": around, "entity": entity if portrait else "", "beside": beside}
    return visit.render(
        "graph.html",
        base=shelf,
        enabled=True,
        view=view,
        found=found,
        kinds=kinds,
        portrait=portrait,
        evidence=asking.evidence(base, entity, beside) if portrait and beside else [],
        made=_extraction_method(one.kind for one in view.nodes),
        gone=gone,
        asked=asked,
        counts=visit.service.bases.counts(base),
        data={"graph": view, "asked": asked, "kinds": kinds},
    )


def _to_entity(one: Node) -> Entity:
    return Entity(key=one.key, label=one.name, kind=one.kind, documents=one.documents)


def _assign_colours(kinds: Iterable[str]) -> dict[str, int]:
    """Give each of the most frequent kinds the number of its colour; what only rules have seen has none."""
    counted: dict[str, int] = {}
    for kind in kinds:
        if kind:
            counted[kind] = counted.get(kind, 0) + 1
    best = sorted(counted, key=lambda kind: (-counted[kind], kind))[:MAX_COLOURED_KINDS]
    return {kind: number for number, kind in enumerate(best, start=1)}


def _extraction_method(kinds: Iterable[str]) -> str:
    """Tell who has found the entities: only a language model gives them kinds."""
    seen = {bool(kind) for kind in kinds}
    return "both" if len(seen) > 1 else "model" if True in seen else "rules"
