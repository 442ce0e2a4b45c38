"""The index `questions`: chunks by the questions that they answer."""

from holdfast.indexes.questions.index import KIND, QuestionsIndex
from holdfast.indexes.questions.pairs import Numbered, Pairs, best_of, fitting, pairs_in
from holdfast.indexes.questions.prompt import distinct
from holdfast.indexes.questions.tables import cards, question_pairs

__all__ = [
    "KIND",
    "Numbered",
    "Pairs",
    "QuestionsIndex",
    "best_of",
    "cards",
    "distinct",
    "fitting",
    "pairs_in",
    "question_pairs",
]
