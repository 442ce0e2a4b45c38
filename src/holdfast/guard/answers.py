"""What the guard says: to whoever asks, to whoever carries messages, to whoever waits for the end."""

from __future__ import annotations

from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from holdfast.engine import Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import timedelta

    from holdfast.engine import AdmissionResult, Fault, Outcome, Progress, Status

ADMISSION_MESSAGES = {
    "already_in_progress": "The same work is already {status}; wait for it or cancel it.",
    "same_content": "This content is what is indexed or being indexed; there is nothing to do.",
    "already_indexed": "This is done; ask with the operation 'reindex' to do it again.",
    "being_deleted": "This is being deleted; ask again when it is gone.",
    "already_deleting": "This is being deleted already.",
    "not_terminal": "The work is still {status}; wait for it or cancel it first.",
    "nothing_to_drop": "None of what was named is there, or something that stays needs it.",
    "nothing_active": "Nothing is queued or running, so there is nothing to cancel.",
    "unknown_owner": "Nothing is known under this key; ask with the operation 'index' first.",
    "quota_exhausted": "As much as is allowed in a day was started today; ask again after midnight UTC.",
}


REFUSAL_STATUSES = {"unknown_owner": HTTPStatus.NOT_FOUND, "quota_exhausted": HTTPStatus.TOO_MANY_REQUESTS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """What came of a request; whoever is not accepted learns which job stands in the way."""

    key: str
    verdict: Verdict
    reason: str
    status: Status
    job: str | None
    generation: int | None

    @classmethod
    def from_answer(cls, key: str, answer: AdmissionResult) -> Admission:
        """Tell the store's answer."""
        return cls(
            key=key,
            verdict=answer.verdict,
            reason=answer.reason,
            status=answer.status,
            job=answer.job,
            generation=answer.generation,
        )

    @property
    def accepted(self) -> bool:
        """New work, or a cancellation, was written."""
        return self.verdict is Verdict.ACCEPTED

    @property
    def message(self) -> str:
        """A sentence for people."""
        return ADMISSION_MESSAGES.get(self.reason, "Accepted.").format(status=self.status)

    @property
    def http_status(self) -> HTTPStatus:
        """The status of a web answer: 202 accepted, 409 a job stands in the way, 200 nothing to do, 404, 429."""
        if self.accepted:
            return HTTPStatus.ACCEPTED
        if self.verdict is Verdict.SKIPPED:
            return HTTPStatus.OK
        return REFUSAL_STATUSES.get(self.reason, HTTPStatus.CONFLICT)

    def body(self) -> dict[str, Any]:
        """Return the body of a web answer, made of plain values."""
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
    """How a key stands now."""

    key: str
    status: Status
    generation: int = 0
    job: str | None = None  # the newest
    progress: Progress | None = None
    attempt: int = 0
    error: Fault | None = None
    served: int | None = None  # the fence of the build that readers should see


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryResult:
    """What came of one delivery of a message."""

    verdict: str  # done, skipped, postponed or lock_held
    reason: str
    outcome: Outcome | None = None  # of the job, when it ended with this delivery
    redeliver_in: timedelta | None = None  # deliver the message once more after this time
    value: Any = None  # what the work returned

    def body(self) -> dict[str, Any]:
        """Return plain values, fit to be a Celery result."""
        return {
            "verdict": self.verdict,
            "reason": self.reason,
            "outcome": str(self.outcome) if self.outcome else None,
            "value": self.value,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """The end of a job, told at least once after its slot is free; a teller that fails is called again."""

    key: str
    job: str
    generation: int
    outcome: Outcome
    requester: str
    results: Mapping[str, Any] = field(default_factory=dict)
