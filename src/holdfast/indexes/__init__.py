"""Indexes over the chunks of documents, each a kind of slot: how their rows are made, kept, found and removed."""

from holdfast.indexes.base import CONTENT, Found, NotEnabled, Rescores, Tools, problems_of
from holdfast.indexes.costs import Costs
from holdfast.indexes.gc import Sweeper, without_chunk
from holdfast.indexes.registry import Indexes

__all__ = [
    "CONTENT",
    "Costs",
    "Found",
    "Indexes",
    "NotEnabled",
    "Rescores",
    "Sweeper",
    "Tools",
    "problems_of",
    "without_chunk",
]
