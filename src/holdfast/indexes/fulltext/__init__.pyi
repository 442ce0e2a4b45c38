from .index import (
    BODY_WEIGHT,
    HEADING_WEIGHT,
    FulltextIndex,
    fts5_tokenizer,
    is_stemmed,
    split_headings,
    to_columns,
    to_fts5_query,
)

__all__ = [
    "BODY_WEIGHT",
    "HEADING_WEIGHT",
    "FulltextIndex",
    "fts5_tokenizer",
    "is_stemmed",
    "split_headings",
    "to_columns",
    "to_fts5_query",
]
