"""What is told to people: a sentence for each reason, problems, progress and times."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from holdfast.core.admission import Verdict
from holdfast.core.clock import Moment
from holdfast.core.waiting import MOMENTS
from holdfast.errors import Conflict
from holdfast.front.values import Problem, Progress, Reply, Summary
from holdfast.guard.answers import SENTENCES as ADMISSION
from holdfast.knowledge.standings import share

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast.core.admission import Answer
    from holdfast.core.queue import Summary as Counted
    from holdfast.core.slot import Fault
    from holdfast.core.slot import Progress as SlotProgress
    from holdfast.core.waiting import Reason
    from holdfast.indexes.base import NotEnabled
    from holdfast.knowledge.adding import Reply as ItemReply

# Reasons that the guard notes by itself; all others bring their sentence along.
FAULTS = {
    "attempts_spent": "It was tried {attempts} times and never came to an end; the last time: {last}. Try again when "
    "that is mended.",
    "needed_slot_failed": "It is built from {kind}, which failed.",
    "no_result": "The indexer gave no result for it, which is a fault of the indexer.",
}

SENTENCES = {
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


def moment(value: Moment | None) -> datetime | None:
    """Return a moment as people's programs write it."""
    return None if value is None else when(value)


def when(value: Moment) -> datetime:
    """Return a moment that is known."""
    return datetime.fromtimestamp(value / 1_000_000, UTC)


def problem(fault: Fault | None) -> Problem | None:
    """Return an error as a sentence with its code, where there is one."""
    return None if fault is None else problem_of(fault)


def problem_of(fault: Fault) -> Problem:
    """Return an error as a sentence with its code."""
    params = {name: str(value) for name, value in fault.params.items() if name != "message"}
    message = fault.params.get("message") or FAULTS.get(fault.code, fault.code).format_map(params)
    return Problem(code=fault.code, message=str(message), params=params)


def waiting(reasons: Sequence[Reason], base: str) -> list[Problem]:
    """Return why work in a base is not at rest, each reason once."""
    found: dict[str, Problem] = {}
    for reason in reasons:
        params = {
            name: when(Moment(int(value))).isoformat() if name in MOMENTS else str(value)
            for name, value in reason.params.items()
        }
        message = reason.sentence(base)
        found.setdefault(message, Problem(code=reason.code, message=message, params={**params, "base": base}))
    return list(found.values())


def not_enabled(reasons: Mapping[str, NotEnabled]) -> dict[str, Problem]:
    """Return why a base cannot have some indexes."""
    return {kind: Problem(code=one.subcode or one.reason, message=str(one)) for kind, one in reasons.items()}


def progress(one: SlotProgress) -> Progress | None:
    """Return how far work is; None where it has not begun."""
    if not one.stage:
        return None
    return Progress(stage=one.stage, step=one.step, steps=one.steps, done=one.done, total=one.total, share=share(one))


def reply(one: ItemReply) -> Reply:
    """Return what came of a request about a document."""
    return Reply(
        verdict=one.verdict,
        reason=one.reason,
        message=sentence(one.reason, one.verdict, one.status),
        name=one.name,
        document=one.item,
        job=one.job,
        status=one.status,
        generation=one.generation,
    )


def answered(one: Answer, document: int | None = None) -> Reply:
    """Return what came of a request about a job or a base."""
    return Reply(
        verdict=one.verdict,
        reason=one.reason,
        message=sentence(one.reason, one.verdict, one.status),
        document=document,
        job=one.job,
        status=one.status,
        generation=one.generation,
    )


def sentence(reason: str, verdict: Verdict, status: str) -> str:
    """Say what a reason means."""
    said = SENTENCES.get(reason, "Accepted." if verdict is Verdict.ACCEPTED else reason.replace("_", " "))
    return said.format(status=status)


def accepted(one: Reply) -> Reply:
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


def only(replies: Sequence[Reply]) -> Reply:
    """Return the reply about one document, if it was accepted."""
    (one,) = replies
    return accepted(one)


def summed(*some: Counted, dry_run: bool) -> Summary:
    """Return what came of requests about many, added up."""
    answers: Counter[str] = Counter()
    for one in some:
        answers.update({f"{verdict}: {reason}": times for (verdict, reason), times in one.answers.items()})
    return Summary(
        found=sum(one.found for one in some),
        accepted=sum(one.accepted for one in some),
        answers=dict(answers),
        dry_run=dry_run,
    )
