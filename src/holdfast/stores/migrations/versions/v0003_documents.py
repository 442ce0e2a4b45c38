"""Bases and their documents, builds and chunks, memos of paid answers, and what was spent.

Frozen, like every version before the newest.
"""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def _only(condition: str) -> dict[str, Any]:
    return {"sqlite_where": sa.text(condition), "postgresql_where": sa.text(condition)}


def upgrade() -> None:
    """Make room for documents beside the slots."""
    op.create_table(
        "bases",
        sa.Column("id", ID, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("settings", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("bases_pkey")),
        sa.UniqueConstraint("name", name=op.f("bases_name_key")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "builds",
        sa.Column("owner_id", ID, autoincrement=False, nullable=False),
        sa.Column("build", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("title", sa.Text(), nullable=True),
        sa.Column("pages", sa.Text(), nullable=False),
        sa.Column("facts", sa.Text(), nullable=False),
        sa.Column("length", sa.BigInteger(), nullable=False),
        sa.Column("settled", sa.Integer(), server_default="0", nullable=False),
        sa.CheckConstraint("settled IN (0, 1)", name=op.f("builds_settled_check")),
        sa.PrimaryKeyConstraint("owner_id", "build", name=op.f("builds_pkey")),
    )
    op.create_index("builds_unsettled", "builds", ["owner_id", "build"], **_only("settled = 0"))
    op.create_table(
        "chunks",
        sa.Column("id", ID, nullable=False),
        sa.Column("owner_id", ID, nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("headings", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("opening", sa.Integer(), nullable=False),
        sa.Column("doomed", sa.Integer(), server_default="0", nullable=False),
        sa.CheckConstraint("doomed IN (0, 1)", name=op.f("chunks_doomed_check")),
        sa.PrimaryKeyConstraint("id", name=op.f("chunks_pkey")),
        sqlite_autoincrement=True,
    )
    op.create_index("chunks_digest", "chunks", ["owner_id", "digest"], unique=True, **_only("doomed = 0"))
    op.create_index("chunks_doomed", "chunks", ["owner_id"], **_only("doomed = 1"))
    op.create_table(
        "graph_chunks",
        sa.Column("recipe", ID, autoincrement=False, nullable=False),
        sa.Column("chunk_id", ID, autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("recipe", "chunk_id", name=op.f("graph_chunks_pkey")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "ledger",
        sa.Column("id", ID, nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("base", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("job", sa.Text(), nullable=True),
        sa.Column("generation", sa.BigInteger(), nullable=True),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("paid", sa.Integer(), nullable=False),
        sa.Column("texts", sa.Integer(), nullable=False),
        sa.Column("tokens_in", sa.BigInteger(), nullable=False),
        sa.Column("tokens_out", sa.BigInteger(), nullable=False),
        sa.Column("price", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("ledger_pkey")),
        sqlite_autoincrement=True,
    )
    op.create_index("ledger_base", "ledger", ["base", "owner"])
    op.create_table(
        "lists",
        sa.Column("owner_id", ID, autoincrement=False, nullable=False),
        sa.Column("chunk_id", ID, autoincrement=False, nullable=False),
        sa.Column("build", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("start", sa.Integer(), nullable=False),
        sa.Column("body", sa.Integer(), nullable=False),
        sa.Column("stop", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("owner_id", "chunk_id", "build", name=op.f("lists_pkey")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "memos",
        sa.Column("id", ID, nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("value", sa.LargeBinary(), nullable=False),
        sa.Column("joint", sa.Integer(), server_default="0", nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("joint IN (0, 1)", name=op.f("memos_joint_check")),
        sa.PrimaryKeyConstraint("id", name=op.f("memos_pkey")),
        sa.UniqueConstraint("tenant", "key", name=op.f("memos_tenant_key_key")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "missing",
        sa.Column("slot_id", ID, autoincrement=False, nullable=False),
        sa.Column("chunk_id", ID, autoincrement=False, nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("slot_id", "chunk_id", name=op.f("missing_pkey")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "names",
        sa.Column("id", ID, nullable=False),
        sa.Column("recipe", ID, nullable=False),
        sa.Column("chunk_id", ID, nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("label", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), server_default="", nullable=False),
        sa.Column("description", sa.Text(), server_default="", nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("names_pkey")),
        sqlite_autoincrement=True,
    )
    op.create_index("names_chunk", "names", ["recipe", "chunk_id"])
    op.create_index("names_defined", "names", ["recipe", "id"], **_only("role != 'named'"))
    op.create_index("names_key", "names", ["recipe", "key"])
    op.create_table(
        "recipes",
        sa.Column("id", ID, nullable=False),
        sa.Column("base", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("recipes_pkey")),
        sa.UniqueConstraint("base", "kind", "spec", name=op.f("recipes_base_kind_spec_key")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "relations",
        sa.Column("id", ID, nullable=False),
        sa.Column("recipe", ID, nullable=False),
        sa.Column("chunk_id", ID, nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("label", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), server_default="", nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("relations_pkey")),
        sqlite_autoincrement=True,
    )
    op.create_index("relations_chunk", "relations", ["recipe", "chunk_id"])
    op.create_index("relations_source", "relations", ["recipe", "source"])
    op.create_index("relations_target", "relations", ["recipe", "target"])
    op.create_table(
        "documents",
        sa.Column("id", ID, nullable=False),
        sa.Column("base_id", ID, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("blob", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("metadata", sa.Text(), server_default="{}", nullable=False),
        sa.Column("deleting", sa.Integer(), server_default="0", nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("deleting IN (0, 1)", name=op.f("documents_deleting_check")),
        sa.ForeignKeyConstraint(["base_id"], ["bases.id"], name=op.f("documents_base_id_fkey")),
        sa.PrimaryKeyConstraint("id", name=op.f("documents_pkey")),
        sqlite_autoincrement=True,
    )
    op.create_index("documents_digest", "documents", ["base_id", "digest"], **_only("deleting = 0"))
    op.create_index("documents_name", "documents", ["base_id", "name"], unique=True, **_only("deleting = 0"))
    op.create_table(
        "memo_uses",
        sa.Column("memo_id", ID, autoincrement=False, nullable=False),
        sa.Column("chunk_id", ID, autoincrement=False, nullable=False),
        sa.ForeignKeyConstraint(["memo_id"], ["memos.id"], name=op.f("memo_uses_memo_id_fkey")),
        sa.PrimaryKeyConstraint("memo_id", "chunk_id", name=op.f("memo_uses_pkey")),
        sqlite_with_rowid=False,
    )
    op.create_index("memo_uses_chunk", "memo_uses", ["chunk_id"])
    op.add_column("slots", sa.Column("recipe", ID, nullable=True))
