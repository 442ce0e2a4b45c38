"""The graph of a base: a list of entities, which a script also draws, and the details of one entity."""

from __future__ import annotations

from collections import Counter
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

MAX_ENTITIES_DRAWN = 300
MAX_ENTITIES_LISTED = 100  # for a text filter
MAX_COLOURED_KINDS = 6

EntityKey = Annotated[str, Query(max_length=500)]


@router.get("/bases/{base}/graph")
def graph_page(
    context: CurrentPage,
    base: BaseName,
    text: Annotated[str, Query(max_length=200)] = "",
    around: EntityKey = "",
    entity: EntityKey = "",
    beside: EntityKey = "",
) -> HTMLResponse:
    """Show the graph of a base, or the surroundings of an entity; `beside` is the other end of a relation."""
    asking = context.service.asking
    base_info = context.service.bases.get(base)
    if "graph" not in base_info.settings.indexes or "graph" in base_info.not_enabled:
        return context.render("graph.html", base=base_info, enabled=False)
    gone = ""
    try:
        view = asking.graph(base, around=around or None, depth=2, limit=MAX_ENTITIES_DRAWN)
    except UnknownEntity:  # no document mentions it any more
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
    return context.render(
        "graph.html",
        base=base_info,
        enabled=True,
        view=view,
        found=found,
        kinds=kinds,
        portrait=portrait,
        evidence=asking.evidence(base, entity, beside) if portrait and beside else [],
        made=_extraction_method(one.kind for one in view.nodes),
        gone=gone,
        asked=asked,
        counts=context.service.bases.counts(base),
        data={"graph": view, "asked": asked, "kinds": kinds},
    )


def _to_entity(one: Node) -> Entity:
    return Entity(key=one.key, label=one.name, kind=one.kind, documents=one.documents)


def _assign_colours(kinds: Iterable[str]) -> dict[str, int]:
    """Give the most frequent kinds a colour number. Entities found only by rules have no kind and no colour."""
    counts = Counter(kind for kind in kinds if kind)
    best = sorted(counts, key=lambda kind: (-counts[kind], kind))[:MAX_COLOURED_KINDS]
    return {kind: number for number, kind in enumerate(best, start=1)}


def _extraction_method(kinds: Iterable[str]) -> str:
    """Return what found the entities: `model`, `rules` or `both`. Only a language model gives them kinds."""
    seen = {bool(kind) for kind in kinds}
    return "both" if len(seen) > 1 else "model" if True in seen else "rules"
