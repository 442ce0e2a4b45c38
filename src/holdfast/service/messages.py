"""What is told to people: a sentence for each reason."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from holdfast.engine import Status, Verdict
from holdfast.errors import Conflict
from holdfast.guard.answers import ADMISSION_MESSAGES as ADMISSION
from holdfast.service.schemas import BulkSummary, Reply

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.documents import ItemReply
    from holdfast.engine import AdmissionResult
    from holdfast.engine import BulkResult as Counted

REASON_MESSAGES = {
    **ADMISSION,
    "already_indexed": "This is indexed; reindex it to do it again.",
    "unknown_owner": "This was never indexed; index it first.",
    "name_taken": "Another document has this name; replace it, rename this one, or delete the other.",
    "content_exists": "A document of this base has the same content already.",
    "clean_up_again": "Its clean-up is tried again now.",
    "nothing_to_do": "There is nothing to do.",
    "unknown_job": "There is no such job.",
    "same_priority": "It has this priority already.",
}


def make_document_reply(one: ItemReply) -> Reply:
    """Return what came of a request about a document."""
    return Reply(
        verdict=one.verdict,
        reason=one.reason,
        message=format_reason(one.reason, one.verdict, one.status),
        name=one.name,
        document=one.item,
        job=one.job,
        status=one.status,
        generation=one.generation,
    )


def make_job_reply(one: AdmissionResult, document: int | None = None) -> Reply:
    """Return what came of a request about a job or a base."""
    return Reply(
        verdict=one.verdict,
        reason=one.reason,
        message=format_reason(one.reason, one.verdict, one.status),
        document=document,
        job=one.job,
        status=one.status,
        generation=one.generation,
    )


def format_reason(reason: str, verdict: Verdict, status: str) -> str:
    """Say what a reason means."""
    said = REASON_MESSAGES.get(reason, "Accepted." if verdict is Verdict.ACCEPTED else reason.replace("_", " "))
    return said.format(status=status)


def require_accepted(one: Reply) -> Reply:
    """Return a reply that was accepted; any other is a conflict that names what stands in the way."""
    if one.accepted:
        return one
    raise Conflict(
        one.reason,
        one.message,
        verdict=str(one.verdict),
        status=str(one.status),
        document=one.document,
        job=one.job,
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


def require_single_accepted(replies: Sequence[Reply]) -> Reply:
    """Return the reply about one document, if it was accepted."""
    (one,) = replies
    return require_accepted(one)


def merge_summaries(*some: Counted, dry_run: bool) -> BulkSummary:
    """Return what came of requests about many, added up."""
    answers: Counter[str] = Counter()
    for one in some:
        answers.update({f"{verdict}: {reason}": times for (verdict, reason), times in one.answers.items()})
    return BulkSummary(
        found=sum(one.found for one in some),
        accepted=sum(one.accepted for one in some),
        answers=dict(answers),
        dry_run=dry_run,
    )
