"""Keeps the calibration of a base, so that a new process does not measure it again."""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"


def upgrade() -> None:
    """Add an empty table; the next search of each base fills its row."""
    op.create_table(
        "library_calibrations",
        sa.Column("base_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False),
        sa.Column("chunks", sa.BigInteger(), nullable=False),
        sa.Column("measured", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("base_id", name=op.f("library_calibrations_pkey")),
    )
