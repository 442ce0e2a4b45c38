from .archives import RestoredBase, RestoreOptions
from .cards import CardSetStatus
from .probe import ProviderTestResult

__all__ = [
    "CardSetStatus",
    "ProviderTestResult",
    "RestoreOptions",
    "RestoredBase",
]
