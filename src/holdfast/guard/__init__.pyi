from .answers import ADMISSION_MESSAGES, Admission, DeliveryResult, Finished, KeyStatus
from .guard import Guard
from .run import Run
from .work import Work

__all__ = [
    "ADMISSION_MESSAGES",
    "Admission",
    "DeliveryResult",
    "Finished",
    "Guard",
    "KeyStatus",
    "Run",
    "Work",
]
