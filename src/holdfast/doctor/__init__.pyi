from .check_erasure import explain_stage
from .doctor import Doctor
from .report import Finding

__all__ = [
    "Doctor",
    "Finding",
    "explain_stage",
]
