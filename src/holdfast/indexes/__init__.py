"""Indexes over the chunks of documents: each index is a kind of slot, builds rows and searches them."""

from holdfast.indexes.base import CONTENT, Found, NotEnabled, Probed, Rescores, Tools, describe_not_enabled
from holdfast.indexes.costs import CostEstimator
from holdfast.indexes.gc import ChunkGarbageCollector, find_nonexistent_chunks
from holdfast.indexes.registry import IndexRegistry

__all__ = [
    "CONTENT",
    "ChunkGarbageCollector",
    "CostEstimator",
    "Found",
    "IndexRegistry",
    "NotEnabled",
    "Probed",
    "Rescores",
    "Tools",
    "describe_not_enabled",
    "find_nonexistent_chunks",
]
