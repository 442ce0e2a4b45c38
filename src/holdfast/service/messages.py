"""Replies to requests, with a message for each reason."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from holdfast.engine import Status, Verdict
from holdfast.errors import Conflict
from holdfast.guard import ADMISSION_MESSAGES

if TYPE_CHECKING:
    from holdfast.documents import ItemReply
    from holdfast.engine import AdmissionResult, BulkResult

REASON_MESSAGES = {
    **ADMISSION_MESSAGES,
    "already_indexed": "This is indexed; reindex it to do it again.",
    "unknown_owner": "This was never indexed; index it first.",
    "name_taken": "Another document has this name; replace it, rename this one, or delete the other.",
    "content_exists": "A document of this base has the same content already.",
    "clean_up_again": "Its clean-up is tried again now.",
    "nothing_to_do": "There is nothing to do.",
    "unknown_job": "There is no such job.",
    "same_priority": "It has this priority already.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The result of a request about one document."""

    verdict: Verdict
    reason: str
    message: str
    name: str = ""
    document: int | None = None
    job: str | None = None
    status: Status = Status.NOT_INDEXED
    generation: int | None = None

    @property
    def accepted(self) -> bool:
        """Whether the request started new work."""
        return self.verdict is Verdict.ACCEPTED


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkSummary:
    """The result of a request about many documents: counts by verdict and reason."""

    found: int
    accepted: int
    answers: dict[str, int]  # by `verdict: reason`
    dry_run: bool = False


def make_document_reply(result: ItemReply) -> Reply:
    return replace(make_job_reply(result, result.item), name=result.name)


def make_job_reply(result: AdmissionResult | ItemReply, document: int | None = None) -> Reply:
    return Reply(
        verdict=result.verdict,
        reason=result.reason,
        message=format_reason(result.reason, result.verdict, result.status),
        document=document,
        job=result.job,
        status=result.status,
        generation=result.generation,
    )


def format_reason(reason: str, verdict: Verdict, status: str) -> str:
    text = REASON_MESSAGES.get(reason, "Accepted." if verdict is Verdict.ACCEPTED else reason.replace("_", " "))
    return text.format(status=status)


def require_accepted(reply: Reply) -> Reply:
    """Return an accepted reply; raise any other as a `Conflict` that names the document and the job in the way."""
    if reply.accepted:
        return reply
    raise Conflict(
        reply.reason,
        reply.message,
        verdict=str(reply.verdict),
        status=str(reply.status),
        document=reply.document,
        job=reply.job,
    )


def make_conflict_reply(conflict: Conflict, name: str = "", *, job: str | None = None) -> Reply:
    """Return a conflict as the reply to one of several requests: the inverse of `require_accepted`."""
    return Reply(
        verdict=Verdict(conflict.verdict),
        reason=conflict.reason,
        message=str(conflict),
        name=name,
        document=conflict.document,
        job=job or conflict.job,
        status=Status(conflict.status),
    )


def merge_summaries(*results: BulkResult, dry_run: bool) -> BulkSummary:
    """Add up the results of requests about many documents."""
    answers: Counter[str] = Counter()
    for result in results:
        answers.update({f"{verdict}: {reason}": times for (verdict, reason), times in result.answers.items()})
    return BulkSummary(
        found=sum(result.found for result in results),
        accepted=sum(result.accepted for result in results),
        answers=dict(answers),
        dry_run=dry_run,
    )
