"""Slots: one result each, built once, never overwritten by older work. Knows nothing about documents."""

from holdfast.engine.admission import BUILDS, DEFAULT_PRIORITY, QUOTA_EXHAUSTED, Answer, Request, Verdict
from holdfast.engine.dependencies import SlotSpec
from holdfast.engine.effects import Event
from holdfast.engine.problems import Problem, problem_of, waiting_for
from holdfast.engine.queue import EVERYTHING, Pauses, Summary
from holdfast.engine.retry import RetryPolicy
from holdfast.engine.rules import Rules
from holdfast.engine.slot import Built, Fault, JobId, OwnerId, Progress, Ring, Slot, Ticket
from holdfast.engine.states import ACTIVE, RESTING, Operation, Outcome, SlotState, Status
from holdfast.engine.waiting import MOMENTS, Reason

__all__ = [
    "ACTIVE",
    "BUILDS",
    "DEFAULT_PRIORITY",
    "EVERYTHING",
    "MOMENTS",
    "QUOTA_EXHAUSTED",
    "RESTING",
    "Answer",
    "Built",
    "Event",
    "Fault",
    "JobId",
    "Operation",
    "Outcome",
    "OwnerId",
    "Pauses",
    "Problem",
    "Progress",
    "Reason",
    "Request",
    "RetryPolicy",
    "Ring",
    "Rules",
    "Slot",
    "SlotSpec",
    "SlotState",
    "Status",
    "Summary",
    "Ticket",
    "Verdict",
    "problem_of",
    "waiting_for",
]
