"""Entities and relations of one chunk, as a language model finds them."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from holdfast.llm import (
    DATA_ONLY,
    Prompt,
    converse,
    fold,
    material,
    objects,
    parsed,
    recipe,
    repair,
    shape,
    string,
    tidy,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from holdfast.llm import Paid, Provider, Usage

__all__ = ["RECIPE", "Entity", "Extraction", "Relation", "ask", "extract", "read", "repair"]

KINDS = ("person", "organisation", "place", "event", "product", "work", "technology", "concept", "rule", "quantity")
OTHER = "other"
MOST_ENTITIES, MOST_RELATIONS = 40, 60
NAME, KIND, LABEL, DESCRIPTION = 120, 40, 80, 500  # characters
MAX_TOKENS = 4096

SYSTEM = f"""\
You build a knowledge graph from passages of documents. Find the entities that the passage is about and the relations \
between them that it states.

- An entity is something that other documents could speak of too: {", ".join(KINDS)}, or another kind in one word. \
Take no pronouns, no dates alone, no parts of the layout.
- Name each entity as the passage names it, in full, in its own spelling and language, in at most {NAME} characters; \
each once.
- Describe each entity and each relation by what this passage says of it, in the language of the passage, in a \
sentence or two that can be understood alone, in at most {DESCRIPTION} characters. Add nothing that you know from \
elsewhere.
- A relation goes from a source to a target. Both are names from your list of entities, written the same, and differ. \
Its label is the verb or the role that joins them, in at most {LABEL} characters.
- At most {MOST_ENTITIES} entities and {MOST_RELATIONS} relations, the most important first. A passage without any \
gets two empty lists.

{DATA_ONLY}"""

_TEXT: dict[str, Any] = {"type": "string"}
SCHEMA = shape(
    entities={"type": "array", "items": shape(name=_TEXT, kind=_TEXT, description=_TEXT)},
    relations={"type": "array", "items": shape(source=_TEXT, target=_TEXT, label=_TEXT, description=_TEXT)},
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entity:
    """Something a passage speaks of."""

    name: str
    kind: str
    description: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """What a passage says of two of its entities, by their names."""

    source: str
    target: str
    label: str
    description: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Extraction:
    """What was found in one passage: no entity twice, no relation twice, both ends of each relation among the entities.

    Names that differ only in case, width or white space are the same.
    """

    entities: tuple[Entity, ...] = ()
    relations: tuple[Relation, ...] = ()

    def to_json(self) -> str:
        """Write it down; equal values are equal bytes."""
        return json.dumps(asdict(self), ensure_ascii=False, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, written: str) -> Extraction:
        """Read what `to_json` wrote; ValueError if it is anything else."""
        return read(written)


def ask(text: str, headings: Sequence[str] = ()) -> Prompt:
    """Return the prompt for one chunk."""
    return Prompt(
        system=SYSTEM,
        text=f"{material(text, headings)}\n\nReturn the entities and relations of the text as JSON.",
        schema=SCHEMA,
        max_tokens=MAX_TOKENS,
    )


def read(answer: str) -> Extraction:
    """Check an answer and keep what can be used of it; ValueError says what is wrong if it has not the shape.

    What has the shape and no meaning (no name, a relation to nobody or to itself) is dropped: it is worth no second
    turn.
    """
    body = parsed(answer)
    entities = _entities(objects(body, "entities"))
    return Extraction(
        entities=tuple(entities.values()),
        relations=tuple(_relations(objects(body, "relations"), entities)),
    )


def extract(
    provider: Provider, text: str, headings: Sequence[str] = (), *, paid: Paid | None = None
) -> tuple[Extraction, Usage]:
    """Find the entities and relations of one chunk, in one turn or two; `bad_answer` if neither can be used."""
    return converse(provider, ask(text, headings), read, paid=paid)


def _entities(items: Iterable[dict[str, Any]]) -> dict[str, Entity]:
    found: dict[str, Entity] = {}
    for item in items:
        name, kind = tidy(string(item, "name"), NAME), fold(tidy(string(item, "kind"), KIND))[:KIND].strip()
        description = tidy(string(item, "description"), DESCRIPTION)
        key = fold(name)
        if key in found:
            known = found[key]
            name, description = known.name, _both(known.description, description)
            kind = known.kind if known.kind != OTHER else kind
        elif not _says(name) or len(found) == MOST_ENTITIES:
            continue
        found[key] = Entity(name=name, kind=kind if _says(kind) else OTHER, description=description)
    return found


def _relations(items: Iterable[dict[str, Any]], entities: dict[str, Entity]) -> Iterable[Relation]:
    found: dict[tuple[str, str, str], Relation] = {}
    for item in items:
        source, target = (fold(tidy(string(item, end), NAME)) for end in ("source", "target"))
        label = tidy(string(item, "label"), LABEL)
        description = tidy(string(item, "description"), DESCRIPTION)
        key = source, target, fold(label)
        if key in found:
            label, description = found[key].label, _both(found[key].description, description)
        elif source == target or not {source, target} <= entities.keys() or len(found) == MOST_RELATIONS:
            continue
        found[key] = Relation(
            source=entities[source].name, target=entities[target].name, label=label, description=description
        )
    return found.values()


def _both(one: str, other: str) -> str:
    """Say what two descriptions say, within the bounds of one."""
    if fold(other) in fold(one):
        return one
    return other if fold(one) in fold(other) else tidy(f"{one} {other}", DESCRIPTION)


def _says(text: str) -> bool:
    return any(character.isalnum() for character in text)


RECIPE = recipe("extraction", ask("text", ("heading",)))
