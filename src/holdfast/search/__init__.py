"""From a query to passages that are served, and answers that quote them."""

from holdfast.search.answer_generation import Outcome
from holdfast.search.fusion import Scored
from holdfast.search.results import Hit, Hits, Notice

__all__ = [
    "Hit",
    "Hits",
    "Notice",
    "Outcome",
    "Scored",
]
