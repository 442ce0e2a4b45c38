"""The values that the guard returns: for requests, for deliveries of messages, and for ended jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import timedelta
from enum import StrEnum
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from holdfast.clock import as_datetime
from holdfast.engine import WORK_QUOTA_REASONS, AdmissionResult, Outcome, SlotState, Status, Verdict, format_reply

if TYPE_CHECKING:
    from holdfast.engine import Fault, Progress


class JobState(StrEnum):
    """The state of a job or a key in common words."""

    NONE = "none"  # a key without a result and without a job that could make one
    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"  # failed for now; tried again later
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    SUPERSEDED = "superseded"  # a newer request replaced it
    DELETED = "deleted"


STATE_OF_OUTCOME = {
    Outcome.SUCCESS: JobState.SUCCEEDED,
    Outcome.DEGRADED: JobState.SUCCEEDED,
    Outcome.FAILED: JobState.FAILED,
    Outcome.CANCELLED: JobState.CANCELLED,
    Outcome.SUPERSEDED: JobState.SUPERSEDED,
    Outcome.DELETED: JobState.DELETED,
}
STATE_OF_SLOT = {SlotState.RUNNING: JobState.RUNNING, SlotState.WAITING: JobState.WAITING}
STATE_OF_STATUS = {
    Status.NOT_INDEXED: JobState.NONE,
    Status.QUEUED: JobState.QUEUED,
    Status.INDEXING: JobState.RUNNING,
    Status.SUCCESS: JobState.SUCCEEDED,
    Status.DEGRADED: JobState.SUCCEEDED,
    Status.FAILED: JobState.FAILED,
    Status.DELETING: JobState.DELETED,
}


class Plain:
    """A value with a dictionary that `json.dumps` accepts."""

    __slots__ = ()

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as plain values: no enums, times or durations."""
        found = {one.name: to_plain(getattr(self, one.name)) for one in fields(self)}  # type: ignore[arg-type]
        state = getattr(self, "state", None)
        return found if state is None else {**found, "state": str(state)}


def to_plain(value: Any) -> Any:
    """Return numbers, texts, lists and dictionaries instead of richer values; durations are seconds."""
    if isinstance(value, StrEnum):
        return str(value)
    if isinstance(value, timedelta):
        return value.total_seconds()
    if is_dataclass(value) and not isinstance(value, type):
        return {one.name: to_plain(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return to_plain(value._asdict())
    if isinstance(value, Mapping):
        return {str(name): to_plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [to_plain(one) for one in value]
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


REFUSAL_STATUSES = {
    "unknown_owner": HTTPStatus.NOT_FOUND,
    "quota_exhausted": HTTPStatus.TOO_MANY_REQUESTS,
    **dict.fromkeys(WORK_QUOTA_REASONS.values(), HTTPStatus.TOO_MANY_REQUESTS),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission(AdmissionResult, Plain):
    """The result of a request for a key. If it was not accepted, `job` is the job that prevents it."""

    key: str

    @classmethod
    def from_result(cls, key: str, result: AdmissionResult) -> Admission:
        return cls(key=key, **{one.name: getattr(result, one.name) for one in fields(result)})

    @property
    def settled(self) -> bool:
        """Whether the request starts and joins no work, so its answer is known."""
        return self.verdict in (Verdict.SKIPPED, Verdict.REJECTED)

    @property
    def state(self) -> JobState:
        """The status in common words."""
        return STATE_OF_STATUS[self.status]

    @property
    def message(self) -> str:
        return format_reply(self.reason, self.state, accepted=self.accepted)

    @property
    def http_status(self) -> HTTPStatus:
        """A status for HTTP: 202 accepted, 200 nothing to do, 409 conflict, 404 unknown key, 429 quota exhausted."""
        if self.accepted:
            return HTTPStatus.ACCEPTED
        if self.verdict is Verdict.SKIPPED:
            return HTTPStatus.OK
        return REFUSAL_STATUSES.get(self.reason, HTTPStatus.CONFLICT)

    def body(self) -> dict[str, Any]:
        """Return a JSON-compatible body for HTTP."""
        resets = {} if self.retry_at is None else {"retry_at": as_datetime(self.retry_at).isoformat()}
        return {
            "key": self.key,
            "verdict": str(self.verdict),
            "reason": self.reason,
            "message": self.message,
            "status": str(self.status),
            "state": str(self.state),
            "job": self.job,
            "generation": self.generation,
            **resets,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyStatus(Plain):
    key: str
    status: Status
    generation: int = 0
    job: str | None = None  # the newest job
    progress: Progress | None = None
    attempt: int = 0
    error: Fault | None = None
    waits: bool = False  # it failed for now and is tried again later
    served: int | None = None  # the fence of the result that readers should use

    @property
    def state(self) -> JobState:
        """The status in common words."""
        return JobState.WAITING if self.waits else STATE_OF_STATUS[self.status]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryResult(Plain):
    """The result of one delivery of a message."""

    verdict: str  # done, skipped, postponed or lock_held
    reason: str
    outcome: Outcome | None = None  # of the job, if it ended with this delivery
    redeliver_in: timedelta | None = None  # deliver the message again after this time
    value: Any = None  # the return value of the work

    def body(self) -> dict[str, Any]:
        """Return a dictionary that is valid as a Celery result."""
        return {
            "verdict": self.verdict,
            "reason": self.reason,
            "outcome": str(self.outcome) if self.outcome else None,
            "value": self.value,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished(Plain):
    """The end of a job. `on_finished` receives it at least once, after the slot is free, and again if it raises."""

    key: str
    job: str
    generation: int
    outcome: Outcome
    requester: str
    results: Mapping[str, Any] = field(default_factory=dict)
    work: str = ""
    result: Any = None  # the return value of the work, if it is JSON
    counters: Mapping[str, float] = field(default_factory=dict)

    @property
    def state(self) -> JobState:
        """The outcome in common words."""
        return STATE_OF_OUTCOME[self.outcome]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStatus(Plain):
    """A job, found by its id alone."""

    job: str
    work: str
    key: str
    generation: int
    state: JobState
    requester: str = ""
    project: str = ""
    outcome: Outcome | None = None
    progress: Progress | None = None
    counters: Mapping[str, float] = field(default_factory=dict)
    partial: Any = None
    result: Any = None  # the return value of the work, if it is JSON
    attempt: int = 0
    error: str | None = None  # the code
    tokens: int = 0
    price: float = 0.0
    created_at: str = ""  # in UTC, as ISO 8601
    finished_at: str | None = None
