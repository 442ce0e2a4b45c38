from .answer_generation import AnswerOutcome
from .citations import Citation
from .fusion import ChannelScore
from .results import Hit, Hits, Notice

__all__ = [
    "AnswerOutcome",
    "ChannelScore",
    "Citation",
    "Hit",
    "Hits",
    "Notice",
]
