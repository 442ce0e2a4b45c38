"""Search: from a query to served passages, and to answers that quote them."""

from holdfast.search.answer_generation import AnswerOutcome
from holdfast.search.citations import Citation
from holdfast.search.fusion import ChannelScore
from holdfast.search.results import Hit, Hits, Notice

__all__ = [
    "AnswerOutcome",
    "ChannelScore",
    "Citation",
    "Hit",
    "Hits",
    "Notice",
]
