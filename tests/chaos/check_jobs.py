"""Checks that every job has exactly one outcome, and that at most one of identical requests was accepted."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from tests.chaos.violations import Kind, Violation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.chaos.history import Operation, Record

OUTCOMES = frozenset({"success", "degraded", "failed", "superseded", "cancelled", "deleted"})
JUDGED_TWINS = ("put", "delete")  # the second of two equal requests never starts work, however fast the first ends


def check_jobs(record: Record) -> Iterator[Violation]:
    jobs = {job["id"]: job for job in record.final["jobs"]}
    for job, count in Counter(job["id"] for job in record.final["jobs"]).items():
        if count > 1:
            yield Violation(kind=Kind.DUPLICATED, text=f"{count} jobs have the id {job}")
    for one in record.operations:
        job = one.value.get("job")
        if one.ok and job and job not in jobs:
            yield Violation(
                kind=Kind.LOST, key=one.key, text=f"job {job} was acknowledged and is gone", operations=(one.number,)
            )
    for job in jobs.values():
        if job["outcome"] not in OUTCOMES:
            yield Violation(kind=Kind.STUCK, text=f"job {job['id']} of {job['owner']} has no outcome: {job}")
    yield from _check_outcome_events(record)
    yield from _check_changed_outcomes(record)


def _check_outcome_events(record: Record) -> Iterator[Violation]:
    """The log contains one end of each job, and it is the outcome of the job."""
    ends: dict[str, list[str]] = defaultdict(list)
    for event in record.final["events"]:
        outcome = event["name"].removeprefix("job.")
        if event["name"].startswith("job.") and outcome in OUTCOMES:
            ends[event["job"]].append(outcome)
    for job in record.final["jobs"]:
        if job["outcome"] in OUTCOMES and ends[job["id"]] != [job["outcome"]]:
            text = f"job {job['id']} ended as {job['outcome']}, and the events say {ends[job['id']]}"
            yield Violation(kind=Kind.DUPLICATED if len(ends[job["id"]]) > 1 else Kind.LOST, text=text)


def _check_changed_outcomes(record: Record) -> Iterator[Violation]:
    """A client that has read an outcome never reads another one."""
    final = {job["id"]: job["outcome"] for job in record.final["jobs"]}
    for one in record.operations:
        told = one.value.get("outcome") if one.name == "job" and one.ok else None
        if told is not None and final.get(one.value["job"], told) != told:
            text = f"a client read {told} for job {one.value['job']}, which ended as {final[one.value['job']]}"
            yield Violation(kind=Kind.DUPLICATED, text=text, operations=(one.number,))


def check_identical_requests(record: Record) -> Iterator[Violation]:
    by_number = {one.number: one for one in record.operations}
    writes: dict[tuple[str, str], list[Operation]] = defaultdict(list)
    for one in record.operations:
        if one.name in JUDGED_TWINS:
            writes[one.arguments["base"], one.key].append(one)
    for twin in record.operations:
        first = by_number.get(twin.arguments.get("twin", 0))
        if first is None or twin.name not in JUDGED_TWINS:
            continue
        accepted = [one for one in (first, twin) if one.ok and one.value.get("verdict") == "accepted"]
        others = [one for one in writes[twin.arguments["base"], twin.key] if one not in (first, twin)]
        if len(accepted) > 1 and not any(_overlap(other, first, twin) for other in others):
            text = f"two identical requests ({twin.name} of {twin.key}) were accepted"
            yield Violation(kind=Kind.DUPLICATED, key=twin.key, text=text, operations=(first.number, twin.number))


def _overlap(other: Operation, first: Operation, twin: Operation) -> bool:
    begin, end = min(first.invoked, twin.invoked), max(first.ended, twin.ended)
    return other.outcome != "fail" and other.invoked < end and other.settled > begin
