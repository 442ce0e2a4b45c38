"""Entities and relations of one chunk: the prompt, and the check of the answer."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from holdfast.llm import (
    DATA_ONLY,
    Prompt,
    build_recipe_name,
    call_structured,
    fold,
    object_schema,
    parse_object,
    require_objects,
    require_string,
    to_single_line,
    wrap_passage,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from holdfast.llm import Provider, Usage

KINDS = ("person", "organisation", "place", "event", "product", "work", "technology", "concept", "rule", "quantity")
OTHER_KIND = "other"
MAX_ENTITIES, MAX_RELATIONS = 40, 60
NAME_LIMIT, KIND_LIMIT, LABEL_LIMIT, DESCRIPTION_LIMIT = 120, 40, 80, 500  # characters
MAX_TOKENS = 4096

SYSTEM = f"""\
You build a knowledge graph from passages of documents. Find the entities that the passage is about and the relations \
between them that it states.

- An entity is something that other documents could speak of too: {", ".join(KINDS)}, or another kind in one word. \
Take no pronouns, no dates alone, no parts of the layout.
- Name each entity as the passage names it, in full, in its own spelling and language, in at most {NAME_LIMIT} \
characters; each once.
- Describe each entity and each relation by what this passage says of it, in the language of the passage, in a \
sentence or two that can be understood alone, in at most {DESCRIPTION_LIMIT} characters. Add nothing that you know \
from elsewhere.
- A relation goes from a source to a target. Both are names from your list of entities, written the same, and differ. \
Its label is the verb or the role that joins them, in at most {LABEL_LIMIT} characters.
- At most {MAX_ENTITIES} entities and {MAX_RELATIONS} relations, the most important first. A passage without any \
gets two empty lists.

{DATA_ONLY}"""

_TEXT: dict[str, Any] = {"type": "string"}
SCHEMA = object_schema(
    entities={"type": "array", "items": object_schema(name=_TEXT, kind=_TEXT, description=_TEXT)},
    relations={"type": "array", "items": object_schema(source=_TEXT, target=_TEXT, label=_TEXT, description=_TEXT)},
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractedEntity:
    """An entity of a passage."""

    name: str
    kind: str
    description: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractedRelation:
    """A relation between two entities of a passage, by their names."""

    source: str
    target: str
    label: str
    description: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Extraction:
    """The entities and relations of one passage, without duplicates; both ends of a relation are among the entities.

    Names are equal if they differ only in case, width or white space.
    """

    entities: tuple[ExtractedEntity, ...] = ()
    relations: tuple[ExtractedRelation, ...] = ()

    def to_json(self) -> str:
        """Serialise; equal values give equal bytes."""
        return json.dumps(asdict(self), ensure_ascii=False, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, written: str) -> Extraction:
        """Parse what `to_json` wrote; ValueError for anything else."""
        return parse_answer(written)


def build_prompt(text: str, headings: Sequence[str] = ()) -> Prompt:
    return Prompt(
        system=SYSTEM,
        text=f"{wrap_passage(text, headings)}\n\nReturn the entities and relations of the text as JSON.",
        schema=SCHEMA,
        max_tokens=MAX_TOKENS,
    )


def parse_answer(answer: str) -> Extraction:
    """Check an answer and return its usable part; raise ValueError with the reason if its form is wrong.

    Meaningless entries (no name, a relation to an unknown entity or to itself) are dropped: they do not justify a
    repair turn.
    """
    body = parse_object(answer)
    entities = _entities(require_objects(body, "entities"))
    return Extraction(
        entities=tuple(entities.values()),
        relations=tuple(_relations(require_objects(body, "relations"), entities)),
    )


def extract(provider: Provider, text: str, headings: Sequence[str] = ()) -> tuple[Extraction, Usage]:
    """Return the entities and relations of one chunk, and the tokens; raises `bad_answer` like `call_structured`."""
    return call_structured(provider, build_prompt(text, headings), parse_answer)


def _entities(items: Iterable[dict[str, Any]]) -> dict[str, ExtractedEntity]:
    found: dict[str, ExtractedEntity] = {}
    for item in items:
        name, kind = (
            to_single_line(require_string(item, "name"), NAME_LIMIT),
            fold(to_single_line(require_string(item, "kind"), KIND_LIMIT))[:KIND_LIMIT].strip(),
        )
        description = to_single_line(require_string(item, "description"), DESCRIPTION_LIMIT)
        key = fold(name)
        if key in found:
            known = found[key]
            name, description = known.name, _join_descriptions(known.description, description)
            kind = known.kind if known.kind != OTHER_KIND else kind
        elif not _has_letters(name) or len(found) == MAX_ENTITIES:
            continue
        found[key] = ExtractedEntity(
            name=name, kind=kind if _has_letters(kind) else OTHER_KIND, description=description
        )
    return found


def _relations(items: Iterable[dict[str, Any]], entities: dict[str, ExtractedEntity]) -> Iterable[ExtractedRelation]:
    found: dict[tuple[str, str, str], ExtractedRelation] = {}
    for item in items:
        source, target = (fold(to_single_line(require_string(item, end), NAME_LIMIT)) for end in ("source", "target"))
        label = to_single_line(require_string(item, "label"), LABEL_LIMIT)
        description = to_single_line(require_string(item, "description"), DESCRIPTION_LIMIT)
        key = source, target, fold(label)
        if key in found:
            label, description = found[key].label, _join_descriptions(found[key].description, description)
        elif source == target or not {source, target} <= entities.keys() or len(found) == MAX_RELATIONS:
            continue
        found[key] = ExtractedRelation(
            source=entities[source].name, target=entities[target].name, label=label, description=description
        )
    return found.values()


def _join_descriptions(first: str, second: str) -> str:
    """Join two descriptions within the length limit, or return the one that contains the other."""
    if fold(second) in fold(first):
        return first
    return second if fold(first) in fold(second) else to_single_line(f"{first} {second}", DESCRIPTION_LIMIT)


def _has_letters(text: str) -> bool:
    return any(character.isalnum() for character in text)


RECIPE = build_recipe_name("extraction", build_prompt("text", ("heading",)))
