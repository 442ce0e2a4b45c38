"""Reads the graph of a base: entities, their descriptions, relations, neighbours.

Results contain only served chunks, in one snapshot. A merged description is shown while every chunk it was made from is
served; otherwise the texts of served chunks are joined. So the words of a deleted document vanish with it. While a base
changes its settings, two recipes may serve it: both are read, and their results are joined by key.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.catalog import served_recipes
from holdfast.content import MAX_NAME_CHARACTERS, MAX_NAME_WORDS, split_key_words
from holdfast.indexes.graph import merge_prompt
from holdfast.indexes.graph import statements as sql
from holdfast.indexes.graph.evidence import (
    GRAPH,
    Subject,
    SubjectKey,
    locate_served_chunks,
    read_merged,
    read_subjects,
    relation_key,
)

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence

    from holdfast.catalog import Base
    from holdfast.db import Database, Transaction

MAX_NEIGHBOURHOOD = 500  # relations around an entity, and chunks in which its neighbours are counted
MAX_QUERY_WORDS = 200  # of a text that is searched for names
REFETCH_FACTOR = 4  # more rows per retry if too few are served


@dataclass(frozen=True, slots=True, kw_only=True)
class Entity:
    """A name that documents share; `kind` is empty if only rules have found it."""

    key: str
    label: str
    kind: str
    documents: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Mention:
    """A chunk that mentions an entity."""

    document: int
    name: str
    chunk: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """A description of an entity or a relation, with the chunks it comes from."""

    keys: tuple[str, ...]  # one for an entity, two for a relation
    label: str
    kind: str  # of a relation: its label
    text: str
    chunks: tuple[int, ...]
    merged: bool  # by a model; else joined texts

    @property
    def sentence(self) -> str:
        """The fact as a line for a prompt. The text of a relation contains the names of its ends already."""
        return self.text if len(self.keys) > 1 else f"{self.label} ({self.kind}): {self.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """An entity beside another one."""

    entity: Entity
    together: int  # chunks that mention both
    labels: tuple[str, ...]  # of relations that a model has found


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityDetails:
    """All that is known about an entity."""

    entity: Entity
    description: str  # empty without a model
    merged: bool
    relations: list[Fact]
    mentions: list[Mention]
    neighbours: list[Neighbour]


class GraphQueries:
    """Reads the graphs in one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def list_entities(self, base: Base, limit: int = 50, prefix: str = "") -> list[Entity]:
        """Return the entities with most documents whose key starts with the words of `prefix`."""
        with self._database.reading() as tx:
            return [_entity(subject) for subject in read_common_entities(tx, base, limit, prefix)]

    def describe_entity(
        self, base: Base, key: str, *, mentions: int = 100, neighbours: int = 50
    ) -> EntityDetails | None:
        """Return all that is known about an entity; None if no served document mentions it."""
        with self._database.reading() as tx:
            subject = read_all_subjects(tx, base, [(key, "")]).get((key, ""))
            if subject is None:
                return None
            facts = _to_facts(tx, base, [subject])
            relations = _to_facts(tx, base, read_all_subjects(tx, base, list_relation_keys(tx, base, [key])).values())
        locations = sorted((location.document, chunk, location.name) for chunk, location in subject.locations.items())
        return EntityDetails(
            entity=_entity(subject),
            description=facts[0].text if facts else "",
            merged=bool(facts and facts[0].merged),
            relations=relations,
            mentions=[
                Mention(document=document, name=name, chunk=chunk) for document, chunk, name in locations[:mentions]
            ],
            neighbours=self.list_neighbours(base, key, neighbours),
        )

    def list_neighbours(self, base: Base, key: str, limit: int = 50) -> list[Neighbour]:
        """Return related entities first, then those that most chunks mention together with this one."""
        with self._database.reading() as tx:
            together = _count_cooccurrences(tx, base, key)
            joining: dict[str, list[str]] = {}
            for ends, subject in read_all_subjects(tx, base, list_relation_keys(tx, base, [key])).items():
                joining[ends[0] if ends[1] == key else ends[1]] = sorted(subject.kinds)
            best = sorted({*together, *joining}, key=lambda other: (other not in joining, -together[other], other))[
                :limit
            ]
            found = read_all_subjects(tx, base, [(other, "") for other in best])
        return [
            Neighbour(entity=_entity(found[other, ""]), together=together[other], labels=tuple(joining.get(other, ())))
            for other in best
            if (other, "") in found
        ]

    def find_entity_keys(self, base: Base, text: str) -> list[str]:
        """Return the keys of entities whose names occur in a text; of overlapping names the longest."""
        spans = list_word_spans(split_key_words(text)[:MAX_QUERY_WORDS])
        with self._database.reading() as tx:
            known = _find_served_keys(tx, base, set(spans.values()))
        return pick_longest(spans, known)

    def collect_facts(self, base: Base, keys: Sequence[str], limit: int = 100) -> list[Fact]:
        """Return facts about these entities, in order, then about their relations, those among themselves first.

        Without a language model there are none: rules claim nothing.
        """
        wanted = set(keys)
        with self._database.reading() as tx:
            entities = read_all_subjects(tx, base, [(key, "") for key in keys])
            around = read_all_subjects(tx, base, list_relation_keys(tx, base, list(dict.fromkeys(keys))))
            nearest = sorted(
                around.values(),
                key=lambda subject: (not wanted.issuperset(subject.key), -subject.documents, subject.key),
            )
            return _to_facts(tx, base, [*entities.values(), *nearest[:limit]])[:limit]


def read_common_entities(tx: Transaction, base: Base, limit: int, prefix: str = "") -> list[Subject]:
    """Return the subjects with most documents whose key starts with the words of `prefix`."""
    beginning = _escape_like(" ".join(split_key_words(prefix))) + "%"
    fetched = limit
    while True:
        fetched *= REFETCH_FACTOR
        keys: dict[SubjectKey, None] = {}
        full = False
        for recipe in served_recipes(tx, base.key, GRAPH):
            rows = tx.run(sql.SELECT_COMMON_KEYS, recipe=recipe, beginning=beginning, limit=fetched)
            keys |= {(key, ""): None for key, _ in rows}
            full = full or len(rows) == fetched
        found = read_all_subjects(tx, base, keys).values()
        if len(found) >= limit or not full:
            return sorted(found, key=lambda subject: (-subject.documents, subject.key))[:limit]


def list_word_spans(words: Sequence[str]) -> dict[tuple[int, int], str]:
    """Return all word sequences that could be a name, by position and number of words."""
    most = MAX_NAME_WORDS if all(map(str.isascii, words)) else MAX_NAME_CHARACTERS
    return {
        (start, length): " ".join(words[start : start + length])
        for start in range(len(words))
        for length in range(1, min(most, len(words) - start) + 1)
    }


def pick_longest(spans: Mapping[tuple[int, int], str], known: Container[str]) -> list[str]:
    """Return the known names once each, in order; of overlapping names the longest."""
    found: dict[str, None] = {}
    past = 0
    for start, length in sorted(spans, key=lambda span: (span[0], -span[1])):
        if start >= past and spans[start, length] in known:
            past = start + length
            found.setdefault(spans[start, length])
    return list(found)


def read_all_subjects(tx: Transaction, base: Base, keys: Iterable[SubjectKey]) -> dict[SubjectKey, Subject]:
    """Return what served chunks say about these subjects, joined over all recipes, in the given order."""
    wanted = list(dict.fromkeys(keys))
    found: dict[SubjectKey, Subject] = {}
    for recipe in served_recipes(tx, base.key, GRAPH):
        for key, subject in read_subjects(tx, base.key, recipe, wanted).items():
            known = found.setdefault(key, subject)
            if known is not subject:
                known.labels += subject.labels
                known.kinds += subject.kinds
                known.texts_by_chunk |= subject.texts_by_chunk
                known.locations |= subject.locations
    return {key: found[key] for key in wanted if key in found}


def _find_served_keys(tx: Transaction, base: Base, keys: Iterable[str]) -> set[str]:
    """Return the keys that a served chunk mentions or defines."""
    found: set[str] = set()
    for recipe in served_recipes(tx, base.key, GRAPH):
        rows = tx.run(sql.SELECT_CHUNKS_BY_KEY, [[key] for key in keys], recipe=recipe)
        locations = locate_served_chunks(tx, base.key, recipe, (chunk for _, chunk, _ in rows))
        found |= {key for key, chunk, _ in rows if chunk in locations}
    return found


def _to_facts(tx: Transaction, base: Base, wanted: Iterable[Subject]) -> list[Fact]:
    """Return the facts of described subjects: the merged description if it may be shown, else the joined texts."""
    known = {subject.key: subject for subject in wanted if subject.texts_by_chunk}
    made = _read_served_merged(tx, base, list(known))
    found = []
    for key, subject in known.items():
        if key in made:
            text, chunks = made[key]
        else:
            texts = subject.distinct_texts()
            text, chunks = merge_prompt.join_texts(texts), subject.find_sources(texts)
        keys = key if key[1] else key[:1]
        found.append(
            Fact(keys=keys, label=subject.name, kind=subject.kind, text=text, chunks=tuple(chunks), merged=key in made)
        )
    return found


def _read_served_merged(
    tx: Transaction, base: Base, keys: Sequence[SubjectKey]
) -> dict[SubjectKey, tuple[str, list[int]]]:
    """Return merged descriptions with all sources served; none while two recipes serve the base."""
    found: dict[SubjectKey, list[tuple[str, list[int]]]] = defaultdict(list)
    recipes = served_recipes(tx, base.key, GRAPH)
    for recipe in recipes:
        made = read_merged(tx, recipe, keys)
        locations = locate_served_chunks(
            tx, base.key, recipe, (chunk for merged in made.values() for chunk in merged.sources)
        )
        for key, merged in made.items():
            if merged.sources and merged.sources <= locations.keys():
                found[key].append((merged.description, sorted(merged.sources)))
    return {key: made[0] for key, made in found.items() if len(recipes) == 1}


def list_relation_keys(tx: Transaction, base: Base, keys: Sequence[str]) -> list[SubjectKey]:
    """Return the relations around entities. The caller checks whether a served chunk states them."""
    rows = [[key] for key in keys]
    return [
        relation_key(*ends)
        for recipe in served_recipes(tx, base.key, GRAPH)
        for statement in (sql.SELECT_ENDS_BY_SOURCE, sql.SELECT_ENDS_BY_TARGET)
        for ends in tx.run(statement, rows, recipe=recipe, limit=MAX_NEIGHBOURHOOD)
    ]


def _count_cooccurrences(tx: Transaction, base: Base, key: str) -> Counter[str]:
    """Count the served chunks that mention an entity together with each other one."""
    counted: Counter[str] = Counter()
    for recipe in served_recipes(tx, base.key, GRAPH):
        subject = read_subjects(tx, base.key, recipe, [(key, "")]).get((key, ""))
        rows = [[chunk] for chunk in sorted(subject.locations)[:MAX_NEIGHBOURHOOD]] if subject else []
        counted.update(other for _, other, _ in tx.run(sql.SELECT_NAMES_OF_CHUNKS, rows, recipe=recipe) if other != key)
    return counted


def _entity(subject: Subject) -> Entity:
    return Entity(key=subject.key[0], label=subject.name, kind=subject.kind, documents=subject.documents)


def _escape_like(text: str) -> str:
    """Escape a text for LIKE."""
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
