"""The schema of questions and of the cards made of them; the same on both databases.

Words and vectors of questions stand on shelves of their own, a table for each recipe, under the ids of pairs (see
`questions`). Ids of pairs are never used twice, so that a row of a shelf can never be taken for another pair's.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Index, Integer, Table, Text, UniqueConstraint

from holdfast.db import IdType, metadata

question_chunks = Table(
    "library_question_chunks",
    metadata,
    Column("recipe", IdType, primary_key=True, autoincrement=False),
    Column("chunk_id", IdType, primary_key=True, autoincrement=False),  # its pairs are written, however few
    sqlite_with_rowid=False,
)

question_pairs = Table(
    "library_pairs",
    metadata,
    Column("id", IdType, primary_key=True),
    Column("recipe", IdType, nullable=False),
    Column("chunk_id", IdType, nullable=False),
    Column("place", Integer, nullable=False),  # among the pairs of its chunk
    Column("question", Text, nullable=False),
    Column("answer", Text, nullable=False),
    UniqueConstraint("recipe", "chunk_id", "place"),
    sqlite_autoincrement=True,
)

# A card is a pair that was chosen, not a copy of it: when the pair goes, nothing of its text is left.
cards = Table(
    "library_cards",
    metadata,
    Column("owner_id", IdType, primary_key=True, autoincrement=False),
    Column("build", BigInteger, primary_key=True, autoincrement=False),  # fence of the slot that wrote the set
    Column("place", Integer, primary_key=True, autoincrement=False),
    Column("pair_id", IdType, nullable=False),
    Index("library_cards_pair", "pair_id"),
    sqlite_with_rowid=False,
)
