from .copying import CopyResult
from .installation import Installation
from .move import Move, MoveOptions

__all__ = [
    "CopyResult",
    "Installation",
    "Move",
    "MoveOptions",
]
