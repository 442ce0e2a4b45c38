"""The tables of calls of guarded Celery tasks, and of what their jobs returned or raised."""

from __future__ import annotations

from enum import StrEnum

from sqlalchemy import BigInteger, CheckConstraint, Column, Index, Integer, MetaData, Table, Text

from holdfast.db import make_in_condition, metadata, partial_index

guard_metadata = MetaData(naming_convention=metadata.naming_convention)  # apart from the tables of Holdfast


class CallVerdict(StrEnum):
    """The decision on a call."""

    ACCEPTED = "accepted"  # its message runs the job
    JOINED = "joined"  # it is answered when the job of another call ends
    SKIPPED = "skipped"  # the work is done; it is answered with the newest result of the key
    REJECTED = "rejected"
    REVOKED = "revoked"  # joined, and then revoked alone


class ResultKind(StrEnum):
    """How a run ended."""

    VALUE = "value"  # the task returned it
    ERROR = "error"  # the task raised it
    REPLACED = "replaced"  # a signature replaces each call
    IGNORED = "ignored"  # the task raised Ignore: nothing is stored


IS_UNANSWERED = "answered_at IS NULL"
IS_DUE = f"due_at IS NOT NULL AND {IS_UNANSWERED}"

calls = Table(
    "calls",
    guard_metadata,
    Column("id", Text, primary_key=True),  # the Celery id, with the nesting if `replace` made the call
    Column("task_id", Text, nullable=False),
    Column("base", Text, nullable=False),
    Column("owner", Text, nullable=False),
    Column("job", Text),  # the job whose result answers the call
    Column("verdict", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("wanted", Integer, nullable=False),  # 0: the call stores no result and continues nothing
    Column("message", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("due_at", BigInteger),  # the answer is known since then
    Column("sent_at", BigInteger),  # when a message was last sent to deliver the answer
    Column("until", BigInteger),  # end of the lease of the delivery that is answering
    Column("answered_at", BigInteger),
    CheckConstraint(make_in_condition("verdict", CallVerdict), name="verdict"),
    CheckConstraint("wanted IN (0, 1)", name="wanted"),
    Index("calls_open", "base", "owner", **partial_index(IS_UNANSWERED)),
    Index("calls_due", "base", "due_at", **partial_index(IS_DUE)),
    Index("calls_age", "created_at"),
)

results = Table(
    "results",
    guard_metadata,
    Column("job", Text, primary_key=True),
    Column("base", Text, nullable=False),
    Column("owner", Text, nullable=False),
    Column("fence", BigInteger, nullable=False),
    Column("kind", Text, nullable=False),
    Column("data", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    CheckConstraint(make_in_condition("kind", ResultKind), name="kind"),
    Index("results_owner", "base", "owner", "created_at"),
    Index("results_age", "created_at"),
)

CALL_TABLES = (calls, results)
