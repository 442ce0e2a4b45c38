from .answers import Admission, DeliveryResult, Finished, KeyStatus
from .guard import Guard
from .run import Run
from .work import Work

__all__ = [
    "Admission",
    "DeliveryResult",
    "Finished",
    "Guard",
    "KeyStatus",
    "Run",
    "Work",
]
