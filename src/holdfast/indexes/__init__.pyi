from .base import CONTENT, Found, NotEnabled, Probed, Rescores, Tools, describe_not_enabled
from .costs import CostEstimator
from .gc import ChunkGarbageCollector, find_nonexistent_chunks
from .registry import IndexRegistry
from .transfer import IndexRow, IndexRows, IndexTable

__all__ = [
    "CONTENT",
    "ChunkGarbageCollector",
    "CostEstimator",
    "Found",
    "IndexRegistry",
    "IndexRow",
    "IndexRows",
    "IndexTable",
    "NotEnabled",
    "Probed",
    "Rescores",
    "Tools",
    "describe_not_enabled",
    "find_nonexistent_chunks",
]
