"""The index `questions`: finds chunks by the questions that they answer."""

from holdfast.indexes.questions.index import KIND, QuestionsIndex
from holdfast.indexes.questions.pairs import PairStore, StoredPair, combine_scores, rank_chunks, read_document_pairs
from holdfast.indexes.questions.prompt import remove_duplicate_questions
from holdfast.indexes.questions.tables import cards, question_pairs

__all__ = [
    "KIND",
    "PairStore",
    "QuestionsIndex",
    "StoredPair",
    "cards",
    "combine_scores",
    "question_pairs",
    "rank_chunks",
    "read_document_pairs",
    "remove_duplicate_questions",
]
