"""Adds to each slot when its present claim was reported as long-running."""

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"


def upgrade() -> None:
    """Add the column. Work that runs now is reported when it has run for long enough."""
    op.add_column("slots", sa.Column("reported_at", sa.BigInteger(), nullable=True))
