"""API keys, webhooks, and stored responses for repeated requests."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def _only(condition: str) -> dict[str, Any]:
    return {"sqlite_where": sa.text(condition), "postgresql_where": sa.text(condition)}


def upgrade() -> None:
    """Create the tables."""
    _access()
    _webhooks()


def _access() -> None:
    op.create_table(
        "access_keys",
        sa.Column("id", ID, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("prefix", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("bases", sa.Text(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=True),
        sa.Column("revoked_at", sa.BigInteger(), nullable=True),
        sa.Column("used_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("access_keys_pkey")),
        sa.UniqueConstraint("digest", name=op.f("access_keys_digest_key")),
        sa.CheckConstraint("scope IN ('admin', 'read', 'write')", name=op.f("access_keys_scope_check")),
        sqlite_autoincrement=True,
    )
    op.create_index("access_keys_prefix", "access_keys", ["prefix"])
    op.create_table(
        "access_repeats",
        sa.Column("id", ID, nullable=False),
        sa.Column("caller", sa.BigInteger(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("until", sa.BigInteger(), nullable=False),
        sa.Column("begun_at", sa.BigInteger(), nullable=False),
        sa.Column("status", sa.Integer(), nullable=True),
        sa.Column("headers", sa.Text(), nullable=True),
        sa.Column("body", sa.LargeBinary(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("access_repeats_pkey")),
        sa.UniqueConstraint("caller", "key", name=op.f("access_repeats_caller_key_key")),
        sa.CheckConstraint("(status IS NULL) = (headers IS NULL)", name=op.f("access_repeats_answer_check")),
        sa.CheckConstraint("status IS NOT NULL OR body IS NULL", name=op.f("access_repeats_body_check")),
        sqlite_autoincrement=True,
    )
    op.create_index("access_repeats_begun", "access_repeats", ["begun_at"])


def _webhooks() -> None:
    op.create_table(
        "webhooks",
        sa.Column("id", ID, nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("types", sa.Text(), nullable=False),
        sa.Column("bases", sa.Text(), nullable=True),
        sa.Column("secret", sa.Text(), nullable=False),
        sa.Column("old_secret", sa.Text(), nullable=True),
        sa.Column("old_until", sa.BigInteger(), nullable=True),
        sa.Column("cursor", sa.Text(), nullable=False),
        sa.Column("failures", sa.Integer(), server_default="0", nullable=False),
        sa.Column("failing_since", sa.BigInteger(), nullable=True),
        sa.Column("disabled_at", sa.BigInteger(), nullable=True),
        sa.Column("disabled_reason", sa.Text(), nullable=True),
        sa.Column("deleted_at", sa.BigInteger(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("webhooks_pkey")),
        sa.CheckConstraint("(old_secret IS NULL) = (old_until IS NULL)", name=op.f("webhooks_rotation_check")),
        sa.CheckConstraint("(failures = 0) = (failing_since IS NULL)", name=op.f("webhooks_failing_check")),
        sa.CheckConstraint("(disabled_at IS NULL) = (disabled_reason IS NULL)", name=op.f("webhooks_disabled_check")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "webhook_deliveries",
        sa.Column("id", ID, nullable=False),
        sa.Column("webhook_id", ID, nullable=False),
        sa.Column("event", sa.Text(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("base", sa.Text(), nullable=True),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("attempts", sa.Integer(), server_default="0", nullable=False),
        sa.Column("fence", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("until", sa.BigInteger(), nullable=True),
        sa.Column("next_at", sa.BigInteger(), nullable=True),
        sa.Column("status", sa.Integer(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("tried_at", sa.BigInteger(), nullable=True),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("webhook_deliveries_pkey")),
        sa.ForeignKeyConstraint(["webhook_id"], ["webhooks.id"], name=op.f("webhook_deliveries_webhook_id_fkey")),
        sa.UniqueConstraint("webhook_id", "event", name=op.f("webhook_deliveries_webhook_id_event_key")),
        sa.CheckConstraint("state IN ('failed', 'sent', 'waiting')", name=op.f("webhook_deliveries_state_check")),
        sa.CheckConstraint("(state = 'waiting') = (next_at IS NOT NULL)", name=op.f("webhook_deliveries_next_check")),
        sa.CheckConstraint("(state = 'waiting') = (ended_at IS NULL)", name=op.f("webhook_deliveries_ended_check")),
        sa.CheckConstraint("until IS NULL OR state = 'waiting'", name=op.f("webhook_deliveries_lease_check")),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "webhook_deliveries_due", "webhook_deliveries", ["webhook_id", "next_at"], **_only("state = 'waiting'")
    )
    op.create_index("webhook_deliveries_ended", "webhook_deliveries", ["ended_at"], **_only("ended_at IS NOT NULL"))
    op.create_index("webhook_deliveries_list", "webhook_deliveries", ["webhook_id", "id"])
    op.create_index("webhook_deliveries_held", "webhook_deliveries", ["webhook_id"], **_only("until IS NOT NULL"))
