"""The schema of webhooks and of what was and will be sent to them.

A webhook that is deleted is gone for everybody at once; its row goes when its deliveries are swept.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, CheckConstraint, Column, ForeignKey, Index, Integer, Table, Text, UniqueConstraint

from holdfast.db import IdType, make_in_condition, metadata, partial_index
from holdfast.webhooks.retry_policy import DeliveryState

IS_WAITING = "state = 'waiting'"

webhooks = Table(
    "webhooks",
    metadata,
    Column("id", IdType, primary_key=True),
    Column("url", Text, nullable=False),
    Column("types", Text, nullable=False),  # JSON: types of events, or how they begin
    Column("bases", Text),  # JSON: ids; NULL: all, also later ones
    Column("secret", Text, nullable=False),
    Column("old_secret", Text),  # signs, too, until its time is over
    Column("old_until", BigInteger),
    Column("cursor", Text, nullable=False),  # the last event that was looked at
    Column("failures", Integer, nullable=False, server_default="0"),  # since the last success
    Column("failing_since", BigInteger),
    Column("disabled_at", BigInteger),
    Column("disabled_reason", Text),
    Column("deleted_at", BigInteger),
    Column("created_at", BigInteger, nullable=False),
    Column("retry_at", BigInteger),  # while it fails: before this moment nothing is sent, then one message as a probe
    CheckConstraint("(old_secret IS NULL) = (old_until IS NULL)", name="rotation"),
    CheckConstraint("(failures = 0) = (failing_since IS NULL)", name="failing"),
    CheckConstraint("(disabled_at IS NULL) = (disabled_reason IS NULL)", name="disabled"),
    sqlite_autoincrement=True,
)

deliveries = Table(
    "webhook_deliveries",
    metadata,
    Column("id", IdType, primary_key=True),
    Column("webhook_id", IdType, ForeignKey("webhooks.id"), nullable=False),
    Column("event", Text, nullable=False),  # its place in the log
    Column("message", Text, nullable=False),  # the header webhook-id: the same at each attempt
    Column("type", Text, nullable=False),
    Column("base", Text),  # NULL: it concerns the whole queue
    Column("body", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("attempts", Integer, nullable=False, server_default="0"),  # counted when they begin
    Column("fence", BigInteger, nullable=False, server_default="0"),  # rises at each attempt
    Column("until", BigInteger),  # when whoever sends it is taken for dead
    Column("next_at", BigInteger),
    Column("status", Integer),  # what the last attempt was answered; NULL: nothing
    Column("reason", Text),  # why it failed
    Column("created_at", BigInteger, nullable=False),
    Column("tried_at", BigInteger),
    Column("ended_at", BigInteger),
    UniqueConstraint("webhook_id", "event"),
    CheckConstraint(make_in_condition("state", DeliveryState), name="state"),
    CheckConstraint(f"({IS_WAITING}) = (next_at IS NOT NULL)", name="next"),
    CheckConstraint(f"({IS_WAITING}) = (ended_at IS NULL)", name="ended"),
    CheckConstraint(f"until IS NULL OR {IS_WAITING}", name="lease"),
    Index("webhook_deliveries_due", "webhook_id", "next_at", **partial_index(IS_WAITING)),
    Index("webhook_deliveries_ended", "ended_at", **partial_index("ended_at IS NOT NULL")),
    Index("webhook_deliveries_list", "webhook_id", "id"),
    Index("webhook_deliveries_held", "webhook_id", **partial_index("until IS NOT NULL")),
    sqlite_autoincrement=True,
)
