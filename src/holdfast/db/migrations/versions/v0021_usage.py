"""Adds to each slot what its attempts used, for the results of its job."""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"


def upgrade() -> None:
    """Add the column. The attempts until now are unknown."""
    op.add_column("slots", sa.Column("usage", sa.Text(), nullable=True))
