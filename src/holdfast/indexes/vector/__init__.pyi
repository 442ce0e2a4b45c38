from .index import VectorIndex

__all__ = [
    "VectorIndex",
]
