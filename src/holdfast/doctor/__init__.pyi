from .check_erasure import explain_stage
from .report import Finding

__all__ = [
    "Finding",
    "explain_stage",
]
