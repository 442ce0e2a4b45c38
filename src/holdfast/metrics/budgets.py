"""Samples of the budgets of bases: tokens allowed and tokens spent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.metrics.catalogue import Sample

if TYPE_CHECKING:
    from holdfast.catalog import Catalog
    from holdfast.clock import Clock
    from holdfast.llm import PaidAnswerCache

MAX_BASES = 50  # with the largest part of their budget spent, so that the number of labels is bounded
PERIOD_SECONDS = 60.0  # a sum over the ledger of each base with a budget is too slow for every request


class BudgetGauges:
    """Reads the budgets at most once a minute."""

    def __init__(self, catalogue: Catalog, memos: PaidAnswerCache, clock: Clock) -> None:
        self._catalogue = catalogue
        self._memos = memos
        self._clock = clock
        self._samples: list[Sample] = []
        self._next_read = float("-inf")

    def sample(self) -> list[Sample]:
        now = self._clock.monotonic()
        if now >= self._next_read:
            self._samples, self._next_read = self._read(), now + PERIOD_SECONDS
        return self._samples

    def _read(self) -> list[Sample]:
        budgets = {
            base.name: (budget, self._memos.summarize_base(base.key).spent.tokens)
            for base in self._catalogue.bases()
            if (budget := base.settings.budget_tokens) is not None
        }
        fullest = sorted(budgets.items(), key=lambda item: item[1][1] / max(1, item[1][0]), reverse=True)[:MAX_BASES]
        samples = []
        for name, (budget, spent) in fullest:
            samples += [Sample("budget_tokens", budget, (name,)), Sample("spent_tokens", spent, (name,))]
        return samples
