from .answers import Admission, DeliveryResult, Finished, JobState, JobStatus, KeyStatus, Plain
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
    "JobState",
    "JobStatus",
    "KeyStatus",
    "Plain",
    "Run",
    "Work",
]
