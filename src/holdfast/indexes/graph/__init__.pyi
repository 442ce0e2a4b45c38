from .evidence import GRAPH, Subject, locate_served_chunks, read_document_names
from .graph_queries import (
    Entity,
    EntityDetails,
    Fact,
    GraphQueries,
    Mention,
    Neighbour,
    list_word_spans,
    pick_longest,
)
from .index import GraphIndex
from .rows import NAMED_ROLE

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
