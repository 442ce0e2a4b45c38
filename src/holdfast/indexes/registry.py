"""The installed indexes, built-in and of other packages, found by the entry point `holdfast.indexes`."""

from __future__ import annotations

import logging
from datetime import timedelta
from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from holdfast.catalog import spec_text
from holdfast.errors import BadSettings, StoreError
from holdfast.indexes.base import CONTENT, NotEnabled, chunk_list_spec
from holdfast.indexes.costs import CostEstimator
from holdfast.indexes.gc import ChunkGarbageCollector

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from importlib.metadata import EntryPoint

    from holdfast.catalog import Base, Catalog, Recipe
    from holdfast.indexes.base import Index, Tools
    from holdfast.indexes.search_memory import SearchMemory

log = logging.getLogger("holdfast")

ENTRY_POINT_GROUP = "holdfast.indexes"
LATE_WORKER_GRACE = timedelta(days=1)  # no worker of a doomed recipe runs longer


@cache
def _load_entry_points() -> Mapping[str, EntryPoint]:
    """Return the installed indexes. Cached, because reading package metadata takes longer than opening a library."""
    return {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}


def list_installed_kinds() -> list[str]:
    """Return the kinds of all installed indexes. Loads none of them."""
    return sorted(_load_entry_points())


class IndexRegistry:
    """All indexes of a process, by kind."""

    def __init__(self, tools: Tools, catalogue: Catalog, more: Mapping[str, Index] | None = None) -> None:
        self._tools = tools
        self._catalogue = catalogue
        self._loaded: dict[str, Index] = dict(more or {})
        self._maintenance: Iterator[int] = iter(())
        self._points = _load_entry_points()
        self.cost_estimator = CostEstimator(tools)

    @property
    def search_memory(self) -> SearchMemory:
        """The limit for the copies that a process keeps in memory for search."""
        return self._tools.search_memory

    @property
    def kinds(self) -> list[str]:
        return sorted({*self._points, *self._loaded})

    def __getitem__(self, kind: str) -> Index:
        if kind not in self._loaded:
            point = self._points.get(kind)
            if point is None:
                raise BadSettings("index_not_installed", kind=kind, kinds=", ".join(self.kinds))
            self._loaded[kind] = point.load()(self._tools)
        return self._loaded[kind]

    def check_enabled(self, base: Base) -> tuple[list[str], dict[str, NotEnabled]]:
        """Return the indexes that the base has selected and can run, and the reasons for the others."""
        can: list[str] = []
        cannot: dict[str, NotEnabled] = {}
        for kind in base.settings.indexes:
            try:
                self[kind].spec(base)
                can.append(kind)
            except NotEnabled as reason:
                cannot[kind] = reason
        return can, cannot

    def recipes(self, base: Base, kind: str) -> list[Recipe]:
        """Return the recipes of a kind of index in a base, newest first."""
        return self._catalogue.recipes(base.key, kind)

    def drop(self, base: str, chunks: Sequence[int]) -> None:
        """Remove the rows of these chunks, of every index and recipe of the base."""
        for kind, recipe in self._catalogue.recipes_of(base):
            if kind in self.kinds:
                self[kind].drop(recipe, chunks)

    def maintain(self, limit: int) -> None:
        """Do one step of maintenance: tend an index, or remove a portion of its orphan rows. Steps repeat in rounds.

        Only this finds rows that a late worker has left in an external store.
        """
        if next(self._maintenance, None) is None:
            self._maintenance = self._maintenance_steps(limit)

    def _maintenance_steps(self, limit: int) -> Iterator[int]:
        sweeper, wanted = self.garbage_collector(), self._current_specs()
        for base, kind, recipe in self._catalogue.all_recipes():
            if kind == CONTENT:
                self._remove_unused_list_recipe(recipe, wanted=(base, kind, recipe.spec) in wanted)
            if kind not in self.kinds or not self._catalogue.recipe_exists(
                recipe
            ):  # not installed here, or gone meanwhile
                continue
            if self._catalogue.unused(recipe):
                yield from self._remove_unused_recipe(kind, recipe, limit)
                continue
            self._tend(kind, recipe)
            after: int | None = 0
            while after is not None and self._catalogue.recipe_exists(recipe):
                after = sweeper.remove_orphan_rows(self[kind], recipe, after, limit)
                yield after or 0
            if (base, kind, recipe.spec) not in wanted:
                self._catalogue.doom(recipe)

    def _remove_unused_recipe(self, kind: str, recipe: Recipe, limit: int) -> Iterator[int]:
        """Remove the rows of an unused recipe; remove the recipe itself only after `LATE_WORKER_GRACE`.

        Until then, rows of late workers are still found.
        """
        while chunks := self[kind].scan(recipe, 0, limit):
            self[kind].drop(recipe, chunks)
            yield len(chunks)
        if self._catalogue.unused(recipe, LATE_WORKER_GRACE):
            self[kind].forget(recipe)
            self._catalogue.remove_recipe(recipe)
        yield 0

    def _remove_unused_list_recipe(self, recipe: Recipe, *, wanted: bool) -> None:
        """Remove an unused recipe of chunk lists, which has no rows."""
        if not wanted:
            self._catalogue.doom(recipe)
        if self._catalogue.unused(recipe, LATE_WORKER_GRACE):
            self._catalogue.remove_recipe(recipe)

    def _tend(self, kind: str, recipe: Recipe) -> None:
        """Tend an index. An error is logged and does not stop the round; the next round tries again."""
        try:
            self[kind].tend(recipe)
        except StoreError:
            log.exception("index.maintenance_failed kind=%s recipe=%d", kind, recipe.id)

    def _current_specs(self) -> set[tuple[str, str, str]]:
        """Return the specs that new builds would use, as (base, kind, spec)."""
        bases = self._catalogue.bases()
        return {(base.key, kind, text) for base in bases for kind, text in self.specs(base).items()}

    def specs(self, base: Base) -> dict[str, str]:
        """Return the current spec of the chunk lists and of each enabled index, by kind."""
        indexed = {kind: self[kind].spec(base) for kind in self.check_enabled(base)[0]}
        return {kind: spec_text(spec) for kind, spec in {CONTENT: chunk_list_spec(base), **indexed}.items()}

    def garbage_collector(self) -> ChunkGarbageCollector:
        return ChunkGarbageCollector(self._tools.database, self)

    def close(self) -> None:
        for index in self._loaded.values():
            index.close()
