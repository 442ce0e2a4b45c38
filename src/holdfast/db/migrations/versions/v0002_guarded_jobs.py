"""Jobs of other people's pipelines: the call to send again, and whether somebody must still be told of the end.

The audit of refused requests can be read by owner.

Frozen, like every version before the newest.
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add to the jobs what the guard keeps with them."""
    op.add_column("jobs", sa.Column("payload", sa.Text(), nullable=True))
    op.add_column("jobs", sa.Column("untold", sa.Integer(), server_default="0", nullable=False))
    op.create_index(
        "jobs_untold",
        "jobs",
        ["base", "finished_at"],
        sqlite_where=sa.text("untold = 1"),
        postgresql_where=sa.text("untold = 1"),
    )
    op.create_index("duplicates_owner", "duplicates", ["base", "owner"])
