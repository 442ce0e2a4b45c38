"""The index `graph`: entities and relations."""

from holdfast.indexes.graph.evidence import GRAPH, Subject, locate_served_chunks, read_document_names
from holdfast.indexes.graph.graph_queries import (
    Entity,
    EntityDetails,
    Fact,
    GraphQueries,
    Mention,
    Neighbour,
    list_word_spans,
    pick_longest,
)
from holdfast.indexes.graph.index import GraphIndex
from holdfast.indexes.graph.rows import NAMED_ROLE

__all__ = [
    "GRAPH",
    "NAMED_ROLE",
    "Entity",
    "EntityDetails",
    "Fact",
    "GraphIndex",
    "GraphQueries",
    "Mention",
    "Neighbour",
    "Subject",
    "list_word_spans",
    "locate_served_chunks",
    "pick_longest",
    "read_document_names",
]
