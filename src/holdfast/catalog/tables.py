"""The schema of items and their chunks.

The owner of a document's slots has the id of the base in `owners.base` and the id of the item in `owners.owner`, as
text. The slot `source` of an item has an owner of its own (`Item.source_key`). Ids of items, chunks and recipes are
never used twice. So an index row that outlives its chunk, in any store, is never attributed to another chunk. A
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
# The status of an item that is not a container. `documents.selection` derives the same; a test compares both.
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
    Column("problem", Text),  # JSON: why the base has failed; NULL: it has not
    Column("deleting", Integer, nullable=False, server_default="0"),  # 1: hidden, and its name is free
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
    Column("parent_id", IdType, nullable=False, server_default="0"),  # its container; 0: none
    Column("kind", Text, nullable=False),
    Column("name", Text, nullable=False),  # the extension of a file decides how it is read
    Column("blob", Text),  # name of the file with its bytes; NULL: none yet
    Column("digest", Text),  # SHA-256 of its bytes
    Column("size", BigInteger, nullable=False, server_default="0"),
    Column("metadata", Text, nullable=False, server_default="{}"),
    Column("source", Text),  # a URL or a path; NULL for uploads
    Column("seen", Text),  # state of the source at the last read
    Column("every", BigInteger),  # seconds between two reads of the source
    Column("look_at", BigInteger),  # when the next read is due
    Column("problem", Text),  # JSON: why it cannot be indexed at all; NULL for items with slots
    Column("deleting", Integer, nullable=False, server_default="0"),  # 1: hidden, and its name is free
    Column("created_at", BigInteger, nullable=False),
    Column("changed_at", BigInteger, nullable=False, server_default="0"),  # when its content or metadata changed
    Column("folded", Folded, nullable=False, server_default=""),  # its name as lists sort and filter it
    Column("local", Integer, nullable=False, server_default="0"),  # 1: a folder named by the local user
    CheckConstraint("kind IN ('directory', 'file', 'note', 'sitemap', 'url')", name="kind"),
    CheckConstraint("(blob IS NULL) = (digest IS NULL)", name="bytes"),
    CheckConstraint("deleting IN (0, 1)", name="deleting"),
    Index("library_items_name", "base_id", "parent_id", "name", unique=True, **partial_index("deleting = 0")),
    Index("library_items_digest", "base_id", "digest", **partial_index("deleting = 0")),
    Index("library_items_blob", "blob", **partial_index("blob IS NOT NULL")),
    Index("library_items_parent", "parent_id", **partial_index("parent_id > 0")),
    Index("library_items_deleting", "base_id", "id", **partial_index("deleting = 1")),
    Index("library_items_due", "look_at", **partial_index("deleting = 0 AND look_at IS NOT NULL")),
    # For lists of a base and of one container.
    Index("library_items_folded", "base_id", "folded", "id", **partial_index("deleting = 0")),
    Index("library_items_size", "base_id", "size", "id", **partial_index("deleting = 0")),
    Index("library_items_changed", "base_id", "changed_at", "id", **partial_index("deleting = 0")),
    Index("library_items_folded_in", "base_id", "parent_id", "folded", "id", **partial_index("deleting = 0")),
    Index("library_items_size_in", "base_id", "parent_id", "size", "id", **partial_index("deleting = 0")),
    Index("library_items_changed_in", "base_id", "parent_id", "changed_at", "id", **partial_index("deleting = 0")),
    sqlite_autoincrement=True,
)

# The status of each item, in a table of its own. Triggers write it, in the transaction that writes the status of one of
# the item's two owners and under the lock of that owner; adding and deleting write the item itself. So no deadlock is
# possible. A hidden item loses its row when its clean-up is requested, which may be a moment later.
item_statuses = Table(
    "library_standings",
    metadata,
    Column("item_id", IdType, primary_key=True, autoincrement=False),
    Column("base_id", IdType, nullable=False),
    Column("parent_id", IdType, nullable=False),
    Column("container", Integer, nullable=False),
    Column("problem", Integer, nullable=False),  # 1: the item cannot be indexed at all
    Column("document", Text),  # status of the owner of its content and indexes; NULL: no such owner
    Column("source", Text),  # status of the owner of its slot `source`
    Column("served", Integer, nullable=False, server_default="0"),  # 1: it was searchable when it last came to rest
    Column("status", Text, Computed(STATUS, persisted=True)),  # NULL for a container, see `documents.lists`
    Index("library_standings_status", "base_id", "status", "item_id"),
    Index("library_standings_status_in", "base_id", "parent_id", "status", "item_id", "served"),
)

# Files that no item references: an upload is writing them, or they must be removed. A row is written before the bytes.
# It is deleted in the transaction in which an item references the file, or after the file was removed.
files = Table(
    "library_files",
    metadata,
    Column("id", Text, primary_key=True),  # the unique id at the end of the blob's name
    Column("name", Text),  # NULL: an upload is writing it; '': the upload was given up; else the blob to remove
    Column("holder", Text, nullable=False),  # the process that wrote the record
    Column("due_at", BigInteger, nullable=False),  # when the record expires
)

condemned = Table(
    "library_condemned",
    metadata,
    Column("name", Text, primary_key=True),  # of a blob that no row may reference
    Column("at", BigInteger, nullable=False),
)

recipes = Table(
    "library_recipes",
    metadata,
    Column("id", IdType, primary_key=True),
    Column("base", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("spec", Text, nullable=False),  # JSON: everything that a row depends on besides its chunk
    Column("doomed_at", BigInteger),  # since when no rows are made with it
    Column("created_at", BigInteger, nullable=False),
    Index("library_recipes_spec", "base", "kind", "spec", unique=True, **partial_index("doomed_at IS NULL")),
    sqlite_autoincrement=True,
)

calibrations = Table(  # of the search channels of a base; see search/calibration.py
    "library_calibrations",
    metadata,
    Column("base_id", IdType, primary_key=True, autoincrement=False),
    Column("chunks", BigInteger, nullable=False),  # live ones, at the measurement
    Column("measured", Text, nullable=False),  # JSON
)

builds = Table(
    "library_builds",
    metadata,
    Column("owner_id", IdType, primary_key=True, autoincrement=False),
    Column("build", BigInteger, primary_key=True, autoincrement=False),  # fence of the content slot that wrote it
    Column("title", Text),
    Column("pages", Text, nullable=False),  # JSON: offsets of the pages
    Column("facts", Text, nullable=False),  # JSON: metadata and warnings of the reader
    Column("length", BigInteger, nullable=False),  # characters
    Column("settled", Integer, nullable=False, server_default="0"),  # 1: served, and its owner has no garbage
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
    Column("opening", Integer, nullable=False),  # 1: the first chunk of the document
    Column("doomed", Integer, nullable=False, server_default="0"),  # 1: in no list, and never listed again
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
