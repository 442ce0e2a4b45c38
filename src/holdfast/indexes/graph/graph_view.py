"""The graph of a base for drawing: entities, and edges between them.

An edge is a pair of entities that served chunks mention together; its weight is the number of these chunks. It has a
kind if a language model has found a relation.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

from holdfast.catalog import read_served_chunks, served_recipes, to_served_passage
from holdfast.indexes.graph import statements as sql
from holdfast.indexes.graph.evidence import GRAPH, relation_key
from holdfast.indexes.graph.graph_queries import list_relation_keys, read_all_subjects, read_common_entities
from holdfast.indexes.graph.merge_prompt import most_frequent

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from holdfast.catalog import Base, ServedChunk, ServedPassage
    from holdfast.db import Database, Transaction
    from holdfast.indexes.graph.evidence import Subject, SubjectKey

MAX_CHUNKS_PER_STEP = 2_000  # searched for neighbours at each step away from an entity
MAX_ENTITIES_PER_CHUNK = 60  # that are paired; a long list of names means no relation


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """An entity."""

    key: str
    name: str
    kind: str  # empty if only rules have found it
    documents: int  # that mention it
    mentions: int  # chunks that mention it


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """Two entities that chunks mention together."""

    source: str
    target: str
    weight: int  # chunks that mention both
    kind: str  # of the relation, if a language model has found one; else empty


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphView:
    """A part of the graph of a base."""

    nodes: list[Node]  # most documents first
    edges: list[Edge]  # between these, strongest first
    cut: bool  # there are more nodes or edges


class GraphViewQueries:
    """Reads views of the graphs in one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def draw_overview(self, base: Base, *, nodes: int, edges: int) -> GraphView:
        """Return the entities with most documents."""
        with self._database.reading() as tx:
            found = read_common_entities(tx, base, nodes + 1)
            return _build_view(tx, base, found[:nodes], edges, cut=len(found) > nodes)

    def draw_around(self, base: Base, key: str, *, depth: int, nodes: int, edges: int) -> GraphView | None:
        """Return the entities within `depth` steps of one, nearest first; None if no served chunk mentions it."""
        with self._database.reading() as tx:
            known = {key: None}
            last: Sequence[str] = [key]
            cut = False
            for _ in range(depth):
                beside = [other for other in _list_neighbour_keys(tx, base, last) if other not in known]
                room = nodes - len(known)
                cut = cut or len(beside) > room
                last = beside[:room]
                known |= dict.fromkeys(last)
                if not last:
                    break
            found = read_all_subjects(tx, base, [(other, "") for other in known])
            drawn = _build_view(tx, base, found.values(), edges, cut=cut)
        return drawn if any(node.key == key for node in drawn.nodes) else None

    def list_evidence(self, base: Base, source: str, target: str, limit: int) -> list[ServedPassage]:
        """Return the served chunks that mention both entities, those with a relation first."""
        found: list[tuple[bool, ServedChunk]] = []
        with self._database.reading() as tx:
            subjects = read_all_subjects(tx, base, [(source, ""), (target, ""), relation_key(source, target)])
            ends = [subjects[end, ""].locations.keys() for end in (source, target) if (end, "") in subjects]
            both = ends[0] & ends[1] if len(ends) == 2 else set()  # noqa: PLR2004 - an edge has two ends
            stated = (
                subjects[relation_key(source, target)].locations if relation_key(source, target) in subjects else {}
            )
            wanted = sorted(both, key=lambda chunk: (chunk not in stated, chunk))[:limit]
            for recipe in served_recipes(tx, base.key, GRAPH):
                chunks = read_served_chunks(tx, base.key, GRAPH, recipe, wanted)
                found += [(chunk not in stated, served) for chunk, served in chunks.items()]
        return [
            to_served_passage(served)
            for _, served in sorted(found, key=lambda pair: (pair[0], pair[1].document, pair[1].ordinal))
        ]


def _build_view(tx: Transaction, base: Base, found: Iterable[Subject], edges: int, *, cut: bool) -> GraphView:
    subjects = {subject.key[0]: subject for subject in found}
    together = _count_cooccurrences(subjects)
    strongest = sorted(together, key=lambda ends: (-together[ends], ends))
    kinds = _kinds(tx, base, subjects, set(strongest[:edges]))
    nodes = [
        Node(
            key=key, name=subject.name, kind=subject.kind, documents=subject.documents, mentions=len(subject.locations)
        )
        for key, subject in subjects.items()
    ]
    return GraphView(
        nodes=sorted(nodes, key=lambda node: (-node.documents, node.key)),
        edges=[
            Edge(source=ends[0], target=ends[1], weight=together[ends], kind=kinds.get(ends, ""))
            for ends in strongest[:edges]
        ],
        cut=cut or len(strongest) > edges,
    )


def _count_cooccurrences(subjects: Mapping[str, Subject]) -> Counter[SubjectKey]:
    """Count the chunks that mention each pair of entities."""
    named: defaultdict[int, list[str]] = defaultdict(list)
    for key, subject in subjects.items():
        for chunk in subject.locations:
            named[chunk].append(key)
    return Counter(ends for keys in named.values() for ends in combinations(sorted(keys[:MAX_ENTITIES_PER_CHUNK]), 2))


def _kinds(
    tx: Transaction, base: Base, subjects: Mapping[str, Subject], edges: Collection[SubjectKey]
) -> dict[SubjectKey, str]:
    """Return the most frequent label of each edge among served chunks."""
    labels: defaultdict[SubjectKey, Counter[str]] = defaultdict(Counter)
    for recipe in served_recipes(tx, base.key, GRAPH):
        for source, target, chunk, label in tx.run(
            sql.SELECT_RELATION_LABELS, [[key] for key in subjects], recipe=recipe
        ):
            ends = relation_key(source, target)
            if ends in edges and chunk in subjects[source].locations:
                labels[ends][label] += 1
    return {ends: most_frequent(counted) for ends, counted in labels.items()}


def _list_neighbour_keys(tx: Transaction, base: Base, keys: Sequence[str]) -> list[str]:
    """Return related entities first, then those that most chunks mention together with the given ones."""
    counted: Counter[str] = Counter()
    subjects = read_all_subjects(tx, base, [(key, "") for key in keys])
    chunks = sorted({chunk for subject in subjects.values() for chunk in subject.locations})[:MAX_CHUNKS_PER_STEP]
    for recipe in served_recipes(tx, base.key, GRAPH):
        counted.update(
            key for _, key, _ in tx.run(sql.SELECT_NAMES_OF_CHUNKS, [[chunk] for chunk in chunks], recipe=recipe)
        )
    ends = {end for both in read_all_subjects(tx, base, list_relation_keys(tx, base, keys)) for end in both}
    return sorted({*counted, *ends}, key=lambda other: (other not in ends, -counted[other], other))
