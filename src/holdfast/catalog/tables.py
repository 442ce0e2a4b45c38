"""The schema of items and their chunks.

An owner of slots is a document: `owners.base` is the id of its base and `owners.owner` that of its item, as text. What
looks at the source of an item is an owner of its own (`Item.source_key`). Ids of items, chunks and recipes are never
used twice, so that a row of an index that outlives its chunk, in whatever store, can never be taken for another's. A
*build* is a list of chunks, named by owner and fence.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Computed,
    ForeignKey,
    Index,
    Integer,
    Table,
    Text,
)

from holdfast.db import IdType, SecureDeleteStage, make_in_condition, metadata, partial_index

Folded = Text().with_variant(Text(collation="C"), "postgresql")  # in the same order on both databases
# The status of an item that is no container, as `documents.selection` joins it; a test compares both.
STATUS = """CASE
WHEN container = 1 THEN NULL
WHEN problem = 1 THEN 'failed'
WHEN document = 'deleting' OR source = 'deleting' THEN 'deleting'
WHEN document = 'indexing' OR source = 'indexing' THEN 'indexing'
WHEN document = 'queued' OR source = 'queued' THEN 'queued'
WHEN document = 'success' AND coalesce(source, 'success') = 'success' THEN 'success'
WHEN document = 'success' OR document = 'degraded' OR source = 'degraded' THEN 'degraded'
WHEN document = 'failed' OR source = 'failed' THEN 'failed'
ELSE 'not_indexed'
END"""

bases = Table(
    "library_bases",
    metadata,
    Column("id", IdType, primary_key=True),
    Column("name", Text, nullable=False),
    Column("settings", Text, nullable=False),
    Column("problem", Text),  # JSON: why nothing can be indexed; NULL while all is well
    Column("deleting", Integer, nullable=False, server_default="0"),  # its name is free again
    Column("created_at", BigInteger, nullable=False),
    CheckConstraint("deleting IN (0, 1)", name="deleting"),
    Index("library_bases_name", "name", unique=True, **partial_index("deleting = 0")),
    sqlite_autoincrement=True,
)

items = Table(
    "library_items",
    metadata,
    Column("id", IdType, primary_key=True),
    Column("base_id", IdType, ForeignKey("library_bases.id"), nullable=False),
    Column("parent_id", IdType, nullable=False, server_default="0"),  # the container it stands in; 0: none
    Column("kind", Text, nullable=False),
    Column("name", Text, nullable=False),  # what people call it; the ending of a file tells what it is
    Column("blob", Text),  # name of the file that holds its bytes; NULL while it has none
    Column("digest", Text),  # SHA-256 of its bytes
    Column("size", BigInteger, nullable=False, server_default="0"),
    Column("metadata", Text, nullable=False, server_default="{}"),
    Column("source", Text),  # where it comes from: an address, or a path; NULL for what was uploaded
    Column("seen", Text),  # how its source looked when it was last read
    Column("every", BigInteger),  # seconds after which its source is looked at again
    Column("look_at", BigInteger),  # when that is due
    Column("problem", Text),  # JSON: why it cannot be indexed at all; NULL for all that has slots
    Column("deleting", Integer, nullable=False, server_default="0"),  # its name is free again
    Column("created_at", BigInteger, nullable=False),
    Column("changed_at", BigInteger, nullable=False, server_default="0"),  # its content or metadata
    Column("folded", Folded, nullable=False, server_default=""),  # its name as lists are ordered and looked through
    Column("local", Integer, nullable=False, server_default="0"),  # 1: a folder that the local user named, not a key
    CheckConstraint("kind IN ('directory', 'file', 'note', 'sitemap', 'url')", name="kind"),
    CheckConstraint("(blob IS NULL) = (digest IS NULL)", name="bytes"),
    CheckConstraint("deleting IN (0, 1)", name="deleting"),
    Index("library_items_name", "base_id", "parent_id", "name", unique=True, **partial_index("deleting = 0")),
    Index("library_items_digest", "base_id", "digest", **partial_index("deleting = 0")),
    Index("library_items_blob", "blob", **partial_index("blob IS NOT NULL")),
    Index("library_items_parent", "parent_id", **partial_index("parent_id > 0")),
    Index("library_items_deleting", "base_id", "id", **partial_index("deleting = 1")),
    Index("library_items_due", "look_at", **partial_index("deleting = 0 AND look_at IS NOT NULL")),
    # Lists of a base, and of what stands in one container.
    Index("library_items_folded", "base_id", "folded", "id", **partial_index("deleting = 0")),
    Index("library_items_size", "base_id", "size", "id", **partial_index("deleting = 0")),
    Index("library_items_changed", "base_id", "changed_at", "id", **partial_index("deleting = 0")),
    Index("library_items_folded_in", "base_id", "parent_id", "folded", "id", **partial_index("deleting = 0")),
    Index("library_items_size_in", "base_id", "parent_id", "size", "id", **partial_index("deleting = 0")),
    Index("library_items_changed_in", "base_id", "parent_id", "changed_at", "id", **partial_index("deleting = 0")),
    sqlite_autoincrement=True,
)

# How an item stands, beside it: its row is written by those who put it in and out, this one by triggers, in the
# transaction that writes the status of one of its two owners and under the lock of that owner. So nobody waits in a
# circle. What is hidden loses its row when its clean-up is asked for, which may be a moment later.
item_statuses = Table(
    "library_standings",
    metadata,
    Column("item_id", IdType, primary_key=True, autoincrement=False),
    Column("base_id", IdType, nullable=False),
    Column("parent_id", IdType, nullable=False),
    Column("container", Integer, nullable=False),
    Column("problem", Integer, nullable=False),  # 1: it cannot be indexed at all
    Column("document", Text),  # status of the owner of its content and indexes; NULL: there is none
    Column("source", Text),  # status of the owner that looks at its source
    Column("served", Integer, nullable=False, server_default="0"),  # 1: when it last came to rest, it could be searched
    Column("status", Text, Computed(STATUS, persisted=True)),  # NULL for a container, which stands as its children do
    Index("library_standings_status", "base_id", "status", "item_id"),
    Index("library_standings_status_in", "base_id", "parent_id", "status", "item_id", "served"),
)

# Files that no item names: an upload writes them, or they are to be removed. A row is written before the bytes are, and
# goes in the transaction in which an item names the file, or after the file is gone.
files = Table(
    "library_files",
    metadata,
    Column("id", Text, primary_key=True),  # the part of a blob's name that is its own
    Column("name", Text),  # NULL: an upload may write it; '': that was given up; else the blob that is to be removed
    Column("holder", Text, nullable=False),  # the process that writes it
    Column("due_at", BigInteger, nullable=False),  # after which it is settled
)

condemned = Table(
    "library_condemned",
    metadata,
    Column("name", Text, primary_key=True),  # of a blob that no row names, and never will
    Column("at", BigInteger, nullable=False),
)

recipes = Table(
    "library_recipes",
    metadata,
    Column("id", IdType, primary_key=True),
    Column("base", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("spec", Text, nullable=False),  # JSON: all that a row depends on beside its chunk
    Column("doomed_at", BigInteger),  # since then nothing is made by it any more
    Column("created_at", BigInteger, nullable=False),
    Index("library_recipes_spec", "base", "kind", "spec", unique=True, **partial_index("doomed_at IS NULL")),
    sqlite_autoincrement=True,
)

builds = Table(
    "library_builds",
    metadata,
    Column("owner_id", IdType, primary_key=True, autoincrement=False),
    Column("build", BigInteger, primary_key=True, autoincrement=False),  # fence of the content slot that wrote it
    Column("title", Text),
    Column("pages", Text, nullable=False),  # JSON: where pages begin
    Column("facts", Text, nullable=False),  # JSON: metadata and warnings of the reading
    Column("length", BigInteger, nullable=False),  # characters
    Column("settled", Integer, nullable=False, server_default="0"),  # shown, and nothing of its owner to sweep
    CheckConstraint("settled IN (0, 1)", name="settled"),
    Index("library_builds_unsettled", "owner_id", "build", **partial_index("settled = 0")),
)

chunks = Table(
    "library_chunks",
    metadata,
    Column("id", IdType, primary_key=True),
    Column("owner_id", IdType, nullable=False),
    Column("digest", Text, nullable=False),  # of headings, text and occurrence
    Column("headings", Text, nullable=False),  # JSON, outermost first
    Column("text", Text, nullable=False),
    Column("opening", Integer, nullable=False),  # 1: the document begins with it
    Column("doomed", Integer, nullable=False, server_default="0"),  # in no list, and never again
    CheckConstraint("doomed IN (0, 1)", name="doomed"),
    Index("library_chunks_digest", "owner_id", "digest", unique=True, **partial_index("doomed = 0")),
    Index("library_chunks_doomed", "owner_id", **partial_index("doomed = 1")),
    sqlite_autoincrement=True,
)

list_entries = Table(
    "library_lists",
    metadata,
    Column("owner_id", IdType, primary_key=True, autoincrement=False),
    Column("chunk_id", IdType, primary_key=True, autoincrement=False),
    Column("build", BigInteger, primary_key=True, autoincrement=False),
    Column("ordinal", Integer, nullable=False),
    Column("start", Integer, nullable=False),
    Column("body", Integer, nullable=False),
    Column("stop", Integer, nullable=False),
    sqlite_with_rowid=False,
)

missing_chunks = Table(
    "library_missing",
    metadata,
    Column("slot_id", IdType, primary_key=True, autoincrement=False),
    Column("chunk_id", IdType, primary_key=True, autoincrement=False),
    Column("reason", Text, nullable=False),
    sqlite_with_rowid=False,
)

erasures = Table(
    "erasures",
    metadata,
    Column("place", Text, primary_key=True),  # what is counted: rows, documents, or an FTS5 table
    Column("removed", BigInteger, nullable=False),  # on SQLite triggers count, in the transaction that removes
    Column("overwritten", BigInteger, nullable=False),  # how many of these the first stage has removed from the disk
    Column("compacted", BigInteger, nullable=False),  # and the second stage
    CheckConstraint("0 <= compacted AND compacted <= overwritten AND overwritten <= removed", name="stages"),
)

erasure_stages = Table(
    "erasure_stages",
    metadata,
    Column("stage", Text, primary_key=True),
    Column("since", BigInteger),  # when the first removal that this stage has not completed was seen
    Column("tried_at", BigInteger),
    Column("done_at", BigInteger),
    Column("obstacle", Text),  # what prevented the last attempt
    Column("blocked_since", BigInteger),  # the first of the attempts in a row that were prevented
    CheckConstraint(make_in_condition("stage", SecureDeleteStage), name="stage"),
)
