"""The values that the guard returns: for requests, for deliveries of messages, and for ended jobs."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from holdfast.engine import AdmissionResult, Verdict, format_reply

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import timedelta

    from holdfast.engine import Fault, Outcome, Progress, Status

REFUSAL_STATUSES = {"unknown_owner": HTTPStatus.NOT_FOUND, "quota_exhausted": HTTPStatus.TOO_MANY_REQUESTS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission(AdmissionResult):
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
    def message(self) -> str:
        return format_reply(self.reason, self.status, accepted=self.accepted)

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
        return {
            "key": self.key,
            "verdict": str(self.verdict),
            "reason": self.reason,
            "message": self.message,
            "status": str(self.status),
            "job": self.job,
            "generation": self.generation,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyStatus:
    key: str
    status: Status
    generation: int = 0
    job: str | None = None  # the newest job
    progress: Progress | None = None
    attempt: int = 0
    error: Fault | None = None
    served: int | None = None  # the fence of the result that readers should use


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryResult:
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
class Finished:
    """The end of a job. `on_finished` receives it at least once, after the slot is free, and again if it raises."""

    key: str
    job: str
    generation: int
    outcome: Outcome
    requester: str
    results: Mapping[str, Any] = field(default_factory=dict)
