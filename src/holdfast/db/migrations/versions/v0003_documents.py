"""Bases and their documents, builds and chunks, the cache of paid answers, and the ledger.

Frozen, like every version before the newest.
"""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

# On SQLite, triggers count every statement that removes text, so that no program can forget to count. A later version
# that creates one of these tables again must also create its triggers again.
REMOVALS = (
    ("bases", "AFTER DELETE ON library_bases", "'rows'"),
    ("names", "AFTER UPDATE OF name ON library_bases WHEN old.name IS NOT new.name", "'rows'"),
    ("items", "AFTER DELETE ON library_items", "'rows', 'documents'"),
    (
        "changes",
        (
            "AFTER UPDATE OF name, blob, metadata, source ON library_items "
            "WHEN (old.name, old.blob, old.metadata, old.source) IS NOT (new.name, new.blob, new.metadata, new.source)"
        ),
        "'rows', 'documents'",
    ),
    ("builds", "AFTER DELETE ON library_builds", "'rows'"),
    ("chunks", "AFTER DELETE ON library_chunks", "'rows'"),
    ("memos", "AFTER DELETE ON library_memos", "'rows'"),
    ("recipes", "AFTER DELETE ON library_recipes", "'rows'"),
    ("slots", "AFTER DELETE ON slots", "'rows'"),
)


def _only(condition: str) -> dict[str, Any]:
    return {"sqlite_where": sa.text(condition), "postgresql_where": sa.text(condition)}


def upgrade() -> None:
    """Create the tables of documents."""
    op.create_table(
        "library_bases",
        sa.Column("id", ID, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("settings", sa.Text(), nullable=False),
        sa.Column("problem", sa.Text(), nullable=True),
        sa.Column("deleting", sa.Integer(), server_default="0", nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("deleting IN (0, 1)", name=op.f("library_bases_deleting_check")),
        sa.PrimaryKeyConstraint("id", name=op.f("library_bases_pkey")),
        sqlite_autoincrement=True,
    )
    op.create_index("library_bases_name", "library_bases", ["name"], unique=True, **_only("deleting = 0"))
    op.create_table(
        "library_builds",
        sa.Column("owner_id", ID, autoincrement=False, nullable=False),
        sa.Column("build", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("title", sa.Text(), nullable=True),
        sa.Column("pages", sa.Text(), nullable=False),
        sa.Column("facts", sa.Text(), nullable=False),
        sa.Column("length", sa.BigInteger(), nullable=False),
        sa.Column("settled", sa.Integer(), server_default="0", nullable=False),
        sa.CheckConstraint("settled IN (0, 1)", name=op.f("library_builds_settled_check")),
        sa.PrimaryKeyConstraint("owner_id", "build", name=op.f("library_builds_pkey")),
    )
    op.create_index("library_builds_unsettled", "library_builds", ["owner_id", "build"], **_only("settled = 0"))
    op.create_table(
        "library_cards",
        sa.Column("owner_id", ID, autoincrement=False, nullable=False),
        sa.Column("build", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("place", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("pair_id", ID, nullable=False),
        sa.PrimaryKeyConstraint("owner_id", "build", "place", name=op.f("library_cards_pkey")),
        sqlite_with_rowid=False,
    )
    op.create_index("library_cards_pair", "library_cards", ["pair_id"])
    op.create_table(
        "library_chunks",
        sa.Column("id", ID, nullable=False),
        sa.Column("owner_id", ID, nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("headings", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("opening", sa.Integer(), nullable=False),
        sa.Column("doomed", sa.Integer(), server_default="0", nullable=False),
        sa.CheckConstraint("doomed IN (0, 1)", name=op.f("library_chunks_doomed_check")),
        sa.PrimaryKeyConstraint("id", name=op.f("library_chunks_pkey")),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "library_chunks_digest", "library_chunks", ["owner_id", "digest"], unique=True, **_only("doomed = 0")
    )
    op.create_index("library_chunks_doomed", "library_chunks", ["owner_id"], **_only("doomed = 1"))
    op.create_table(
        "library_condemned",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("library_condemned_pkey")),
    )
    op.create_table(
        "library_graph_changes",
        sa.Column("id", ID, nullable=False),
        sa.Column("recipe", ID, nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("other", sa.Text(), nullable=False),
        sa.Column("chunk_id", ID, nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("library_graph_changes_pkey")),
        sqlite_autoincrement=True,
    )
    op.create_index("library_graph_changes_chunk", "library_graph_changes", ["recipe", "chunk_id"])
    op.create_index("library_graph_changes_subject", "library_graph_changes", ["recipe", "key", "other"])
    op.create_table(
        "library_graph_chunks",
        sa.Column("recipe", ID, autoincrement=False, nullable=False),
        sa.Column("chunk_id", ID, autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("recipe", "chunk_id", name=op.f("library_graph_chunks_pkey")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "library_ledger",
        sa.Column("id", ID, nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("base", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=True),
        sa.Column("job", sa.Text(), nullable=True),
        sa.Column("generation", sa.BigInteger(), nullable=True),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("paid", sa.Integer(), nullable=False),
        sa.Column("texts", sa.Integer(), nullable=False),
        sa.Column("tokens_in", sa.BigInteger(), nullable=False),
        sa.Column("tokens_out", sa.BigInteger(), nullable=False),
        sa.Column("price", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("library_ledger_pkey")),
        sqlite_autoincrement=True,
    )
    op.create_index("library_ledger_base", "library_ledger", ["base", "owner"])
    op.create_table(
        "library_lists",
        sa.Column("owner_id", ID, autoincrement=False, nullable=False),
        sa.Column("chunk_id", ID, autoincrement=False, nullable=False),
        sa.Column("build", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("start", sa.Integer(), nullable=False),
        sa.Column("body", sa.Integer(), nullable=False),
        sa.Column("stop", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("owner_id", "chunk_id", "build", name=op.f("library_lists_pkey")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "library_memos",
        sa.Column("id", ID, nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("value", sa.LargeBinary(), nullable=False),
        sa.Column("joint", sa.Integer(), server_default="0", nullable=False),
        sa.Column("tokens_in", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("tokens_out", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("joint IN (0, 1)", name=op.f("library_memos_joint_check")),
        sa.PrimaryKeyConstraint("id", name=op.f("library_memos_pkey")),
        sa.UniqueConstraint("tenant", "key", name=op.f("library_memos_tenant_key_key")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "library_merged",
        sa.Column("recipe", ID, autoincrement=False, nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("other", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("recipe", "key", "other", name=op.f("library_merged_pkey")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "library_merged_sources",
        sa.Column("recipe", ID, autoincrement=False, nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("other", sa.Text(), nullable=False),
        sa.Column("chunk_id", ID, autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("recipe", "key", "other", "chunk_id", name=op.f("library_merged_sources_pkey")),
        sqlite_with_rowid=False,
    )
    op.create_index("library_merged_sources_chunk", "library_merged_sources", ["recipe", "chunk_id"])
    op.create_table(
        "library_missing",
        sa.Column("slot_id", ID, autoincrement=False, nullable=False),
        sa.Column("chunk_id", ID, autoincrement=False, nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("slot_id", "chunk_id", name=op.f("library_missing_pkey")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "library_names",
        sa.Column("id", ID, nullable=False),
        sa.Column("recipe", ID, nullable=False),
        sa.Column("chunk_id", ID, nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("label", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), server_default="", nullable=False),
        sa.Column("description", sa.Text(), server_default="", nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("library_names_pkey")),
        sqlite_autoincrement=True,
    )
    op.create_index("library_names_chunk", "library_names", ["recipe", "chunk_id"])
    op.create_index("library_names_defined", "library_names", ["recipe", "id"], **_only("role != 'named'"))
    op.create_index("library_names_key", "library_names", ["recipe", "key"])
    op.create_table(
        "library_pairs",
        sa.Column("id", ID, nullable=False),
        sa.Column("recipe", ID, nullable=False),
        sa.Column("chunk_id", ID, nullable=False),
        sa.Column("place", sa.Integer(), nullable=False),
        sa.Column("question", sa.Text(), nullable=False),
        sa.Column("answer", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("library_pairs_pkey")),
        sa.UniqueConstraint("recipe", "chunk_id", "place", name=op.f("library_pairs_recipe_chunk_id_place_key")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "library_question_chunks",
        sa.Column("recipe", ID, autoincrement=False, nullable=False),
        sa.Column("chunk_id", ID, autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("recipe", "chunk_id", name=op.f("library_question_chunks_pkey")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "library_recipes",
        sa.Column("id", ID, nullable=False),
        sa.Column("base", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.Column("doomed_at", sa.BigInteger(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("library_recipes_pkey")),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "library_recipes_spec", "library_recipes", ["base", "kind", "spec"], unique=True, **_only("doomed_at IS NULL")
    )
    op.create_table(
        "library_relations",
        sa.Column("id", ID, nullable=False),
        sa.Column("recipe", ID, nullable=False),
        sa.Column("chunk_id", ID, nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("label", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), server_default="", nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("library_relations_pkey")),
        sqlite_autoincrement=True,
    )
    op.create_index("library_relations_chunk", "library_relations", ["recipe", "chunk_id"])
    op.create_index("library_relations_source", "library_relations", ["recipe", "source"])
    op.create_index("library_relations_target", "library_relations", ["recipe", "target"])
    op.create_table(
        "library_items",
        sa.Column("id", ID, nullable=False),
        sa.Column("base_id", ID, nullable=False),
        sa.Column("parent_id", ID, server_default="0", nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("blob", sa.Text(), nullable=True),
        sa.Column("digest", sa.Text(), nullable=True),
        sa.Column("size", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("metadata", sa.Text(), server_default="{}", nullable=False),
        sa.Column("source", sa.Text(), nullable=True),
        sa.Column("seen", sa.Text(), nullable=True),
        sa.Column("every", sa.BigInteger(), nullable=True),
        sa.Column("look_at", sa.BigInteger(), nullable=True),
        sa.Column("problem", sa.Text(), nullable=True),
        sa.Column("deleting", sa.Integer(), server_default="0", nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.CheckConstraint(
            "kind IN ('directory', 'file', 'note', 'sitemap', 'url')", name=op.f("library_items_kind_check")
        ),
        sa.CheckConstraint("(blob IS NULL) = (digest IS NULL)", name=op.f("library_items_bytes_check")),
        sa.CheckConstraint("deleting IN (0, 1)", name=op.f("library_items_deleting_check")),
        sa.ForeignKeyConstraint(["base_id"], ["library_bases.id"], name=op.f("library_items_base_id_fkey")),
        sa.PrimaryKeyConstraint("id", name=op.f("library_items_pkey")),
        sqlite_autoincrement=True,
    )
    op.create_index("library_items_blob", "library_items", ["blob"], **_only("blob IS NOT NULL"))
    op.create_index("library_items_deleting", "library_items", ["id"], **_only("deleting = 1"))
    op.create_index("library_items_digest", "library_items", ["base_id", "digest"], **_only("deleting = 0"))
    op.create_index("library_items_due", "library_items", ["look_at"], **_only("deleting = 0 AND look_at IS NOT NULL"))
    op.create_index(
        "library_items_name", "library_items", ["base_id", "parent_id", "name"], unique=True, **_only("deleting = 0")
    )
    op.create_index("library_items_parent", "library_items", ["parent_id"], **_only("parent_id > 0"))
    op.create_table(
        "library_memo_uses",
        sa.Column("memo_id", ID, autoincrement=False, nullable=False),
        sa.Column("chunk_id", ID, autoincrement=False, nullable=False),
        sa.ForeignKeyConstraint(["memo_id"], ["library_memos.id"], name=op.f("library_memo_uses_memo_id_fkey")),
        sa.PrimaryKeyConstraint("memo_id", "chunk_id", name=op.f("library_memo_uses_pkey")),
        sqlite_with_rowid=False,
    )
    op.create_index("library_memo_uses_chunk", "library_memo_uses", ["chunk_id"])
    op.add_column("slots", sa.Column("recipe", ID, nullable=True))
    op.create_index("slots_served", "slots", ["recipe"], **_only("recipe IS NOT NULL"))
    _count_removals()


def _count_removals() -> None:
    """Create the counters of removed rows, and on SQLite the triggers that raise them."""
    op.create_table(
        "erasures",
        sa.Column("place", sa.Text(), nullable=False),
        sa.Column("removed", sa.BigInteger(), nullable=False),
        sa.Column("erased", sa.BigInteger(), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=True),
        sa.Column("tried_at", sa.BigInteger(), nullable=True),
        sa.Column("held_since", sa.BigInteger(), nullable=True),
        sa.Column("step", sa.BigInteger(), server_default="0", nullable=False),
        sa.CheckConstraint("0 <= erased AND erased <= removed", name=op.f("erasures_erased_check")),
        sa.PrimaryKeyConstraint("place", name=op.f("erasures_pkey")),
    )
    op.execute("INSERT INTO erasures (place, removed, erased) VALUES ('rows', 0, 0), ('documents', 0, 0)")
    if op.get_bind().dialect.name == "sqlite":
        for name, when, places in REMOVALS:
            count = f"UPDATE erasures SET removed = removed + 1 WHERE place IN ({places})"  # noqa: S608 - our own words
            op.execute(f"CREATE TRIGGER erasures_{name} {when} BEGIN {count}; END")
