"""Converts the results of requests to replies with messages, and replies to errors and back."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from holdfast.engine import Status, Verdict, format_reply
from holdfast.errors import Conflict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.documents import ItemReply
    from holdfast.engine import AdmissionResult, BulkResult


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
    jobs: list[str] = field(default_factory=list)  # the job of each base that processes the documents, with the answers


def make_document_reply(result: ItemReply) -> Reply:
    return replace(make_job_reply(result, result.item), name=result.name)


def make_job_reply(result: AdmissionResult | ItemReply, document: int | None = None) -> Reply:
    return Reply(
        verdict=result.verdict,
        reason=result.reason,
        message=format_reply(result.reason, result.status, accepted=result.verdict is Verdict.ACCEPTED),
        document=document,
        job=result.job,
        status=result.status,
        generation=result.generation,
    )


def require_accepted(reply: Reply) -> Reply:
    """Return an accepted reply; raise any other as a `Conflict` that names the document and the active job."""
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
    """Convert a conflict to a reply: the inverse of `require_accepted`."""
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
        answers.update(format_answers(result.answers))
    return BulkSummary(
        found=sum(result.found for result in results),
        accepted=sum(result.accepted for result in results),
        answers=dict(answers),
        dry_run=dry_run,
        jobs=[result.job for result in results if result.job is not None],
    )


def format_answers(answers: Mapping[tuple[Verdict, str], int]) -> dict[str, int]:
    return {f"{verdict}: {reason}": times for (verdict, reason), times in answers.items()}
