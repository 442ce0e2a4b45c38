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
from holdfast.indexes.graph.extraction import ExtractedRelation
from holdfast.llm import to_single_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from holdfast.db import Transaction
    from holdfast.engine import Slot

GRAPH = "graph"
SubjectKey = tuple[str, str]  # of an entity its key and nothing, of a relation the keys of its ends, in order


class ChunkLocation(NamedTuple):
    """Where a chunk that may be shown stands."""

    document: int
    name: str


class MergedDescription(NamedTuple):
    """A description that a model made, and the chunks whose words it was shown."""

    description: str
    digest: str
    sources: frozenset[int]


@dataclass(slots=True, kw_only=True)
class Subject:
    """An entity or a relation, with all that served chunks say of it."""

    key: SubjectKey
    labels: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)  # of a relation, what joins its ends
    texts_by_chunk: dict[int, list[str]] = field(default_factory=dict)  # by chunk; one that only names it says nothing
    locations: dict[int, ChunkLocation] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """As it is written most often."""
        return merge_prompt.most_frequent(self.labels)

    @property
    def kind(self) -> str:
        """What kind of thing it is, for most chunks; empty where only rules have seen it."""
        return merge_prompt.most_frequent(self.kinds) if self.kinds else ""

    @property
    def documents(self) -> int:
        """How many documents speak of it."""
        return len({place.document for place in self.locations.values()})

    def distinct_texts(self) -> tuple[str, ...]:
        """Return what is said, nothing twice."""
        return merge_prompt.distinct_texts(
            merge_prompt.SubjectText(document=str(self.locations[chunk].document), text=text)
            for chunk, said in self.texts_by_chunk.items()
            for text in said
        )

    def find_sources(self, texts: Iterable[str]) -> list[int]:
        """Return a chunk for each of these texts, the eldest that says it."""
        first: dict[str, int] = {}
        for chunk in sorted(self.texts_by_chunk):
            for text in self.texts_by_chunk[chunk]:
                first.setdefault(to_single_line(text, merge_prompt.DESCRIPTION_LIMIT), chunk)
        return sorted({first[text] for text in texts})

    def add(self, chunk: int, place: ChunkLocation, *, label: str, kind: str, text: str) -> None:
        """Hear one chunk."""
        self.labels[label] += 1
        if kind:
            self.kinds[kind] += 1
        if text:
            self.texts_by_chunk.setdefault(chunk, []).append(text)
        self.locations[chunk] = place


def relation_key(source: str, target: str) -> SubjectKey:
    """Name a relation by its ends, whoever does it to whom."""
    return (source, target) if source < target else (target, source)


def locate_served_chunks(tx: Transaction, base: str, recipe: int, chunks: Iterable[int]) -> dict[int, ChunkLocation]:
    """Return those of the chunks that may be shown, and where they stand."""
    rows = tx.run(sql.SELECT_SERVED_MENTIONS, [[chunk] for chunk in set(chunks)], base=base, kind=GRAPH, recipe=recipe)
    return {chunk: ChunkLocation(int(document), name) for chunk, document, name in rows}


def read_subjects(tx: Transaction, base: str, recipe: int, keys: Iterable[SubjectKey]) -> dict[SubjectKey, Subject]:
    """Return those of the entities and relations that a served chunk speaks of."""
    asked = list(dict.fromkeys(keys))
    found = _entities(tx, base, recipe, [key for key, other in asked if not other])
    return found | _relations(tx, base, recipe, [key for key in asked if key[1]])


def _entities(tx: Transaction, base: str, recipe: int, keys: Sequence[str]) -> dict[SubjectKey, Subject]:
    rows = tx.run(sql.SELECT_ENTITIES, [[key] for key in keys], recipe=recipe)
    places = locate_served_chunks(tx, base, recipe, (chunk for _, chunk, *_ in rows))
    found: dict[SubjectKey, Subject] = {}
    for key, chunk, label, kind, description in rows:
        if chunk in places:
            subject = found.get((key, ""))
            if subject is None:  # a default would be made anew for every one of very many rows
                subject = found[key, ""] = Subject(key=(key, ""))
            subject.add(chunk, places[chunk], label=label, kind=kind, text=description)
    return found


def _relations(tx: Transaction, base: str, recipe: int, keys: Sequence[SubjectKey]) -> dict[SubjectKey, Subject]:
    both = [ends for key in keys for ends in (key, key[::-1])]
    rows = tx.run(sql.SELECT_RELATIONS, both, recipe=recipe)
    places = locate_served_chunks(tx, base, recipe, (row[2] for row in rows))
    found: dict[SubjectKey, Subject] = {}
    for source, target, chunk, label, description, *ends in rows:
        if chunk not in places:
            continue
        key = relation_key(source, target)
        relation = ExtractedRelation(source=ends[0], target=ends[1], label=label, description=description)
        name = " ↔ ".join(ends if key == (source, target) else reversed(ends))
        subject = found.setdefault(key, Subject(key=key))
        subject.add(chunk, places[chunk], label=name, kind=label, text=merge_prompt.format_relation(relation))
    return found


def read_merged(tx: Transaction, recipe: int, keys: Sequence[SubjectKey]) -> dict[SubjectKey, MergedDescription]:
    """Return what models made of these; whether it may be shown is for the caller to check, by its sources."""
    sources: dict[SubjectKey, set[int]] = {}
    for key, other, chunk in tx.run(sql.SELECT_MERGED_SOURCES, keys, recipe=recipe):
        sources.setdefault((key, other), set()).add(chunk)
    return {
        (key, other): MergedDescription(description, digest, frozenset(sources.get((key, other), ())))
        for key, other, description, digest in tx.run(sql.SELECT_MERGED, keys, recipe=recipe)
    }


def read_document_names(tx: Transaction, slot: Slot) -> list[tuple[Any, ...]]:
    """Read the names in the chunks that a slot serves: key, chunk, label, kind."""
    return tx.run(sql.SELECT_NAMES_IN_LIST, recipe=slot.recipe, owner_id=slot.owner_id, build=slot.source)
