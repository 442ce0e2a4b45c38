"""Slots, their owners and jobs, events, the audit of refused requests, counters.

Frozen: a change of `tables.py` needs a new version, because existing databases have run this one. A test compares the
schema that all versions create with `tables.py`.
"""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
REFUSALS = ("completed", "failed", "released", "forgotten", "extended", "guarded")


def _only(condition: str) -> dict[str, Any]:
    return {"sqlite_where": sa.text(condition), "postgresql_where": sa.text(condition)}


def upgrade() -> None:
    """Create the first schema."""
    _make_tables()
    counters = sa.table("counters", sa.column("name", sa.Text()), sa.column("value", sa.BigInteger()))
    op.bulk_insert(counters, [{"name": f"stale_write_rejected.{verb}", "value": 0} for verb in REFUSALS])
    if op.get_context().dialect.name == "postgresql":
        # On SQLite every connection defines a function with this name.
        op.execute(
            "CREATE FUNCTION holdfast_now() RETURNS bigint LANGUAGE sql STABLE AS "
            "$$ SELECT (extract(epoch FROM statement_timestamp()) * 1000000)::bigint $$"
        )


def _make_tables() -> None:
    op.create_table(
        "counters",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("value", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("counters_pkey")),
    )
    op.create_table(
        "duplicates",
        sa.Column("id", ID, nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("base", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("operation", sa.Text(), nullable=False),
        sa.Column("verdict", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("job", sa.Text(), nullable=True),
        sa.Column("requester", sa.Text(), nullable=False),
        sa.Column("cost", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("duplicates_pkey")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "events",
        sa.Column("id", ID, nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("base", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=True),
        sa.Column("job", sa.Text(), nullable=True),
        sa.Column("generation", sa.BigInteger(), nullable=True),
        sa.Column("fence", sa.BigInteger(), nullable=True),
        sa.Column("data", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("events_pkey")),
        sqlite_autoincrement=True,
    )
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
        sa.PrimaryKeyConstraint("id", name=op.f("jobs_pkey")),
        sa.UniqueConstraint("owner_id", "generation", name=op.f("jobs_owner_id_generation_key")),
        sa.CheckConstraint("open >= 0", name=op.f("jobs_open_check")),
        sa.CheckConstraint(
            "operation IN ('cancel', 'change', 'delete', 'force', 'index', 'reindex', 'retry')",
            name=op.f("jobs_operation_check"),
        ),
        sa.CheckConstraint(
            "outcome IS NULL OR outcome IN ('cancelled', 'degraded', 'deleted', 'failed', 'success', 'superseded')",
            name=op.f("jobs_outcome_check"),
        ),
        sa.CheckConstraint("(outcome IS NULL) = (finished_at IS NULL)", name=op.f("jobs_finished_check")),
        sa.CheckConstraint("(outcome IS NULL) = (open > 0)", name=op.f("jobs_ended_check")),
    )
    op.create_index("jobs_active", "jobs", ["owner_id"], unique=True, **_only("outcome IS NULL"))
    op.create_index("jobs_finished", "jobs", ["finished_at"], **_only("finished_at IS NOT NULL"))
    op.create_table(
        "owners",
        sa.Column("id", ID, nullable=False),
        sa.Column("base", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=True),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("owners_pkey")),
        sa.UniqueConstraint("base", "owner", name=op.f("owners_base_owner_key")),
        sa.CheckConstraint("generation >= 0", name=op.f("owners_generation_check")),
        sa.CheckConstraint(
            "status IN ('degraded', 'deleting', 'failed', 'indexing', 'not_indexed', 'queued', 'success')",
            name=op.f("owners_status_check"),
        ),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "slots",
        sa.Column("id", ID, nullable=False),
        sa.Column("owner_id", ID, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("needs", sa.Text(), nullable=True),
        sa.Column("job", sa.Text(), nullable=False),
        sa.Column("wanted", sa.BigInteger(), nullable=False),
        sa.Column("built", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("source", sa.BigInteger(), nullable=True),
        sa.Column("missing", sa.Integer(), server_default="0", nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("fence", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("holder", sa.Text(), nullable=True),
        sa.Column("until", sa.BigInteger(), nullable=True),
        sa.Column("due_at", sa.BigInteger(), nullable=True),
        sa.Column("queued_at", sa.BigInteger(), nullable=False),
        sa.Column("claimed_at", sa.BigInteger(), nullable=True),
        sa.Column("progress_at", sa.BigInteger(), nullable=True),
        sa.Column("rung_at", sa.BigInteger(), nullable=True),
        sa.Column("attempts", sa.Integer(), server_default="0", nullable=False),
        sa.Column("error_code", sa.Text(), nullable=True),
        sa.Column("error_params", sa.Text(), nullable=True),
        sa.Column("stage", sa.Text(), server_default="", nullable=False),
        sa.Column("step", sa.Integer(), server_default="0", nullable=False),
        sa.Column("steps", sa.Integer(), server_default="0", nullable=False),
        sa.Column("done", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("total", sa.BigInteger(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("slots_pkey")),
        sa.UniqueConstraint("owner_id", "kind", name=op.f("slots_owner_id_kind_key")),
        sa.CheckConstraint("0 <= built AND built <= wanted", name=op.f("slots_generations_check")),
        sa.CheckConstraint(
            "state IN ('blocked', 'cancelled', 'deleting', 'failed', 'queued', 'ready', 'running', 'waiting')",
            name=op.f("slots_state_check"),
        ),
        sa.CheckConstraint("priority BETWEEN 0 AND 9", name=op.f("slots_priority_check")),
        sa.CheckConstraint("attempts >= 0", name=op.f("slots_attempts_check")),
        sa.CheckConstraint("missing >= 0", name=op.f("slots_missing_check")),
        sa.CheckConstraint("(holder IS NULL) = (until IS NULL)", name=op.f("slots_lease_check")),
        sa.CheckConstraint(
            "holder IS NULL OR state IN ('blocked', 'deleting', 'queued', 'running', 'waiting')",
            name=op.f("slots_rest_has_no_lease_check"),
        ),
        sa.CheckConstraint("state <> 'running' OR holder IS NOT NULL", name=op.f("slots_running_has_lease_check")),
        sa.CheckConstraint("due_at IS NOT NULL OR NOT (state IN ('running', 'waiting'))", name=op.f("slots_due_check")),
        sa.CheckConstraint("state <> 'ready' OR built = wanted", name=op.f("slots_ready_check")),
        sa.ForeignKeyConstraint(["owner_id"], ["owners.id"], name=op.f("slots_owner_id_fkey")),
        sqlite_autoincrement=True,
    )
    op.create_index("slots_claimed", "slots", ["kind", "priority", "queued_at"], **_only("claimed_at IS NOT NULL"))
    op.create_index("slots_held", "slots", ["holder"], **_only("holder IS NOT NULL"))
    op.create_index("slots_queued", "slots", ["kind", "priority", "queued_at", "id"], **_only("state = 'queued'"))
    op.create_index("slots_rung", "slots", ["kind", "rung_at"], **_only("rung_at IS NOT NULL"))
    op.create_index("slots_timed", "slots", ["kind", "due_at"], **_only("state IN ('deleting', 'running', 'waiting')"))
