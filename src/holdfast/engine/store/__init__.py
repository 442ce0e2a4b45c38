"""The store: the only code that changes slots."""

from holdfast.engine.store.base import (
    LARGEST_BATCH,
    Completion,
    Job,
    JobFilter,
    ListedJob,
    LoggedEvent,
    QueueOverview,
    Refusal,
)
from holdfast.engine.store.consistency import ConsistencyChecker
from holdfast.engine.store.metrics import SlotMetrics
from holdfast.engine.store.queue_control import (
    QueuedOwner,
    count_cancellable_jobs,
    count_retryable_owners,
    read_cancellable_jobs,
    read_now,
    read_remaining_quota,
    read_retryable_owners,
    split_by_size,
    write_quota,
)
from holdfast.engine.store.queue_queries import ACTIVE_JOB_STATES
from holdfast.engine.store.rows import event_from_row, slot_from_row
from holdfast.engine.store.sql_store import SqlStore
from holdfast.engine.store.tables import (
    IS_QUEUED,
    IS_TIMED,
    LOWEST_PRIORITY,
    event_marks,
    events,
    jobs,
    owners,
    pauses,
    quotas,
    slots,
)
from holdfast.engine.store.transitions import (
    add_increments,
    find_existing_owners,
    lock_and_load_owners,
    make_storable,
    record_events,
    record_refusals,
    require_held,
    write_payload,
)

__all__ = [
    "ACTIVE_JOB_STATES",
    "IS_QUEUED",
    "IS_TIMED",
    "LARGEST_BATCH",
    "LOWEST_PRIORITY",
    "Completion",
    "ConsistencyChecker",
    "Job",
    "JobFilter",
    "ListedJob",
    "LoggedEvent",
    "QueueOverview",
    "QueuedOwner",
    "Refusal",
    "SlotMetrics",
    "SqlStore",
    "add_increments",
    "count_cancellable_jobs",
    "count_retryable_owners",
    "event_from_row",
    "event_marks",
    "events",
    "find_existing_owners",
    "jobs",
    "lock_and_load_owners",
    "make_storable",
    "owners",
    "pauses",
    "quotas",
    "read_cancellable_jobs",
    "read_now",
    "read_remaining_quota",
    "read_retryable_owners",
    "record_events",
    "record_refusals",
    "require_held",
    "slot_from_row",
    "slots",
    "split_by_size",
    "write_payload",
    "write_quota",
]
