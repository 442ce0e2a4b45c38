from .beat import RECONCILE_TASK, reconcile_by_beat
from .decorator import guarded
from .results import GuardedResult
from .task import GuardedTask

__all__ = [
    "RECONCILE_TASK",
    "GuardedResult",
    "GuardedTask",
    "guarded",
    "reconcile_by_beat",
]
