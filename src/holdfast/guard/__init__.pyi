from .answers import Admission, DeliveryResult, Finished, KeyStatus
from .function import GuardedFunction
from .guard import Guard
from .run import Run
from .work import Work

__all__ = [
    "Admission",
    "DeliveryResult",
    "Finished",
    "Guard",
    "GuardedFunction",
    "KeyStatus",
    "Run",
    "Work",
]
