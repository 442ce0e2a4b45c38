"""Summarises a run in one JSON object."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from tests.chaos.check_paid import count_paid
from tests.chaos.violations import Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.chaos.history import Record
    from tests.chaos.violations import Violation

MICROSECONDS = 1_000_000


def summarise(record: Record, violations: Sequence[Violation], never_fired: Sequence[str]) -> dict[str, Any]:
    """Return the numbers of a run. `never_fired` are kinds of faults that had to occur and did not."""
    outcomes = Counter(one.outcome for one in record.operations)
    kinds = Counter(violation.kind for violation in violations)
    fired = Counter(one["kind"] for one in record.faults if one["fired"])
    return {
        **record.run,
        "operations": dict(sorted(outcomes.items())) | {"by_name": _acknowledged(record)},
        "faults": sum(fired.values()),
        "faults_by_kind": dict(sorted(fired.items())),
        "never_fired": sorted(never_fired),
        **{kind.value: kinds[kind] for kind in Kind},
        "payments": count_paid(record),
        "recovery_s": recovery(record),
    }


def _acknowledged(record: Record) -> dict[str, int]:
    return dict(sorted(Counter(one.name for one in record.operations if one.ok).items()))


def recovery(record: Record) -> dict[str, float | int]:
    """Return how long after a fault the work was done that was accepted and not done when the fault began."""
    began = record.run["wall"] * MICROSECONDS
    spans = [
        ((job["created_at"] - began) / MICROSECONDS, (job["finished_at"] - began) / MICROSECONDS)
        for job in record.final["jobs"]
        if job["finished_at"]
    ]
    waits = sorted(
        end - fault["begin"]
        for fault in record.faults
        if fault["fired"]
        for begin, end in spans
        if begin <= fault["begin"] < end
    )
    return {"jobs": len(waits), "p50": _percentile(waits, 0.5), "p99": _percentile(waits, 0.99)}


def _percentile(values: list[float], share: float) -> float:
    return round(values[min(len(values) - 1, int(len(values) * share))], 2) if values else 0.0
