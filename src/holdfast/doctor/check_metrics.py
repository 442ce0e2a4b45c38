"""Checks the totals of the metrics: the counted slots equal the slots."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.doctor.report import Check, Issue, Place
from holdfast.engine.store import LARGEST_BATCH

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from holdfast.engine.store import SqlStore

METRICS = Place("the metrics")
MAX_TRIES = 5


class MetricChecks:
    """Compares the totals with the slots in one snapshot, so it reports no work in progress."""

    def __init__(self, store: SqlStore) -> None:
        self._store = store

    def checks(self) -> list[Check]:
        return [Check("total_differs", self._find_wrong_totals, self._correct_totals)]

    def _find_wrong_totals(self) -> Iterator[list[Issue]]:
        wrong = self._store.find_wrong_slot_totals(LARGEST_BATCH)
        yield [
            Issue(METRICS, f"{total.kind} {total.detail}: {true - missing:g} counted, {true} exist", total)
            for total, (missing, true) in sorted(wrong.items())
        ]

    def _correct_totals(self, issues: Sequence[Issue]) -> int:
        """Correct all totals at once. A step that adds new events in between prevents it, so try a few times."""
        corrected = next(filter(None, (self._store.correct_slot_totals() for _ in range(MAX_TRIES))), 0)
        return min(corrected, len(issues))
