"""What guarded work reports about a job, what it has spent, the address of its caller, and quotas of works."""

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
WAITING = sa.text("callback_due IS NOT NULL")


def upgrade() -> None:
    """Create the tables. Jobs of before have no row in them."""
    op.create_table(
        "job_details",
        sa.Column("job", sa.Text(), nullable=False),
        sa.Column("work", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("requester", sa.Text(), nullable=False),
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("fence", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("counters", sa.Text(), nullable=True),
        sa.Column("partial", sa.Text(), nullable=True),
        sa.Column("result", sa.Text(), nullable=True),
        sa.Column("tokens", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("price", sa.Float(), server_default="0", nullable=False),
        sa.Column("callback", sa.Text(), nullable=True),
        sa.Column("callback_due", sa.BigInteger(), nullable=True),
        sa.Column("callback_attempts", sa.Integer(), server_default="0", nullable=False),
        sa.Column("callback_error", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("job", name=op.f("job_details_pkey")),
    )
    op.create_index("job_details_day", "job_details", ["work", "created_at"])
    op.create_index(
        "job_details_callbacks", "job_details", ["callback_due"], sqlite_where=WAITING, postgresql_where=WAITING
    )
    op.create_table(
        "work_quotas",
        sa.Column("work", sa.Text(), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("unit", sa.Text(), nullable=False),
        sa.Column("per_day", sa.Float(), nullable=False),
        sa.CheckConstraint("scope IN ('key', 'project', 'requester', 'work')", name=op.f("work_quotas_scope_check")),
        sa.CheckConstraint("unit IN ('jobs', 'price', 'tokens')", name=op.f("work_quotas_unit_check")),
        sa.CheckConstraint("per_day > 0", name=op.f("work_quotas_per_day_check")),
        sa.PrimaryKeyConstraint("work", "scope", "unit", name=op.f("work_quotas_pkey")),
    )
