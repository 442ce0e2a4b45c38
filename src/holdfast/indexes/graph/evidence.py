"""What the chunks that are served say of an entity or a relation: all that a description may be made from.

Everything is read in the caller's snapshot, and a chunk that may not be shown says nothing: so no word of a deleted
document is in what comes out of here, whether or not its rows are swept.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.indexes.graph import merge_prompt
from holdfast.indexes.graph import statements as sql
from holdfast.indexes.graph.extraction import Relation
from holdfast.llm import tidy

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from holdfast.db import Transaction
    from holdfast.engine import Slot

GRAPH = "graph"
Key = tuple[str, str]  # of an entity its key and nothing, of a relation the keys of its ends, in order


class Place(NamedTuple):
    """Where a chunk that may be shown stands."""

    document: int
    name: str


class Merged(NamedTuple):
    """A description that a model made, and the chunks whose words it was shown."""

    description: str
    digest: str
    sources: frozenset[int]


@dataclass(slots=True, kw_only=True)
class Subject:
    """An entity or a relation, with all that served chunks say of it."""

    key: Key
    labels: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)  # of a relation, what joins its ends
    said: dict[int, list[str]] = field(default_factory=dict)  # by chunk; one that only names it says nothing
    places: dict[int, Place] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """As it is written most often."""
        return merge_prompt.most(self.labels)

    @property
    def kind(self) -> str:
        """What kind of thing it is, for most chunks; empty where only rules have seen it."""
        return merge_prompt.most(self.kinds) if self.kinds else ""

    @property
    def documents(self) -> int:
        """How many documents speak of it."""
        return len({place.document for place in self.places.values()})

    def texts(self) -> tuple[str, ...]:
        """Return what is said, nothing twice."""
        return merge_prompt.texts(
            merge_prompt.Saying(document=str(self.places[chunk].document), text=text)
            for chunk, said in self.said.items()
            for text in said
        )

    def sources(self, texts: Iterable[str]) -> list[int]:
        """Return a chunk for each of these texts, the eldest that says it."""
        first: dict[str, int] = {}
        for chunk in sorted(self.said):
            for text in self.said[chunk]:
                first.setdefault(tidy(text, merge_prompt.DESCRIPTION), chunk)
        return sorted({first[text] for text in texts})

    def add(self, chunk: int, place: Place, *, label: str, kind: str, text: str) -> None:
        """Hear one chunk."""
        self.labels[label] += 1
        if kind:
            self.kinds[kind] += 1
        if text:
            self.said.setdefault(chunk, []).append(text)
        self.places[chunk] = place


def pair(source: str, target: str) -> Key:
    """Name a relation by its ends, whoever does it to whom."""
    return (source, target) if source < target else (target, source)


def shown(tx: Transaction, base: str, recipe: int, chunks: Iterable[int]) -> dict[int, Place]:
    """Return those of the chunks that may be shown, and where they stand."""
    rows = tx.run(sql.SHOWN, [[chunk] for chunk in set(chunks)], base=base, kind=GRAPH, recipe=recipe)
    return {chunk: Place(int(document), name) for chunk, document, name in rows}


def subjects(tx: Transaction, base: str, recipe: int, keys: Iterable[Key]) -> dict[Key, Subject]:
    """Return those of the entities and relations that a served chunk speaks of."""
    asked = list(dict.fromkeys(keys))
    found = _entities(tx, base, recipe, [key for key, other in asked if not other])
    return found | _relations(tx, base, recipe, [key for key in asked if key[1]])


def _entities(tx: Transaction, base: str, recipe: int, keys: Sequence[str]) -> dict[Key, Subject]:
    rows = tx.run(sql.ENTITIES, [[key] for key in keys], recipe=recipe)
    places = shown(tx, base, recipe, (chunk for _, chunk, *_ in rows))
    found: dict[Key, Subject] = {}
    for key, chunk, label, kind, description in rows:
        if chunk in places:
            subject = found.get((key, ""))
            if subject is None:  # a default would be made anew for every one of very many rows
                subject = found[key, ""] = Subject(key=(key, ""))
            subject.add(chunk, places[chunk], label=label, kind=kind, text=description)
    return found


def _relations(tx: Transaction, base: str, recipe: int, keys: Sequence[Key]) -> dict[Key, Subject]:
    both = [ends for key in keys for ends in (key, key[::-1])]
    rows = tx.run(sql.RELATIONS, both, recipe=recipe)
    places = shown(tx, base, recipe, (row[2] for row in rows))
    found: dict[Key, Subject] = {}
    for source, target, chunk, label, description, *ends in rows:
        if chunk not in places:
            continue
        key = pair(source, target)
        relation = Relation(source=ends[0], target=ends[1], label=label, description=description)
        name = " ↔ ".join(ends if key == (source, target) else reversed(ends))
        subject = found.setdefault(key, Subject(key=key))
        subject.add(chunk, places[chunk], label=name, kind=label, text=merge_prompt.stated(relation))
    return found


def merged(tx: Transaction, recipe: int, keys: Sequence[Key]) -> dict[Key, Merged]:
    """Return what models made of these; whether it may be shown is for the caller to check, by its sources."""
    sources: dict[Key, set[int]] = {}
    for key, other, chunk in tx.run(sql.SOURCES, keys, recipe=recipe):
        sources.setdefault((key, other), set()).add(chunk)
    return {
        (key, other): Merged(description, digest, frozenset(sources.get((key, other), ())))
        for key, other, description, digest in tx.run(sql.MERGED, keys, recipe=recipe)
    }


def names_in(tx: Transaction, slot: Slot) -> list[tuple[Any, ...]]:
    """Read the names in the chunks that a slot serves: key, chunk, label, kind."""
    return tx.run(sql.NAMED_IN, recipe=slot.recipe, owner_id=slot.owner_id, build=slot.source)
