"""When a failing webhook is tried again."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    """Add the moment before which nothing is sent to a webhook that fails."""
    op.add_column("webhooks", sa.Column("retry_at", sa.BigInteger(), nullable=True))
