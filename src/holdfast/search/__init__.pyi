from .answer_generation import AnswerOutcome
from .answers import OUTCOME_MESSAGES, Answer, Mode
from .calibrator import Calibrator
from .citations import Citation
from .fusion import ChannelScore
from .results import Hit, Hits, Notice

__all__ = [
    "OUTCOME_MESSAGES",
    "Answer",
    "AnswerOutcome",
    "Calibrator",
    "ChannelScore",
    "Citation",
    "Hit",
    "Hits",
    "Mode",
    "Notice",
]
