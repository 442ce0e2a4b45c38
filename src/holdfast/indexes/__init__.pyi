from .base import CONTENT, Found, NotEnabled, Probed, Rescores, Tools, describe_not_enabled
from .costs import CostEstimator
from .gc import ChunkGarbageCollector, find_nonexistent_chunks
from .registry import IndexRegistry
from .sizes import INDEX_ROWS, IndexRowCounter
from .transfer import IndexRow, IndexRows, IndexTable

__all__ = [
    "CONTENT",
    "INDEX_ROWS",
    "ChunkGarbageCollector",
    "CostEstimator",
    "Found",
    "IndexRegistry",
    "IndexRow",
    "IndexRowCounter",
    "IndexRows",
    "IndexTable",
    "NotEnabled",
    "Probed",
    "Rescores",
    "Tools",
    "describe_not_enabled",
    "find_nonexistent_chunks",
]
