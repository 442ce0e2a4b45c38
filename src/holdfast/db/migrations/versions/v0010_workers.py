"""Who works, and when each was seen last."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Make room for those who work."""
    op.create_table(
        "workers",
        sa.Column("holder", sa.Text(), nullable=False),
        sa.Column("seen_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("holder", name=op.f("workers_pkey")),
    )
