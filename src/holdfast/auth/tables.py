"""The tables of keys and idempotent requests."""

from __future__ import annotations

from sqlalchemy import BigInteger, CheckConstraint, Column, Index, Integer, LargeBinary, Table, Text, UniqueConstraint

from holdfast.auth.principal import Scope
from holdfast.db import IdType, make_in_condition, metadata

keys = Table(
    "access_keys",
    metadata,
    Column("id", IdType, primary_key=True),
    Column("name", Text, nullable=False),
    Column("prefix", Text, nullable=False),  # the shown part of the secret
    Column("digest", Text, nullable=False),  # SHA-256 of the secret, which is not stored
    Column("scope", Text, nullable=False),
    Column("bases", Text),  # JSON: ids; NULL: all bases, also future ones
    Column("created_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger),
    Column("revoked_at", BigInteger),
    Column("used_at", BigInteger),  # to the minute
    UniqueConstraint("digest"),
    CheckConstraint(make_in_condition("scope", Scope), name="scope"),
    Index("access_keys_prefix", "prefix"),
    sqlite_autoincrement=True,
)

idempotent_requests = Table(
    "access_repeats",
    metadata,
    Column("id", IdType, primary_key=True),
    Column("caller", BigInteger, nullable=False),  # id of a key; 0: no key is needed
    Column("key", Text, nullable=False),
    Column("fingerprint", Text, nullable=False),  # of the request
    Column("fence", BigInteger, nullable=False),  # rises when another process takes over
    Column("until", BigInteger, nullable=False),  # end of the lease
    Column("begun_at", BigInteger, nullable=False),
    Column("status", Integer),  # of the response; NULL: not finished
    Column("headers", Text),
    Column("body", LargeBinary),  # NULL: too large to be stored
    UniqueConstraint("caller", "key"),
    CheckConstraint("(status IS NULL) = (headers IS NULL)", name="answer"),
    CheckConstraint("status IS NOT NULL OR body IS NULL", name="body"),
    Index("access_repeats_begun", "begun_at"),
    sqlite_autoincrement=True,
)
