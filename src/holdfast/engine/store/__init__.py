"""The store: the contract in `base`, and its implementation in SQL."""

from holdfast.engine.store.admission import LOWEST_PRIORITY
from holdfast.engine.store.base import (
    LARGEST_BATCH,
    Completion,
    Job,
    JobFilter,
    ListedJob,
    LoggedEvent,
    Overview,
    Refusal,
)
from holdfast.engine.store.consistency import Auditing
from holdfast.engine.store.queue_control import keep_quota, quota_left
from holdfast.engine.store.queue_queries import WORKING
from holdfast.engine.store.rows import event_of, slot_of
from holdfast.engine.store.sql_store import SqlStore
from holdfast.engine.store.tables import IS_QUEUED, IS_TIMED, event_marks, events, jobs, owners, pauses, quotas, slots
from holdfast.engine.store.transitions import owners_named, plain, record, record_refused, require_held, snapshot_of

__all__ = [
    "IS_QUEUED",
    "IS_TIMED",
    "LARGEST_BATCH",
    "LOWEST_PRIORITY",
    "WORKING",
    "Auditing",
    "Completion",
    "Job",
    "JobFilter",
    "ListedJob",
    "LoggedEvent",
    "Overview",
    "Refusal",
    "SqlStore",
    "event_marks",
    "event_of",
    "events",
    "jobs",
    "keep_quota",
    "owners",
    "owners_named",
    "pauses",
    "plain",
    "quota_left",
    "quotas",
    "record",
    "record_refused",
    "require_held",
    "slot_of",
    "slots",
    "snapshot_of",
]
