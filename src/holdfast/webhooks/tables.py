"""The tables of webhooks and their deliveries.

A deleted webhook disappears from every read at once. Its row is removed after its deliveries.
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
    Column("types", Text, nullable=False),  # JSON: event types, or prefixes such as `job.*`
    Column("bases", Text),  # JSON: ids; NULL: all bases, also future ones
    Column("secret", Text, nullable=False),
    Column("old_secret", Text),  # signs, too, until `old_until`
    Column("old_until", BigInteger),
    Column("cursor", Text, nullable=False),  # the last event that was read
    Column("failures", Integer, nullable=False, server_default="0"),  # consecutive, since the last success
    Column("failing_since", BigInteger),
    Column("disabled_at", BigInteger),
    Column("disabled_reason", Text),
    Column("deleted_at", BigInteger),
    Column("created_at", BigInteger, nullable=False),
    Column("retry_at", BigInteger),  # while it fails: the time of the next probe; nothing is sent before
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
    Column("event", Text, nullable=False),  # the id of the event
    Column("message", Text, nullable=False),  # the header webhook-id, the same at each attempt
    Column("type", Text, nullable=False),
    Column("base", Text),  # NULL: the event concerns the whole queue
    Column("body", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("attempts", Integer, nullable=False, server_default="0"),  # counted at the claim
    Column("fence", BigInteger, nullable=False, server_default="0"),  # rises at each attempt
    Column("until", BigInteger),  # end of the lease of the current attempt
    Column("next_at", BigInteger),
    Column("status", Integer),  # of the last attempt; NULL: no answer
    Column("reason", Text),  # why the last attempt failed
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
