"""Which tokens on the ledger are estimated, because no provider reported them."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    """Mark all rows so far as reported."""
    op.add_column("library_ledger", sa.Column("estimated", sa.Integer(), nullable=False, server_default="0"))
