"""The rows of one chunk in the graph: names found by rules and entities found by a model, joined by key.

The rows depend only on the chunk and the answer of the model, so every worker writes the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.content import find_definitions, find_names, name_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.catalog import ChunkText
    from holdfast.indexes.graph.extraction import Extraction

NAMED_ROLE = "named"  # the role of a name that a chunk mentions


class GraphRows(NamedTuple):
    """Rows to be written, by table."""

    names: list[list[Any]]  # recipe, chunk, key, role, label, kind, description
    relations: list[list[Any]]  # recipe, chunk, source, target, label, description
    changes: list[list[Any]]  # recipe, key, other, chunk


def build_rule_rows(recipe: int, piece: ChunkText) -> list[list[Any]]:
    """Return the names that a chunk defines or mentions, each key once: recipe, chunk, key, role, label."""
    title = piece.headings[0] if piece.headings else ""
    rows = [
        [name.key, str(name.origin), name.text]
        for name in find_definitions(piece.text, title=title, first=piece.opening)
    ]
    known = {row[0] for row in rows}
    rows += [[name.key, NAMED_ROLE, name.text] for name in find_names(piece.text) if name.key not in known]
    return [[recipe, piece.chunk, *row] for row in rows]


def build_model_rows(recipe: int, piece: ChunkText, found: Extraction) -> GraphRows:
    """Join the extraction of a model to the names found by rules: an entity shares the row of its name.

    Entities without a key and relations between equal keys are dropped.
    """
    rows = {row[2]: [*row, "", ""] for row in build_rule_rows(recipe, piece)}
    for entity in found.entities:
        if key := name_key(entity.name):
            row = rows.setdefault(key, [recipe, piece.chunk, key, NAMED_ROLE, entity.name, "", ""])
            row[5] = row[5] or entity.kind
            row[6] = _join_descriptions(row[6], entity.description)
    relations = []
    for relation in found.relations:
        source, target = name_key(relation.source), name_key(relation.target)
        if source and target and source != target:
            relations.append([recipe, piece.chunk, source, target, relation.label, relation.description])
    return GraphRows(list(rows.values()), relations, _changes(rows.values(), relations))


def _changes(entities: Any, relations: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """Return each subject that the chunk describes, once."""
    subjects = {(row[2], "", row[1]) for row in entities if row[6]}
    subjects |= {(row[2], row[3], row[1]) for row in relations}
    recipe = next((row[0] for row in entities), None)
    return [[recipe, *subject] for subject in sorted(subjects)]


def _join_descriptions(first: str, second: str) -> str:
    return first if second in first else f"{first} {second}".strip()
