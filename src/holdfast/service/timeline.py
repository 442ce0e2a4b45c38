"""Builds the history of a document from its jobs and its events. Pure functions."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from holdfast.clock import as_datetime
from holdfast.engine import Operation, Problem, describe_fault

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from holdfast.clock import Moment
    from holdfast.engine import Slot
    from holdfast.engine.store import Job, LoggedEvent

MICROS_PER_SECOND = 1_000_000
# Labels of slot events. `slot.admitted` and `slot.unblocked` have none, because the entries of jobs show them.
SLOT_EVENT_LABELS = {
    "slot.claimed": "claimed",
    "slot.completed": "ready",
    "slot.postponed": "postponed",
    "slot.failed": "failed",
    "slot.given_up": "failed",
    "slot.released": "released",
    "slot.expired": "expired",
    "slot.cancelled": "cancelled",
    "slot.forgotten": "removed",
}
DOCUMENT_EVENT_LABELS = {"document.added": "added", "document.changed": "changed"}


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryEntry:
    """An entry in the history of a document: a request, an attempt, or an outcome."""

    at: datetime
    # For a job: accepted, or its outcome. For an index: claimed, ready, failed, postponed, released, expired,
    # cancelled, removed. For the document: added, changed.
    what: str
    kind: str | None = None  # the index; None: the entry is about the whole document
    job: str | None = None
    generation: int | None = None
    attempt: int | None = None  # number of claims of this index in this generation, including this one
    operation: Operation | None = None
    requester: str | None = None
    problem: Problem | None = None
    seconds: float | None = None  # since the claim; for a job, since it was accepted
    waited_seconds: float | None = None  # of an attempt that ended: in the queue before it
    cpu_seconds: float | None = None
    peak_bytes: int | None = None  # memory
    written: int | None = None  # rows
    kept: int | None = None
    removed: int | None = None


def build_timeline(jobs: Iterable[Job], lines: Sequence[LoggedEvent], slots: Sequence[Slot]) -> list[HistoryEntry]:
    """Return all entries, newest first."""
    problems = {(slot.kind, slot.error.code): describe_fault(slot.error) for slot in slots if slot.error}
    entries = [
        *_job_entries(jobs, problems),
        *_slot_entries(sorted(lines, key=lambda line: (line.at, line.id)), problems),
    ]
    order = sorted(enumerate(entries), key=lambda pair: (pair[1].at, _tie_rank(pair[1]), pair[0]), reverse=True)
    return [entry for _, entry in order]


def _job_entries(jobs: Iterable[Job], problems: Mapping[tuple[str, str], Problem]) -> Iterator[HistoryEntry]:
    """Yield the start and the end of each job."""
    for job in jobs:
        named = {"job": job.id, "generation": job.generation, "operation": job.operation, "requester": job.requester}
        yield HistoryEntry(at=as_datetime(job.created_at), what="accepted", **named)  # type: ignore[arg-type]
        if job.outcome is not None and job.finished_at is not None:
            failed = [(kind, str(result["error"])) for kind, result in job.results.items() if result.get("error")]
            yield HistoryEntry(
                at=as_datetime(job.finished_at),
                what=str(job.outcome),
                problem=_find_problem(*failed[0], problems) if failed else None,
                seconds=_seconds_between(job.created_at, job.finished_at),
                **named,  # type: ignore[arg-type]
            )


def _slot_entries(lines: Iterable[LoggedEvent], problems: Mapping[tuple[str, str], Problem]) -> Iterator[HistoryEntry]:
    """Yield the claims of each index and how they ended, oldest first."""
    attempts: dict[tuple[str, str | None, int | None], int] = {}
    claims: dict[tuple[str, str | None, int | None], Moment] = {}
    for line in lines:
        event = line.event
        if event.type in DOCUMENT_EVENT_LABELS:
            yield HistoryEntry(at=as_datetime(line.at), what=DOCUMENT_EVENT_LABELS[event.type])
        if event.type not in SLOT_EVENT_LABELS:
            continue
        of, taken = (event.owner, event.kind, event.generation), (event.owner, event.kind, event.fence)
        if event.type == "slot.claimed":
            attempts[of] = attempts.get(of, 0) + 1
            claims[taken] = line.at
        facts = event.parsed_data
        error = facts.get("error")
        yield HistoryEntry(
            at=as_datetime(line.at),
            what=SLOT_EVENT_LABELS[event.type],
            kind=event.kind,
            job=event.job,
            generation=event.generation,
            attempt=attempts.get(of),
            problem=_find_problem(event.kind or "", str(error), problems) if error else None,
            seconds=_seconds_between(claims[taken], line.at)
            if taken in claims and event.type != "slot.claimed"
            else None,
            waited_seconds=facts["waited_ms"] / 1000 if "waited_ms" in facts else None,
            cpu_seconds=facts["cpu_ms"] / 1000 if "cpu_ms" in facts else None,
            peak_bytes=facts["peak_kb"] * 1024 if "peak_kb" in facts else None,
            written=facts.get("written"),
            kept=facts.get("kept"),
            removed=facts.get("removed"),
        )


def _find_problem(kind: str, code: str, problems: Mapping[tuple[str, str], Problem]) -> Problem:
    """Return the problem with its message if a slot still has it. The event log stores only the code."""
    return problems.get((kind, code)) or Problem(code=code, message=code.replace("_", " ").capitalize() + ".")


def _seconds_between(begun: Moment, ended: Moment) -> float:
    return round(max(0, ended - begun) / MICROS_PER_SECOND, 3)


def _tie_rank(entry: HistoryEntry) -> int:
    """Order entries of the same time: document added, request accepted, index attempts, job ended."""
    if entry.kind is not None:
        return 2
    return {"added": 0, "changed": 0, "accepted": 1}.get(entry.what, 3)
