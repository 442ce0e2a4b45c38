"""The engine: builds each slot once and never lets older work overwrite newer. It knows nothing about documents."""

from holdfast.engine.admission import (
    BUILD_OPERATIONS,
    DEFAULT_PRIORITY,
    QUOTA_EXHAUSTED,
    WORK_QUOTA_REASONS,
    AdmissionResult,
    Request,
    RequestDetails,
    Verdict,
)
from holdfast.engine.dependencies import SlotSpec
from holdfast.engine.effects import Event
from holdfast.engine.problems import Problem, describe_fault, describe_reasons, format_reply, format_wait_reason
from holdfast.engine.queue import BULK, WHOLE_QUEUE, BulkResult, Pauses, summarize
from holdfast.engine.rules import RetryPolicy, Rules
from holdfast.engine.slot import BuildResult, Fault, JobId, OwnerId, Progress, Ring, Slot, SlotId, SlotKey, Ticket
from holdfast.engine.states import (
    ACTIVE_STATES,
    RESTING_STATES,
    Operation,
    Outcome,
    QuotaScope,
    QuotaUnit,
    SlotState,
    Status,
)
from holdfast.engine.totals import BUCKETS, INFINITE, SLOTS, SUM, UNNAMED_CODE, Total, name_bucket
from holdfast.engine.waiting import MOMENT_PARAMS, WaitReason

__all__ = [
    "ACTIVE_STATES",
    "BUCKETS",
    "BUILD_OPERATIONS",
    "BULK",
    "DEFAULT_PRIORITY",
    "INFINITE",
    "MOMENT_PARAMS",
    "QUOTA_EXHAUSTED",
    "RESTING_STATES",
    "SLOTS",
    "SUM",
    "UNNAMED_CODE",
    "WHOLE_QUEUE",
    "WORK_QUOTA_REASONS",
    "AdmissionResult",
    "BuildResult",
    "BulkResult",
    "Event",
    "Fault",
    "JobId",
    "Operation",
    "Outcome",
    "OwnerId",
    "Pauses",
    "Problem",
    "Progress",
    "QuotaScope",
    "QuotaUnit",
    "Request",
    "RequestDetails",
    "RetryPolicy",
    "Ring",
    "Rules",
    "Slot",
    "SlotId",
    "SlotKey",
    "SlotSpec",
    "SlotState",
    "Status",
    "Ticket",
    "Total",
    "Verdict",
    "WaitReason",
    "describe_fault",
    "describe_reasons",
    "format_reply",
    "format_wait_reason",
    "name_bucket",
    "summarize",
]
