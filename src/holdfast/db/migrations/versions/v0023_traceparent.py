"""The place of the request of a job in a trace."""

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"


def upgrade() -> None:
    """Add the column. Existing jobs belong to no trace."""
    op.add_column("jobs", sa.Column("traceparent", sa.Text()))
