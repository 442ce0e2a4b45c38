from .definitions import Definitions
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
from .graph_view import Edge, GraphView, Node
from .index import GraphIndex
from .merging import request_due_merges
from .rows import NAMED_ROLE

__all__ = [
    "GRAPH",
    "NAMED_ROLE",
    "Definitions",
    "Edge",
    "Entity",
    "EntityDetails",
    "Fact",
    "GraphIndex",
    "GraphQueries",
    "GraphView",
    "Mention",
    "Neighbour",
    "Node",
    "Subject",
    "list_word_spans",
    "locate_served_chunks",
    "pick_longest",
    "read_document_names",
    "request_due_merges",
]
