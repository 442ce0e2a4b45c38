"""The index `fulltext`: chunks by their words."""

from holdfast.indexes.fulltext.index import BODY, HEADINGS, FulltextIndex, columns, headed, match, stemmed, tokenizer

__all__ = [
    "BODY",
    "HEADINGS",
    "FulltextIndex",
    "columns",
    "headed",
    "match",
    "stemmed",
    "tokenizer",
]
