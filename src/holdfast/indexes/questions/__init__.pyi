from .index import KIND, QuestionsIndex
from .pairs import PairStore, StoredPair, combine_scores, rank_chunks, read_document_pairs
from .prompt import remove_duplicate_questions
from .tables import cards, question_pairs

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
