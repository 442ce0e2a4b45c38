"""The schema of the graph: names, relations, merged descriptions, and changes.

A subject is an entity, by its key, or a relation, by the keys of its two ends; `other` is empty for an entity. In
merged tables the ends are sorted; in changes they have the order of the chunk.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Index, Table, Text

from holdfast.db import IdType, metadata, partial_index

merged = Table(
    "library_merged",
    metadata,
    Column("recipe", IdType, primary_key=True, autoincrement=False),
    Column("key", Text, primary_key=True),
    Column("other", Text, primary_key=True),
    Column("description", Text, nullable=False),
    Column("digest", Text, nullable=False),  # of all input texts
    sqlite_with_rowid=False,
)

merged_sources = Table(
    "library_merged_sources",
    metadata,
    Column("recipe", IdType, primary_key=True, autoincrement=False),
    Column("key", Text, primary_key=True),
    Column("other", Text, primary_key=True),
    Column("chunk_id", IdType, primary_key=True, autoincrement=False),  # its text was in the prompt
    Index("library_merged_sources_chunk", "recipe", "chunk_id"),
    sqlite_with_rowid=False,
)

graph_changes = Table(
    "library_graph_changes",
    metadata,
    Column("id", IdType, primary_key=True),
    Column("recipe", IdType, nullable=False),
    Column("key", Text, nullable=False),
    Column("other", Text, nullable=False),
    Column("chunk_id", IdType, nullable=False),  # added or removed
    Column("at", BigInteger, nullable=False),
    Index("library_graph_changes_subject", "recipe", "key", "other"),
    Index("library_graph_changes_chunk", "recipe", "chunk_id"),
    sqlite_autoincrement=True,
)

graph_chunks = Table(
    "library_graph_chunks",
    metadata,
    Column("recipe", IdType, primary_key=True, autoincrement=False),
    Column("chunk_id", IdType, primary_key=True, autoincrement=False),  # its names and relations are written
    sqlite_with_rowid=False,
)

names = Table(
    "library_names",
    metadata,
    Column("id", IdType, primary_key=True),
    Column("recipe", IdType, nullable=False),
    Column("chunk_id", IdType, nullable=False),
    Column("key", Text, nullable=False),  # the same for all spellings of a name
    Column("role", Text, nullable=False),  # title, opening, named
    Column("label", Text, nullable=False),  # as written in the chunk
    Column("kind", Text, nullable=False, server_default=""),  # person, place, ...; from a language model only
    Column("description", Text, nullable=False, server_default=""),
    Index("library_names_key", "recipe", "key"),
    Index("library_names_defined", "recipe", "id", **partial_index("role != 'named'")),
    Index("library_names_chunk", "recipe", "chunk_id"),
    sqlite_autoincrement=True,
)

relations = Table(
    "library_relations",
    metadata,
    Column("id", IdType, primary_key=True),
    Column("recipe", IdType, nullable=False),
    Column("chunk_id", IdType, nullable=False),
    Column("source", Text, nullable=False),  # keys of names
    Column("target", Text, nullable=False),
    Column("label", Text, nullable=False),
    Column("description", Text, nullable=False, server_default=""),
    Index("library_relations_source", "recipe", "source"),
    Index("library_relations_target", "recipe", "target"),
    Index("library_relations_chunk", "recipe", "chunk_id"),
    sqlite_autoincrement=True,
)
