"""Jobs of the guard: their message, so that it can be sent again, and whether their end was reported.

Also an index on refused requests by owner.

Frozen, like every version before the newest.
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add the columns of the guard to the jobs."""
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
