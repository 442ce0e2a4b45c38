from .archives import RestoredBase, RestoreOptions
from .cards import CardSetStatus
from .probe import ProviderTestResult
from .removal import REMOVING, parse_removal
from .slots import ROLLOUT

__all__ = [
    "REMOVING",
    "ROLLOUT",
    "CardSetStatus",
    "ProviderTestResult",
    "RestoreOptions",
    "RestoredBase",
    "parse_removal",
]
