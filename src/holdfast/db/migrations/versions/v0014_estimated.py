"""Marks the tokens of the ledger that are estimated, because the provider did not report them."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    """Add the column. Existing rows count as reported."""
    op.add_column("library_ledger", sa.Column("estimated", sa.Integer(), nullable=False, server_default="0"))
