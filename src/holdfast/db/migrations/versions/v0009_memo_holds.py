"""Keeps the paid answers of a restored base until its chunks, which use them, exist."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "library_memo_holds",
        sa.Column("item_id", ID, autoincrement=False, nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("memo_id", ID, autoincrement=False, nullable=False),
        sa.ForeignKeyConstraint(["memo_id"], ["library_memos.id"], name=op.f("library_memo_holds_memo_id_fkey")),
        sa.PrimaryKeyConstraint("item_id", "digest", "memo_id", name=op.f("library_memo_holds_pkey")),
        sqlite_with_rowid=False,
    )
    op.create_index("library_memo_holds_memo", "library_memo_holds", ["memo_id"])
