"""Admission: one table decides whether a request starts work, from the operation and the situation of its owner.

The decision comes before anything is written, queued or paid. Every request that is not accepted is recorded, with the
estimated cost of the work that it would have started.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING

from holdfast.clock import Moment, micros
from holdfast.engine.dependencies import SlotScope, SlotSpec, needs_build, select_droppable, select_requestable
from holdfast.engine.states import Operation, QuotaScope, SlotState, Status
from holdfast.engine.status import derive_status

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.engine.rules import Rules
    from holdfast.engine.slot import JobId, Slot

DEFAULT_PRIORITY = 5
BUILD_OPERATIONS = frozenset(Operation) - {
    Operation.CANCEL,
    Operation.DROP,
    Operation.DELETE,
}
CREATE_OPERATIONS = frozenset({Operation.INDEX, Operation.FORCE, Operation.CHANGE})  # may create the owner
_NEVER = Moment(0)


class Verdict(StrEnum):
    ACCEPTED = "accepted"  # a new generation, or a cancellation, was written
    JOINED = "joined"  # an active job, named in the result, already does this
    SKIPPED = "skipped"  # there is nothing to do
    REJECTED = "rejected"  # not possible now; the reason says why


class Situation(StrEnum):
    """State of an owner when a request arrives. `classify_situation` returns the first that matches."""

    JOB_ENDED = "ended"  # the request names a job that is not the active one of the owner
    UNKNOWN = "unknown"  # the owner does not exist, and the request does not create it
    DELETING = "deleting"
    CLEANUP_FAILED = "held_up"  # being deleted; the clean-up failed and waits for its next attempt
    SAME_ACTIVE = "same_active"  # active, and the request has the content that is being indexed
    SAME_RESTING = "same_resting"  # at rest, and the request has the content that is indexed
    STUCK = "stuck"  # active, but without progress for too long
    ACTIVE = "active"
    COMPLETE = "complete"  # everything requested is ready in its newest version (or gone, for `drop`)
    INCOMPLETE = "lacking"  # at rest; something requested failed, was cancelled or was never built


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestDetails:
    """What guarded work stores with a job beside the request."""

    project: str = ""
    callback: str | None = None  # address that gets a message when the job ends


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request for one owner.

    Example:
        Request(base="handbook", owner="42", operation=Operation.INDEX, slots=(SlotSpec("content"),))
    """

    base: str
    owner: str
    operation: Operation
    slots: tuple[SlotSpec, ...] = ()  # slots that the owner should have; () keeps those it has
    kinds: tuple[str, ...] = ()  # slots that `renew` builds again or `drop` removes
    fingerprint: str | None = None  # hash of the content, with `change`
    priority: int = DEFAULT_PRIORITY
    cause: str = "user"
    requester: str = ""
    cost: float = 0.0  # estimated cost of the work, recorded if the request is refused
    payload: str | None = None  # stored with the job; the guard's message for this job
    notify_on_end: bool = False  # list the job in `list_unreported_jobs` when it has ended
    job: JobId | None = None  # apply only while this is the active job of the owner
    new_job: JobId | None = None  # the id of the job that the request begins, if the caller chooses it
    creates_owner: bool = False  # a delete creates the owner, too: its slots only remove what belongs to them
    traceparent: str | None = None  # the place of the request in a trace, stored with the job
    details: RequestDetails | None = None  # of guarded work
    uses_quota: bool = True  # False: the work itself only makes requests, which are counted
    rung: bool = False  # the caller sends a message itself; the reconciler sends another one only if that is lost


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionResult:
    """The decision on a request, with the job that does the work or prevents it."""

    verdict: Verdict
    reason: str
    status: Status
    job: JobId | None = None
    generation: int | None = None
    retry_at: Moment | None = None  # when the quota of the base is renewed

    @property
    def accepted(self) -> bool:
        return self.verdict is Verdict.ACCEPTED


@dataclass(frozen=True, slots=True)
class AdmissionRule:
    """One row of the admission table."""

    operations: frozenset[Operation]
    situations: frozenset[Situation]
    verdict: Verdict
    reason: str
    scope: SlotScope = field(default=SlotScope.NONE)


def _ops(*operations: Operation) -> frozenset[Operation]:
    return frozenset(operations)


def _when(*situations: Situation) -> frozenset[Situation]:
    return frozenset(situations)


_O, _S, _V = Operation, Situation, Verdict
_BUSY = _when(_S.ACTIVE, _S.STUCK)
_REST = _when(_S.COMPLETE, _S.INCOMPLETE)

# Retry of a failed clean-up: the same slots in a new generation that is due now.
RETRY_CLEANUP = AdmissionRule(_ops(_O.RETRY), _when(_S.CLEANUP_FAILED), _V.ACCEPTED, "clean_up_again", SlotScope.ALL)

# docs/lifecycle.md, "Admission", row by row. Every pair of operation and situation matches exactly one row.
ADMISSION_RULES: tuple[AdmissionRule, ...] = (
    AdmissionRule(frozenset(_O), _when(_S.JOB_ENDED), _V.SKIPPED, "nothing_active"),
    AdmissionRule(frozenset(_O), _when(_S.UNKNOWN), _V.REJECTED, "unknown_owner"),
    AdmissionRule(_ops(_O.DELETE, _O.RETRY), _when(_S.DELETING), _V.JOINED, "already_deleting"),
    AdmissionRule(_ops(_O.DELETE), _when(_S.CLEANUP_FAILED), _V.JOINED, "already_deleting"),
    RETRY_CLEANUP,
    AdmissionRule(_ops(_O.DELETE), _BUSY | _REST, _V.ACCEPTED, "delete", SlotScope.ALL),
    AdmissionRule(
        frozenset(_O) - {_O.DELETE, _O.RETRY}, _when(_S.DELETING, _S.CLEANUP_FAILED), _V.REJECTED, "being_deleted"
    ),
    AdmissionRule(_ops(_O.CHANGE), _when(_S.SAME_ACTIVE), _V.JOINED, "same_content"),
    AdmissionRule(_ops(_O.CHANGE), _when(_S.SAME_RESTING), _V.SKIPPED, "same_content"),
    AdmissionRule(_ops(_O.CHANGE), _BUSY | _REST, _V.ACCEPTED, "content_changed", SlotScope.ALL),
    AdmissionRule(_ops(_O.INDEX, _O.RETRY, _O.FORCE), _when(_S.ACTIVE), _V.JOINED, "already_in_progress"),
    AdmissionRule(_ops(_O.INDEX, _O.RETRY), _when(_S.STUCK), _V.ACCEPTED, "stuck", SlotScope.INCOMPLETE),
    AdmissionRule(_ops(_O.INDEX, _O.RETRY), _when(_S.COMPLETE), _V.SKIPPED, "already_indexed"),
    AdmissionRule(_ops(_O.INDEX, _O.RETRY), _when(_S.INCOMPLETE), _V.ACCEPTED, "not_complete", SlotScope.INCOMPLETE),
    AdmissionRule(_ops(_O.FORCE), _REST | _when(_S.STUCK), _V.ACCEPTED, "forced", SlotScope.ALL),
    AdmissionRule(_ops(_O.REINDEX, _O.RENEW, _O.DROP), _BUSY, _V.REJECTED, "not_terminal"),
    AdmissionRule(_ops(_O.REINDEX), _REST, _V.ACCEPTED, "reindex", SlotScope.ALL),
    AdmissionRule(_ops(_O.RENEW), _REST, _V.ACCEPTED, "renew", SlotScope.NAMED),
    AdmissionRule(_ops(_O.DROP), _when(_S.INCOMPLETE), _V.ACCEPTED, "drop", SlotScope.NAMED),
    AdmissionRule(_ops(_O.DROP), _when(_S.COMPLETE), _V.SKIPPED, "nothing_to_drop"),
    AdmissionRule(_ops(_O.CANCEL), _BUSY, _V.ACCEPTED, "cancel"),
    AdmissionRule(_ops(_O.CANCEL), _REST, _V.SKIPPED, "nothing_active"),
)

# Replaces the row that accepts a build when the base has used its quota for today.
QUOTA_EXHAUSTED = AdmissionRule(BUILD_OPERATIONS, frozenset(), Verdict.REJECTED, "quota_exhausted")
# A request for guarded work beyond a quota of its work.
WORK_QUOTA_REASONS = {
    QuotaScope.WORK: "work_quota_exhausted",
    QuotaScope.KEY: "key_quota_exhausted",
    QuotaScope.REQUESTER: "requester_quota_exhausted",
    QuotaScope.PROJECT: "project_quota_exhausted",
}


@cache
def find_rule(operation: Operation, situation: Situation) -> AdmissionRule:
    """Return the row for this pair. The table covers every pair that `classify_situation` can return."""
    return next(row for row in ADMISSION_RULES if operation in row.operations and situation in row.situations)


def classify_situation(
    request: Request,
    slots: Sequence[Slot],
    *,
    fingerprint: str | None,
    now: Moment,
    rules: Rules,
    overtaken: bool,
    paused: bool = False,
) -> Situation:
    """Return the situation of an owner with respect to a request.

    `overtaken` means that younger work of the same kind and priority was claimed before a queued slot of this owner. An
    owner that is `paused` is never stuck.
    """
    if request.job is not None and not any(slot.job == request.job and not slot.resting for slot in slots):
        return Situation.JOB_ENDED
    if not slots:
        creates = request.operation in CREATE_OPERATIONS or request.creates_owner
        return Situation.INCOMPLETE if creates and request.slots else Situation.UNKNOWN
    status = derive_status(slots)
    if status is Status.DELETING:
        return Situation.CLEANUP_FAILED if cleanup_failed(slots, now) else Situation.DELETING
    same = request.operation is Operation.CHANGE and request.fingerprint is not None
    same = same and request.fingerprint == fingerprint
    if status in (Status.INDEXING, Status.QUEUED):
        if same:
            return Situation.SAME_ACTIVE
        stuck = overtaken or any(stalled(slot, now, rules) for slot in slots)
        return Situation.STUCK if stuck and not paused else Situation.ACTIVE
    if same:
        return Situation.SAME_RESTING
    have = {slot.kind: slot for slot in slots}
    if request.operation is Operation.DROP:
        return Situation.INCOMPLETE if select_droppable(request.kinds, slots) else Situation.COMPLETE
    requested = select_requestable(request.slots, slots)
    if not {spec.kind for spec in requested}.issuperset(request.kinds):  # only a renewal names kinds here
        return Situation.ACTIVE  # a slot that it names is being removed
    unbuilt = any(needs_build(spec, have.get(spec.kind)) for spec in requested)
    # The status does not decide: after a cancelled rebuild it is `success`, but the newest version is not built.
    newest = all(slot.complete for slot in slots if slot.state is not SlotState.DELETING)
    return Situation.COMPLETE if newest and not unbuilt else Situation.INCOMPLETE


def cleanup_failed(slots: Sequence[Slot], now: Moment) -> bool:
    """Return whether the clean-up of these slots waits for another attempt and no worker holds them."""
    if any(slot.lease is not None and not slot.lease.expired(now) for slot in slots):
        return False
    return any(slot.due_at is not None and now < slot.due_at for slot in slots)


def stalled(slot: Slot, now: Moment, rules: Rules) -> bool:
    """Return whether a running slot has made no progress for too long. The timer starts at the claim."""
    if slot.state is not SlotState.RUNNING or slot.progress_at is None:
        return False
    return now >= slot.progress_at + micros(rules.stall)


def may_be_overtaken(slot: Slot, now: Moment, rules: Rules, *, resumed_at: Moment = _NEVER) -> bool:
    """Return whether a slot was queued, and not paused, for so long that younger work may have been claimed first."""
    return slot.state is SlotState.QUEUED and now >= max(slot.queued_at, resumed_at) + micros(rules.overtaken_after)
