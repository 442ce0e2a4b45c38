"""The time of the next attempt of a failing webhook."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    """Add the column. Before this time, Holdfast sends nothing to the webhook."""
    op.add_column("webhooks", sa.Column("retry_at", sa.BigInteger(), nullable=True))
