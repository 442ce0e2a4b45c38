"""The schema of paid answers and of the ledger."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    Table,
    Text,
    UniqueConstraint,
)

from holdfast.db import IdType, metadata

memos = Table(
    "library_memos",
    metadata,
    Column("id", IdType, primary_key=True),
    Column("tenant", Text, nullable=False),
    Column("key", Text, nullable=False),  # digest of kind, recipe and text
    Column("value", LargeBinary, nullable=False),
    Column("joint", Integer, nullable=False, server_default="0"),  # made from several documents
    Column("tokens_in", BigInteger, nullable=False, server_default="0"),  # its cost, saved at each later use
    Column("tokens_out", BigInteger, nullable=False, server_default="0"),
    Column("created_at", BigInteger, nullable=False),
    UniqueConstraint("tenant", "key"),
    CheckConstraint("joint IN (0, 1)", name="joint"),
    sqlite_autoincrement=True,
)

memo_uses = Table(
    "library_memo_uses",
    metadata,
    Column("memo_id", IdType, ForeignKey("library_memos.id"), primary_key=True, autoincrement=False),
    Column("chunk_id", IdType, primary_key=True, autoincrement=False),
    Index("library_memo_uses_chunk", "chunk_id"),
    sqlite_with_rowid=False,
)

# Paid answers of a restored base, held until the chunks exist that use them.
memo_holds = Table(
    "library_memo_holds",
    metadata,
    Column("item_id", IdType, primary_key=True, autoincrement=False),
    Column("digest", Text, primary_key=True),  # of the chunk
    Column("memo_id", IdType, ForeignKey("library_memos.id"), primary_key=True, autoincrement=False),
    Index("library_memo_holds_memo", "memo_id"),
    sqlite_with_rowid=False,
)

ledger = Table(
    "library_ledger",
    metadata,
    Column("id", IdType, primary_key=True),
    Column("at", BigInteger, nullable=False),
    Column("base", Text, nullable=False),
    Column("owner", Text),  # None if not paid for a document
    Column("job", Text),
    Column("generation", BigInteger),
    Column("kind", Text, nullable=False),  # embedding, extraction, query, ...
    Column("model", Text, nullable=False),
    Column("paid", Integer, nullable=False),  # 1 paid, 0 avoided
    Column("texts", Integer, nullable=False),
    Column("tokens_in", BigInteger, nullable=False),
    Column("tokens_out", BigInteger, nullable=False),
    Column("price", Float),  # None if unknown
    Column("estimated", Integer, nullable=False, server_default="0"),  # 1: the provider did not report the tokens
    Index("library_ledger_base", "base", "owner"),
    sqlite_autoincrement=True,
)
