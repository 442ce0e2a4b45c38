"""The index `graph`: entities and relations."""

from holdfast.indexes.graph.evidence import GRAPH, Subject, names_in, shown
from holdfast.indexes.graph.graph_queries import Entity, Fact, Mention, Neighbour, Portrait, Portraits, longest, runs
from holdfast.indexes.graph.index import GraphIndex
from holdfast.indexes.graph.rows import NAMED

__all__ = [
    "GRAPH",
    "NAMED",
    "Entity",
    "Fact",
    "GraphIndex",
    "Mention",
    "Neighbour",
    "Portrait",
    "Portraits",
    "Subject",
    "longest",
    "names_in",
    "runs",
    "shown",
]
