"""From a query to passages that are served, and answers that quote them."""

from holdfast.search.answer_generation import AnswerOutcome
from holdfast.search.fusion import ChannelScore
from holdfast.search.results import Hit, Hits, Notice

__all__ = [
    "AnswerOutcome",
    "ChannelScore",
    "Hit",
    "Hits",
    "Notice",
]
