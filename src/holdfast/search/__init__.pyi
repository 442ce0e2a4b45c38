from .answer_generation import AnswerOutcome
from .answers import OUTCOME_MESSAGES, Answer, Mode
from .citations import Citation
from .fusion import ChannelScore
from .results import Hit, Hits, Notice

__all__ = [
    "OUTCOME_MESSAGES",
    "Answer",
    "AnswerOutcome",
    "ChannelScore",
    "Citation",
    "Hit",
    "Hits",
    "Mode",
    "Notice",
]
