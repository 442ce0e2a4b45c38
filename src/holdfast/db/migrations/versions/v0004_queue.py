"""Control of the queue: pauses, quotas, changed priorities, and indexes for its lists.

Frozen, like every version before the newest.
"""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def _only(condition: str) -> dict[str, Any]:
    return {"sqlite_where": sa.text(condition), "postgresql_where": sa.text(condition)}


def upgrade() -> None:
    """Create the tables, columns and indexes."""
    op.create_table(
        "pauses",
        sa.Column("base", sa.Text(), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sa.Column("stop", sa.Integer(), nullable=False),
        sa.Column("requester", sa.Text(), nullable=False),
        sa.Column("resumed_at", sa.BigInteger(), nullable=True),
        sa.CheckConstraint("stop IN (0, 1)", name=op.f("pauses_stop_check")),
        sa.PrimaryKeyConstraint("base", name=op.f("pauses_pkey")),
    )
    op.create_table(
        "quotas",
        sa.Column("base", sa.Text(), nullable=False),
        sa.Column("per_day", sa.Integer(), nullable=False),
        sa.Column("day", sa.BigInteger(), nullable=False),
        sa.Column("used", sa.Integer(), nullable=False),
        sa.CheckConstraint("per_day > 0", name=op.f("quotas_per_day_check")),
        sa.CheckConstraint("used >= 0", name=op.f("quotas_used_check")),
        sa.PrimaryKeyConstraint("base", name=op.f("quotas_pkey")),
    )
    op.add_column("jobs", sa.Column("prioritised_at", sa.BigInteger(), nullable=True))
    op.create_index("jobs_queue", "jobs", ["priority", "created_at", "id"], **_only("outcome IS NULL"))
    op.create_index("jobs_ended", "jobs", ["base", "finished_at", "id"], **_only("finished_at IS NOT NULL"))
    op.create_index("owners_broken", "owners", ["status", "id"], **_only("status IN ('degraded', 'failed')"))
