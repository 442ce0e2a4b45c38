"""Counts the rows of every index for the metrics, a portion at a time."""

from __future__ import annotations

import logging
from collections import defaultdict
from typing import TYPE_CHECKING

from holdfast.engine import Total
from holdfast.engine.store import LARGEST_BATCH
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.catalog import Catalog, Recipe
    from holdfast.clock import Clock
    from holdfast.engine.store import SqlStore
    from holdfast.indexes.registry import IndexRegistry

log = logging.getLogger("holdfast")

INDEX_ROWS = "index_rows"  # totals by kind, with the base as the detail
STEP_SECONDS = 0.2  # of each clean-up, which runs once a minute: about fifty thousand rows


class IndexRowCounter:
    """Counts in rounds. The totals are those of the last complete round, of whatever process."""

    def __init__(self, store: SqlStore, catalogue: Catalog, indexes: IndexRegistry, clock: Clock) -> None:
        self._store = store
        self._catalogue = catalogue
        self._indexes = indexes
        self._clock = clock
        self._round: Iterator[None] = iter(())

    def step(self) -> None:
        """Count for a short time. A round that is complete writes its totals; the next step begins another one."""
        ends = self._clock.monotonic() + STEP_SECONDS
        if next(self._round, self) is self:
            self._round = self._count_all()
        for _ in self._round:
            if self._clock.monotonic() >= ends:
                return

    def _count_all(self) -> Iterator[None]:
        """Count the rows of all recipes. Yields after each batch."""
        rows: dict[Total, float] = defaultdict(float)
        for base, kind, recipe in self._catalogue.all_recipes():
            if kind not in self._indexes.kinds:  # not installed here
                continue
            for number in self._count(kind, recipe):
                rows[Total(INDEX_ROWS, kind, base)] += number
                yield
        self._store.replace_totals(INDEX_ROWS, rows)

    def _count(self, kind: str, recipe: Recipe) -> Iterator[int]:
        """Yield the number of rows of each batch. An index that does not answer is left out."""
        after = 0
        try:
            while chunks := self._indexes[kind].scan(recipe, after, LARGEST_BATCH):
                after = chunks[-1]
                yield len(chunks)
        except HoldfastError as error:
            log.warning("index.not_counted kind=%s recipe=%d error=%s", kind, recipe.id, error)
