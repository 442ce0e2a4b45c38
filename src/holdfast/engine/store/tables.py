"""The tables of the engine, with the invariants that the database can check.

Times are `Moment`s (microseconds). Ids of owners and slots are never reused, so a ticket or ring of a deleted slot
never matches a later one.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

from holdfast.db import IdType, make_in_condition, metadata, partial_index
from holdfast.engine.states import ACTIVE_STATES, Operation, Outcome, QuotaScope, QuotaUnit, SlotState, Status

# States that the reconciler finds by time. Also the condition of the partial index, so the text must be the same.
TIMED_STATES = (SlotState.RUNNING, SlotState.WAITING, SlotState.DELETING)
IS_QUEUED = "state = 'queued'"
IS_TIMED = make_in_condition("state", TIMED_STATES)
LOWEST_PRIORITY = 9  # 0 is the highest
RETRYABLE_STATUSES = (Status.FAILED, Status.DEGRADED)
ACTIVE_STATUSES = (Status.QUEUED, Status.INDEXING, Status.DELETING)

owners = Table(
    "owners",
    metadata,
    Column("id", IdType, primary_key=True),
    Column("base", Text, nullable=False),
    Column("owner", Text, nullable=False),
    Column("generation", BigInteger, nullable=False),  # the newest generation
    Column("fingerprint", Text),
    Column("status", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    UniqueConstraint("base", "owner"),
    CheckConstraint("generation >= 0", name="generation"),
    CheckConstraint(make_in_condition("status", Status), name="status"),
    Index("owners_active", "status", "base", "id", **partial_index(make_in_condition("status", ACTIVE_STATUSES))),
    Index("owners_broken", "status", "id", **partial_index(make_in_condition("status", RETRYABLE_STATUSES))),
    sqlite_autoincrement=True,
)

slots = Table(
    "slots",
    metadata,
    Column("id", IdType, primary_key=True),
    Column("owner_id", IdType, ForeignKey("owners.id"), nullable=False),
    Column("kind", Text, nullable=False),
    Column("needs", Text),
    Column("job", Text, nullable=False),
    Column("wanted", BigInteger, nullable=False),
    Column("built", BigInteger, nullable=False, server_default="0"),
    Column("source", BigInteger),
    Column("missing", Integer, nullable=False, server_default="0"),
    Column("state", Text, nullable=False),
    Column("priority", Integer, nullable=False),
    Column("fence", BigInteger, nullable=False, server_default="0"),
    Column("holder", Text),
    Column("until", BigInteger),
    Column("due_at", BigInteger),
    Column("queued_at", BigInteger, nullable=False),
    Column("claimed_at", BigInteger),
    Column("progress_at", BigInteger),
    Column("rung_at", BigInteger),
    Column("attempts", Integer, nullable=False, server_default="0"),
    Column("error_code", Text),
    Column("error_params", Text),
    Column("stage", Text, nullable=False, server_default=""),
    Column("step", Integer, nullable=False, server_default="0"),
    Column("steps", Integer, nullable=False, server_default="0"),
    Column("done", BigInteger, nullable=False, server_default="0"),
    Column("total", BigInteger, nullable=False, server_default="0"),
    Column("recipe", IdType),  # of the served result
    Column("usage", Text),  # of all attempts in this generation: members of a JSON object
    Column("reported_at", BigInteger),  # when the present claim was reported as long-running
    UniqueConstraint("owner_id", "kind"),
    CheckConstraint("0 <= built AND built <= wanted", name="generations"),
    CheckConstraint(make_in_condition("state", SlotState), name="state"),
    CheckConstraint(f"priority BETWEEN 0 AND {LOWEST_PRIORITY}", name="priority"),
    CheckConstraint("attempts >= 0", name="attempts"),
    CheckConstraint("missing >= 0", name="missing"),
    CheckConstraint("(holder IS NULL) = (until IS NULL)", name="lease"),
    CheckConstraint(f"holder IS NULL OR {make_in_condition('state', ACTIVE_STATES)}", name="rest_has_no_lease"),
    CheckConstraint("state <> 'running' OR holder IS NOT NULL", name="running_has_lease"),
    CheckConstraint(
        f"due_at IS NOT NULL OR NOT ({make_in_condition('state', (SlotState.RUNNING, SlotState.WAITING))})", name="due"
    ),
    CheckConstraint("state <> 'ready' OR built = wanted", name="ready"),
    Index("slots_queued", "kind", "priority", "queued_at", "id", **partial_index(IS_QUEUED)),
    Index("slots_timed", "kind", "due_at", **partial_index(IS_TIMED)),
    Index("slots_held", "holder", **partial_index("holder IS NOT NULL")),
    Index("slots_rung", "kind", "rung_at", **partial_index("rung_at IS NOT NULL")),
    Index("slots_served", "recipe", **partial_index("recipe IS NOT NULL")),
    Index("slots_claimed", "kind", "priority", "queued_at", **partial_index("claimed_at IS NOT NULL")),
    sqlite_autoincrement=True,
)

jobs = Table(
    "jobs",
    metadata,
    Column("id", Text, primary_key=True),
    Column("owner_id", IdType, nullable=False),  # no foreign key: jobs remain after their owner is deleted
    Column("base", Text, nullable=False),
    Column("owner", Text, nullable=False),
    Column("generation", BigInteger, nullable=False),
    Column("operation", Text, nullable=False),
    Column("cause", Text, nullable=False),
    Column("requester", Text, nullable=False),
    Column("priority", Integer, nullable=False),
    Column("open", Integer, nullable=False),  # its slots that are not at rest
    Column("outcome", Text),
    Column("results", Text),
    Column("created_at", BigInteger, nullable=False),
    Column("finished_at", BigInteger),
    Column("payload", Text),  # the guard's message for this job
    Column("untold", Integer, nullable=False, server_default="0"),  # 1 until its end was reported
    Column("prioritised_at", BigInteger),  # when a user last changed its priority
    Column("traceparent", Text),  # of the request, as in the header of W3C Trace Context
    UniqueConstraint("owner_id", "generation"),
    CheckConstraint("open >= 0", name="open"),
    CheckConstraint(make_in_condition("operation", Operation), name="operation"),
    CheckConstraint(f"outcome IS NULL OR {make_in_condition('outcome', Outcome)}", name="outcome"),
    CheckConstraint("(outcome IS NULL) = (finished_at IS NULL)", name="finished"),
    CheckConstraint("(outcome IS NULL) = (open > 0)", name="ended"),
    Index("jobs_active", "owner_id", unique=True, **partial_index("outcome IS NULL")),
    Index("jobs_finished", "finished_at", **partial_index("finished_at IS NOT NULL")),
    Index("jobs_untold", "base", "finished_at", **partial_index("untold = 1")),
    Index("jobs_queue", "priority", "created_at", "id", **partial_index("outcome IS NULL")),
    Index("jobs_queue_of_base", "base", "priority", "created_at", "id", **partial_index("outcome IS NULL")),
    Index("jobs_ended", "base", "finished_at", "id", **partial_index("finished_at IS NOT NULL")),
    Index("jobs_unsuccessful", "outcome", "finished_at", "id", "base", **partial_index("outcome <> 'success'")),
)

pauses = Table(
    "pauses",
    metadata,
    Column("base", Text, primary_key=True),  # empty: the whole queue
    Column("since", BigInteger, nullable=False),
    Column("stop", Integer, nullable=False),  # 1: stop running work
    Column("requester", Text, nullable=False),
    Column("resumed_at", BigInteger),  # the row remains: slots that waited during the pause were not overtaken
    CheckConstraint("stop IN (0, 1)", name="stop"),
)

quotas = Table(
    "quotas",
    metadata,
    Column("base", Text, primary_key=True),
    Column("per_day", Integer, nullable=False),
    Column("day", BigInteger, nullable=False),  # start of the day that `used` counts
    Column("used", Integer, nullable=False),
    CheckConstraint("per_day > 0", name="per_day"),
    CheckConstraint("used >= 0", name="used"),
)

events = Table(
    "events",
    metadata,
    Column("id", IdType, primary_key=True),
    Column("at", BigInteger, nullable=False),
    Column("type", Text, nullable=False),
    Column("base", Text, nullable=False),
    Column("owner", Text, nullable=False),
    Column("kind", Text),
    Column("job", Text),
    Column("generation", BigInteger),
    Column("fence", BigInteger),
    Column("data", Text, nullable=False),
    # id of the transaction on PostgreSQL, where a smaller id may become visible later; 0 on SQLite
    Column("xid", BigInteger, nullable=False, server_default="0"),
    Index("events_order", "xid", "id").ddl_if(dialect="postgresql"),
    sqlite_autoincrement=True,
)

event_marks = Table(
    "event_marks",
    metadata,
    Column("name", Text, primary_key=True),
    Column("xid", BigInteger, nullable=False),
    Column("id", BigInteger, nullable=False),
)

duplicates = Table(
    "duplicates",
    metadata,
    Column("id", IdType, primary_key=True),
    Column("at", BigInteger, nullable=False),
    Column("base", Text, nullable=False),
    Column("owner", Text, nullable=False),
    Column("operation", Text, nullable=False),
    Column("verdict", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("job", Text),
    Column("requester", Text, nullable=False),
    Column("cost", Float, nullable=False),
    Index("duplicates_owner", "base", "owner"),
    sqlite_autoincrement=True,
)

workers = Table(
    "workers",
    metadata,
    Column("holder", Text, primary_key=True),
    Column("seen_at", BigInteger, nullable=False),
)

counters = Table(
    "counters",
    metadata,
    Column("name", Text, primary_key=True),
    Column("value", BigInteger, nullable=False),
)

# Sums over the log and over `metric_increments`, up to the mark `metrics` of the log. Values are exact up to 2^53.
metric_totals = Table(
    "metric_totals",
    metadata,
    Column("name", Text, primary_key=True),
    Column("kind", Text, primary_key=True),
    Column("detail", Text, primary_key=True),  # such as a state, an error code or the bucket of a histogram
    Column("value", Float, nullable=False),
)

# What transactions without an event add to a total. Each addition is a row of its own, so that no writer waits.
metric_increments = Table(
    "metric_increments",
    metadata,
    Column("id", IdType, primary_key=True),
    Column("name", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("detail", Text, nullable=False),
    Column("value", Float, nullable=False),
    sqlite_autoincrement=True,
)

# What guarded work reports about a job. Only the newest claim may write counters and results; spending always counts.
job_details = Table(
    "job_details",
    metadata,
    Column("job", Text, primary_key=True),
    Column("work", Text, nullable=False),
    Column("key", Text, nullable=False),
    Column("requester", Text, nullable=False),
    Column("project", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("fence", BigInteger, nullable=False, server_default="0"),
    Column("counters", Text),
    Column("partial", Text),
    Column("result", Text),
    Column("tokens", BigInteger, nullable=False, server_default="0"),
    Column("price", Float, nullable=False, server_default="0"),
    Column("callback", Text),
    Column("callback_due", BigInteger),  # of the next attempt; NULL when it was delivered or given up
    Column("callback_attempts", Integer, nullable=False, server_default="0"),
    Column("callback_error", Text),
    Index("job_details_day", "work", "created_at"),
    Index("job_details_callbacks", "callback_due", **partial_index("callback_due IS NOT NULL")),
)

work_quotas = Table(
    "work_quotas",
    metadata,
    Column("work", Text, primary_key=True),
    Column("scope", Text, primary_key=True),
    Column("unit", Text, primary_key=True),
    Column("per_day", Float, nullable=False),
    CheckConstraint(make_in_condition("scope", QuotaScope), name="scope"),
    CheckConstraint(make_in_condition("unit", QuotaUnit), name="unit"),
    CheckConstraint("per_day > 0", name="per_day"),
)

# Everything that the engine needs, in the order in which tables refer to each other.
ENGINE_TABLES = (
    owners,
    slots,
    jobs,
    pauses,
    quotas,
    events,
    event_marks,
    duplicates,
    workers,
    counters,
    metric_totals,
    metric_increments,
    job_details,
    work_quotas,
)

# Created by Alembic, so it is not in `metadata`.
schema_version = Table(
    "holdfast_version", MetaData(), Column("version_num", String(32), primary_key=True, nullable=False)
)
