"""The schema of items and their chunks.

An owner of slots is a document: `owners.base` is the id of its base and `owners.owner` that of its item, as text. What
looks at the source of an item is an owner of its own (`Item.source_key`). Ids of items, chunks and recipes are never
used twice, so that a row of an index that outlives its chunk, in whatever store, can never be taken for another's. A
*build* is a list of chunks, named by owner and fence.

Rows of the graph are here, because they are the same on both databases; the other indexes make a table for each of
their recipes (see `indexes`).
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Computed,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    Table,
    Text,
    UniqueConstraint,
)

from holdfast.stores.tables import Id, metadata, only

Folded = Text().with_variant(Text(collation="C"), "postgresql")  # in the same order on both databases
# The status of an item that is no container, as `knowledge.selecting` joins it; a test compares both.
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
    Column("id", Id, primary_key=True),
    Column("name", Text, nullable=False),
    Column("settings", Text, nullable=False),
    Column("problem", Text),  # JSON: why nothing can be indexed; NULL while all is well
    Column("deleting", Integer, nullable=False, server_default="0"),  # its name is free again
    Column("created_at", BigInteger, nullable=False),
    CheckConstraint("deleting IN (0, 1)", name="deleting"),
    Index("library_bases_name", "name", unique=True, **only("deleting = 0")),
    sqlite_autoincrement=True,
)

items = Table(
    "library_items",
    metadata,
    Column("id", Id, primary_key=True),
    Column("base_id", Id, ForeignKey("library_bases.id"), nullable=False),
    Column("parent_id", Id, nullable=False, server_default="0"),  # the container it stands in; 0: none
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
    Index("library_items_name", "base_id", "parent_id", "name", unique=True, **only("deleting = 0")),
    Index("library_items_digest", "base_id", "digest", **only("deleting = 0")),
    Index("library_items_blob", "blob", **only("blob IS NOT NULL")),
    Index("library_items_parent", "parent_id", **only("parent_id > 0")),
    Index("library_items_deleting", "base_id", "id", **only("deleting = 1")),
    Index("library_items_due", "look_at", **only("deleting = 0 AND look_at IS NOT NULL")),
    # Lists of a base, and of what stands in one container.
    Index("library_items_folded", "base_id", "folded", "id", **only("deleting = 0")),
    Index("library_items_size", "base_id", "size", "id", **only("deleting = 0")),
    Index("library_items_changed", "base_id", "changed_at", "id", **only("deleting = 0")),
    Index("library_items_folded_in", "base_id", "parent_id", "folded", "id", **only("deleting = 0")),
    Index("library_items_size_in", "base_id", "parent_id", "size", "id", **only("deleting = 0")),
    Index("library_items_changed_in", "base_id", "parent_id", "changed_at", "id", **only("deleting = 0")),
    sqlite_autoincrement=True,
)

# How an item stands, beside it: its row is written by those who put it in and out, this one by triggers, in the
# transaction that writes the status of one of its two owners and under the lock of that owner. So nobody waits in a
# circle. What is hidden loses its row when its clean-up is asked for, which may be a moment later.
standings = Table(
    "library_standings",
    metadata,
    Column("item_id", Id, primary_key=True, autoincrement=False),
    Column("base_id", Id, nullable=False),
    Column("parent_id", Id, nullable=False),
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
    Column("id", Id, primary_key=True),
    Column("base", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("spec", Text, nullable=False),  # JSON: all that a row depends on beside its chunk
    Column("doomed_at", BigInteger),  # since then nothing is made by it any more
    Column("created_at", BigInteger, nullable=False),
    Index("library_recipes_spec", "base", "kind", "spec", unique=True, **only("doomed_at IS NULL")),
    sqlite_autoincrement=True,
)

builds = Table(
    "library_builds",
    metadata,
    Column("owner_id", Id, primary_key=True, autoincrement=False),
    Column("build", BigInteger, primary_key=True, autoincrement=False),  # fence of the content slot that wrote it
    Column("title", Text),
    Column("pages", Text, nullable=False),  # JSON: where pages begin
    Column("facts", Text, nullable=False),  # JSON: metadata and warnings of the reading
    Column("length", BigInteger, nullable=False),  # characters
    Column("settled", Integer, nullable=False, server_default="0"),  # shown, and nothing of its owner to sweep
    CheckConstraint("settled IN (0, 1)", name="settled"),
    Index("library_builds_unsettled", "owner_id", "build", **only("settled = 0")),
)

chunks = Table(
    "library_chunks",
    metadata,
    Column("id", Id, primary_key=True),
    Column("owner_id", Id, nullable=False),
    Column("digest", Text, nullable=False),  # of headings, text and occurrence
    Column("headings", Text, nullable=False),  # JSON, outermost first
    Column("text", Text, nullable=False),
    Column("opening", Integer, nullable=False),  # 1: the document begins with it
    Column("doomed", Integer, nullable=False, server_default="0"),  # in no list, and never again
    CheckConstraint("doomed IN (0, 1)", name="doomed"),
    Index("library_chunks_digest", "owner_id", "digest", unique=True, **only("doomed = 0")),
    Index("library_chunks_doomed", "owner_id", **only("doomed = 1")),
    sqlite_autoincrement=True,
)

lists = Table(
    "library_lists",
    metadata,
    Column("owner_id", Id, primary_key=True, autoincrement=False),
    Column("chunk_id", Id, primary_key=True, autoincrement=False),
    Column("build", BigInteger, primary_key=True, autoincrement=False),
    Column("ordinal", Integer, nullable=False),
    Column("start", Integer, nullable=False),
    Column("body", Integer, nullable=False),
    Column("stop", Integer, nullable=False),
    sqlite_with_rowid=False,
)

graph_chunks = Table(
    "library_graph_chunks",
    metadata,
    Column("recipe", Id, primary_key=True, autoincrement=False),
    Column("chunk_id", Id, primary_key=True, autoincrement=False),  # its names and relations are written
    sqlite_with_rowid=False,
)

names = Table(
    "library_names",
    metadata,
    Column("id", Id, primary_key=True),
    Column("recipe", Id, nullable=False),
    Column("chunk_id", Id, nullable=False),
    Column("key", Text, nullable=False),  # what joins the spellings of a name
    Column("role", Text, nullable=False),  # what the chunk does with it: title, opening, named
    Column("label", Text, nullable=False),  # as it was written
    Column("kind", Text, nullable=False, server_default=""),  # person, place, ...; from a language model only
    Column("description", Text, nullable=False, server_default=""),
    Index("library_names_key", "recipe", "key"),
    Index("library_names_defined", "recipe", "id", **only("role != 'named'")),
    Index("library_names_chunk", "recipe", "chunk_id"),
    sqlite_autoincrement=True,
)

relations = Table(
    "library_relations",
    metadata,
    Column("id", Id, primary_key=True),
    Column("recipe", Id, nullable=False),
    Column("chunk_id", Id, nullable=False),
    Column("source", Text, nullable=False),  # keys of names
    Column("target", Text, nullable=False),
    Column("label", Text, nullable=False),
    Column("description", Text, nullable=False, server_default=""),
    Index("library_relations_source", "recipe", "source"),
    Index("library_relations_target", "recipe", "target"),
    Index("library_relations_chunk", "recipe", "chunk_id"),
    sqlite_autoincrement=True,
)

missing = Table(
    "library_missing",
    metadata,
    Column("slot_id", Id, primary_key=True, autoincrement=False),
    Column("chunk_id", Id, primary_key=True, autoincrement=False),
    Column("reason", Text, nullable=False),
    sqlite_with_rowid=False,
)

memos = Table(
    "library_memos",
    metadata,
    Column("id", Id, primary_key=True),
    Column("tenant", Text, nullable=False),
    Column("key", Text, nullable=False),  # digest of kind, recipe and text
    Column("value", LargeBinary, nullable=False),
    Column("joint", Integer, nullable=False, server_default="0"),  # made from several documents
    Column("tokens_in", BigInteger, nullable=False, server_default="0"),  # what it cost, and spares whoever finds it
    Column("tokens_out", BigInteger, nullable=False, server_default="0"),
    Column("created_at", BigInteger, nullable=False),
    UniqueConstraint("tenant", "key"),
    CheckConstraint("joint IN (0, 1)", name="joint"),
    sqlite_autoincrement=True,
)

memo_uses = Table(
    "library_memo_uses",
    metadata,
    Column("memo_id", Id, ForeignKey("library_memos.id"), primary_key=True, autoincrement=False),
    Column("chunk_id", Id, primary_key=True, autoincrement=False),
    Index("library_memo_uses_chunk", "chunk_id"),
    sqlite_with_rowid=False,
)

# Paid answers that came with a restored base, each until the chunk is there that uses it.
memo_holds = Table(
    "library_memo_holds",
    metadata,
    Column("item_id", Id, primary_key=True, autoincrement=False),
    Column("digest", Text, primary_key=True),  # of the chunk
    Column("memo_id", Id, ForeignKey("library_memos.id"), primary_key=True, autoincrement=False),
    Index("library_memo_holds_memo", "memo_id"),
    sqlite_with_rowid=False,
)

ledger = Table(
    "library_ledger",
    metadata,
    Column("id", Id, primary_key=True),
    Column("at", BigInteger, nullable=False),
    Column("base", Text, nullable=False),
    Column("owner", Text),  # None where it was paid for no document
    Column("job", Text),
    Column("generation", BigInteger),
    Column("kind", Text, nullable=False),  # embedding, extraction, query, ...
    Column("model", Text, nullable=False),
    Column("paid", Integer, nullable=False),  # 1 paid, 0 avoided
    Column("texts", Integer, nullable=False),
    Column("tokens_in", BigInteger, nullable=False),
    Column("tokens_out", BigInteger, nullable=False),
    Column("price", Float),  # None where it is not known
    Column("estimated", Integer, nullable=False, server_default="0"),  # 1: no provider reported the tokens
    Index("library_ledger_base", "base", "owner"),
    sqlite_autoincrement=True,
)
