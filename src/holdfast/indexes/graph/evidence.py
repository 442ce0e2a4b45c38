"""The texts of served chunks about an entity or a relation: the only input of descriptions.

Everything is read in the caller's snapshot, and only served chunks count. So no text of a deleted document appears in a
description, whether or not its rows are removed already.
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
SubjectKey = tuple[str, str]  # an entity: its key and ""; a relation: the sorted keys of its ends


class ChunkLocation(NamedTuple):
    """The document of a served chunk."""

    document: int
    name: str


class MergedDescription(NamedTuple):
    """A description by a model, and the chunks whose texts were in the prompt."""

    description: str
    digest: str
    sources: frozenset[int]


@dataclass(slots=True, kw_only=True)
class Subject:
    """An entity or a relation, with the texts of all served chunks about it."""

    key: SubjectKey
    labels: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)  # of a relation: its labels
    texts_by_chunk: dict[int, list[str]] = field(
        default_factory=dict
    )  # only chunks that describe it, not those that only mention it
    locations: dict[int, ChunkLocation] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The most frequent spelling."""
        return merge_prompt.most_frequent(self.labels)

    @property
    def kind(self) -> str:
        """The most frequent kind; empty if only rules have found the subject."""
        return merge_prompt.most_frequent(self.kinds) if self.kinds else ""

    @property
    def documents(self) -> int:
        """The number of documents that mention it."""
        return len({location.document for location in self.locations.values()})

    def distinct_texts(self) -> tuple[str, ...]:
        return merge_prompt.distinct_texts(
            merge_prompt.SubjectText(document=str(self.locations[chunk].document), text=text)
            for chunk, texts in self.texts_by_chunk.items()
            for text in texts
        )

    def find_sources(self, texts: Iterable[str]) -> list[int]:
        """Return the oldest chunk of each of these texts."""
        first: dict[str, int] = {}
        for chunk in sorted(self.texts_by_chunk):
            for text in self.texts_by_chunk[chunk]:
                first.setdefault(to_single_line(text, merge_prompt.DESCRIPTION_LIMIT), chunk)
        return sorted({first[text] for text in texts})

    def add(self, chunk: int, location: ChunkLocation, *, label: str, kind: str, text: str) -> None:
        """Add the row of one chunk."""
        self.labels[label] += 1
        if kind:
            self.kinds[kind] += 1
        if text:
            self.texts_by_chunk.setdefault(chunk, []).append(text)
        self.locations[chunk] = location


def relation_key(source: str, target: str) -> SubjectKey:
    """Return the key of a relation, independent of its direction."""
    return (source, target) if source < target else (target, source)


def locate_served_chunks(tx: Transaction, base: str, recipe: int, chunks: Iterable[int]) -> dict[int, ChunkLocation]:
    """Return the served chunks among these, with their documents."""
    rows = tx.run(sql.SELECT_SERVED_MENTIONS, [[chunk] for chunk in set(chunks)], base=base, kind=GRAPH, recipe=recipe)
    return {chunk: ChunkLocation(int(document), name) for chunk, document, name in rows}


def read_subjects(tx: Transaction, base: str, recipe: int, keys: Iterable[SubjectKey]) -> dict[SubjectKey, Subject]:
    """Return the subjects that a served chunk mentions."""
    wanted = list(dict.fromkeys(keys))
    found = _entities(tx, base, recipe, [key for key, other in wanted if not other])
    return found | _relations(tx, base, recipe, [key for key in wanted if key[1]])


def _entities(tx: Transaction, base: str, recipe: int, keys: Sequence[str]) -> dict[SubjectKey, Subject]:
    rows = tx.run(sql.SELECT_ENTITIES, [[key] for key in keys], recipe=recipe)
    locations = locate_served_chunks(tx, base, recipe, (chunk for _, chunk, *_ in rows))
    found: dict[SubjectKey, Subject] = {}
    for key, chunk, label, kind, description in rows:
        if chunk in locations:
            subject = found.get((key, ""))
            if subject is None:  # not `setdefault`: it would create a Subject for each of very many rows
                subject = found[key, ""] = Subject(key=(key, ""))
            subject.add(chunk, locations[chunk], label=label, kind=kind, text=description)
    return found


def _relations(tx: Transaction, base: str, recipe: int, keys: Sequence[SubjectKey]) -> dict[SubjectKey, Subject]:
    both = [ends for key in keys for ends in (key, key[::-1])]
    rows = tx.run(sql.SELECT_RELATIONS, both, recipe=recipe)
    locations = locate_served_chunks(tx, base, recipe, (row[2] for row in rows))
    found: dict[SubjectKey, Subject] = {}
    for source, target, chunk, label, description, *ends in rows:
        if chunk not in locations:
            continue
        key = relation_key(source, target)
        relation = ExtractedRelation(source=ends[0], target=ends[1], label=label, description=description)
        name = " ↔ ".join(ends if key == (source, target) else reversed(ends))
        subject = found.setdefault(key, Subject(key=key))
        subject.add(chunk, locations[chunk], label=name, kind=label, text=merge_prompt.format_relation(relation))
    return found


def read_merged(tx: Transaction, recipe: int, keys: Sequence[SubjectKey]) -> dict[SubjectKey, MergedDescription]:
    """Return merged descriptions. The caller checks whether all sources are served."""
    sources: dict[SubjectKey, set[int]] = {}
    for key, other, chunk in tx.run(sql.SELECT_MERGED_SOURCES, keys, recipe=recipe):
        sources.setdefault((key, other), set()).add(chunk)
    return {
        (key, other): MergedDescription(description, digest, frozenset(sources.get((key, other), ())))
        for key, other, description, digest in tx.run(sql.SELECT_MERGED, keys, recipe=recipe)
    }


def read_document_names(tx: Transaction, slot: Slot) -> list[tuple[Any, ...]]:
    """Return key, chunk, label and kind of the names in the chunks that a slot serves."""
    return tx.run(sql.SELECT_NAMES_IN_LIST, recipe=slot.recipe, owner_id=slot.owner_id, build=slot.source)
