"""Jobs that renew or drop some slots of their owner.

SQLite cannot change a constraint, so the migration creates the table again and copies its rows.

Frozen, like every version before the newest.
"""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
OPERATIONS = "operation IN ('cancel', 'change', 'delete', 'drop', 'force', 'index', 'reindex', 'renew', 'retry')"
COLUMNS = (
    "id, owner_id, base, owner, generation, operation, cause, requester, priority, open, outcome, results, created_at,"
    " finished_at, payload, untold, prioritised_at"
)
INDEXES: tuple[tuple[str, list[str], str], ...] = (
    ("jobs_active", ["owner_id"], "outcome IS NULL"),
    ("jobs_finished", ["finished_at"], "finished_at IS NOT NULL"),
    ("jobs_untold", ["base", "finished_at"], "untold = 1"),
    ("jobs_queue", ["priority", "created_at", "id"], "outcome IS NULL"),
    ("jobs_ended", ["base", "finished_at", "id"], "finished_at IS NOT NULL"),
)


def _only(condition: str) -> dict[str, Any]:
    return {"sqlite_where": sa.text(condition), "postgresql_where": sa.text(condition)}


def upgrade() -> None:
    """Allow the operations `renew` and `drop` in the constraint."""
    if op.get_bind().dialect.name == "postgresql":
        op.drop_constraint(op.f("jobs_operation_check"), "jobs", type_="check")
        op.create_check_constraint(op.f("jobs_operation_check"), "jobs", OPERATIONS)
        return
    for name, _, _ in INDEXES:
        op.drop_index(name, "jobs")
    op.rename_table("jobs", "jobs_before")
    op.create_table(
        "jobs",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("owner_id", ID, nullable=False),
        sa.Column("base", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("operation", sa.Text(), nullable=False),
        sa.Column("cause", sa.Text(), nullable=False),
        sa.Column("requester", sa.Text(), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("open", sa.Integer(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=True),
        sa.Column("results", sa.Text(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("finished_at", sa.BigInteger(), nullable=True),
        sa.Column("payload", sa.Text(), nullable=True),
        sa.Column("untold", sa.Integer(), server_default="0", nullable=False),
        sa.Column("prioritised_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("jobs_pkey")),
        sa.UniqueConstraint("owner_id", "generation", name=op.f("jobs_owner_id_generation_key")),
        sa.CheckConstraint("open >= 0", name=op.f("jobs_open_check")),
        sa.CheckConstraint(OPERATIONS, name=op.f("jobs_operation_check")),
        sa.CheckConstraint(
            "outcome IS NULL OR outcome IN ('cancelled', 'degraded', 'deleted', 'failed', 'success', 'superseded')",
            name=op.f("jobs_outcome_check"),
        ),
        sa.CheckConstraint("(outcome IS NULL) = (finished_at IS NULL)", name=op.f("jobs_finished_check")),
        sa.CheckConstraint("(outcome IS NULL) = (open > 0)", name=op.f("jobs_ended_check")),
    )
    op.execute(f"INSERT INTO jobs ({COLUMNS}) SELECT {COLUMNS} FROM jobs_before")  # noqa: S608 - our own words
    op.drop_table("jobs_before")
    for name, columns, condition in INDEXES:
        op.create_index(name, "jobs", columns, unique=name == "jobs_active", **_only(condition))
