"""What one chunk adds to the graph: the names that rules see in it, and what a language model found, under one key.

It depends on the chunk and on the model's answer alone, so it is the same whenever and by whomever it is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.content.names import defined, key, names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.catalog import Piece
    from holdfast.indexes.graph.extraction import Extraction

NAMED = "named"  # the role of a name that a chunk mentions


class Rows(NamedTuple):
    """Cells ready to be written, by table."""

    names: list[list[Any]]  # recipe, chunk, key, role, label, kind, description
    relations: list[list[Any]]  # recipe, chunk, source, target, label, description
    changes: list[list[Any]]  # recipe, key, other, chunk: of what something new is said


def by_rules(recipe: int, piece: Piece) -> list[list[Any]]:
    """Return what a chunk defines and names, each key once: recipe, chunk, key, role, label."""
    title = piece.headings[0] if piece.headings else ""
    rows = [[one.key, str(one.source), one.text] for one in defined(piece.text, title=title, first=piece.opening)]
    known = {row[0] for row in rows}
    rows += [[one.key, NAMED, one.text] for one in names(piece.text) if one.key not in known]
    return [[recipe, piece.chunk, *row] for row in rows]


def by_model(recipe: int, piece: Piece, found: Extraction) -> Rows:
    """Join what a model found to what rules see: an entity is described in the row of its name, if there is one.

    What has no key is no name, and a relation whose ends have the same key is none.
    """
    rows = {row[2]: [*row, "", ""] for row in by_rules(recipe, piece)}
    for entity in found.entities:
        if one := key(entity.name):
            row = rows.setdefault(one, [recipe, piece.chunk, one, NAMED, entity.name, "", ""])
            row[5] = row[5] or entity.kind
            row[6] = _both(row[6], entity.description)
    relations = []
    for relation in found.relations:
        source, target = key(relation.source), key(relation.target)
        if source and target and source != target:
            relations.append([recipe, piece.chunk, source, target, relation.label, relation.description])
    return Rows(list(rows.values()), relations, _changes(rows.values(), relations))


def _changes(entities: Any, relations: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """Name each subject of which the chunk says something, once."""
    told = {(row[2], "", row[1]) for row in entities if row[6]}
    told |= {(row[2], row[3], row[1]) for row in relations}
    recipe = next((row[0] for row in entities), None)
    return [[recipe, *one] for one in sorted(told)]


def _both(one: str, other: str) -> str:
    return one if other in one else f"{one} {other}".strip()
