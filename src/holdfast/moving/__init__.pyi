from .backup import BackupResult, restore_backup, write_backup
from .copying import CopyResult
from .installation import Installation
from .move import Move, MoveOptions

__all__ = [
    "BackupResult",
    "CopyResult",
    "Installation",
    "Move",
    "MoveOptions",
    "restore_backup",
    "write_backup",
]
