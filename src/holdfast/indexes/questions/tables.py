"""The schema of questions and of the cards made from them, the same on both databases.

Words and vectors of questions are in row stores, one table for each recipe, under the ids of pairs (see `pairs`). Ids
are never reused, so a leftover row cannot be mistaken for that of another pair.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Index, Integer, Table, Text, UniqueConstraint

from holdfast.db import IdType, metadata

question_chunks = Table(
    "library_question_chunks",
    metadata,
    Column("recipe", IdType, primary_key=True, autoincrement=False),
    Column("chunk_id", IdType, primary_key=True, autoincrement=False),  # its pairs are written; it may have none
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

# A card references a pair and copies nothing, so no text remains when the pair is removed.
cards = Table(
    "library_cards",
    metadata,
    Column("owner_id", IdType, primary_key=True, autoincrement=False),
    Column("build", BigInteger, primary_key=True, autoincrement=False),  # the fence of the slot when it wrote the set
    Column("place", Integer, primary_key=True, autoincrement=False),
    Column("pair_id", IdType, nullable=False),
    Index("library_cards_pair", "pair_id"),
    sqlite_with_rowid=False,
)
