"""Calls of guarded Celery tasks, and what their jobs returned or raised."""

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"

VERDICTS = "'accepted', 'joined', 'rejected', 'revoked', 'skipped'"
KINDS = "'error', 'ignored', 'replaced', 'value'"


def upgrade() -> None:
    """Create the tables. Calls of jobs that are active now are recorded when their messages arrive."""
    op.create_table(
        "guard_calls",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("task_id", sa.Text(), nullable=False),
        sa.Column("base", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("job", sa.Text()),
        sa.Column("verdict", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("wanted", sa.Integer(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("due_at", sa.BigInteger()),
        sa.Column("sent_at", sa.BigInteger()),
        sa.Column("until", sa.BigInteger()),
        sa.Column("answered_at", sa.BigInteger()),
        sa.CheckConstraint(f"verdict IN ({VERDICTS})", name=op.f("guard_calls_verdict_check")),
        sa.CheckConstraint("wanted IN (0, 1)", name=op.f("guard_calls_wanted_check")),
        sa.PrimaryKeyConstraint("id", name=op.f("guard_calls_pkey")),
    )
    _create_index("guard_calls_open", "guard_calls", ["base", "owner"], "answered_at IS NULL")
    _create_index("guard_calls_due", "guard_calls", ["base", "due_at"], "due_at IS NOT NULL AND answered_at IS NULL")
    op.create_index("guard_calls_age", "guard_calls", ["created_at"])
    op.create_table(
        "guard_results",
        sa.Column("job", sa.Text(), nullable=False),
        sa.Column("base", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("data", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.CheckConstraint(f"kind IN ({KINDS})", name=op.f("guard_results_kind_check")),
        sa.PrimaryKeyConstraint("job", name=op.f("guard_results_pkey")),
    )
    op.create_index("guard_results_owner", "guard_results", ["base", "owner", "created_at"])
    op.create_index("guard_results_age", "guard_results", ["created_at"])


def _create_index(name: str, table: str, columns: list[str], where: str) -> None:
    op.create_index(name, table, columns, sqlite_where=sa.text(where), postgresql_where=sa.text(where))
