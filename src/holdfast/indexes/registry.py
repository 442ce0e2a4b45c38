"""The indexes there are: ours and those of other packages, all found by the entry point `holdfast.indexes`."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from holdfast.errors import BadSettings
from holdfast.indexes.base import NotEnabled
from holdfast.library.sweeping import Sweeper

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from holdfast.indexes.base import Index, Tools
    from holdfast.library.catalogue import Base, Catalogue, Recipe

GROUP = "holdfast.indexes"


class Indexes:
    """All indexes of a process, by kind."""

    def __init__(self, tools: Tools, catalogue: Catalogue, more: Mapping[str, Index] | None = None) -> None:
        self._tools = tools
        self._catalogue = catalogue
        self._made: dict[str, Index] = dict(more or {})
        self._round: Iterator[int] = iter(())
        self._points = {point.name: point for point in entry_points(group=GROUP)}

    @property
    def kinds(self) -> list[str]:
        """The kinds there are."""
        return sorted({*self._points, *self._made})

    def __getitem__(self, kind: str) -> Index:
        if kind not in self._made:
            point = self._points.get(kind)
            if point is None:
                raise BadSettings(f"There is no index {kind!r}; there are {', '.join(self.kinds)}.")
            self._made[kind] = point.load()(self._tools)
        return self._made[kind]

    def enabled(self, base: Base) -> tuple[list[str], dict[str, str]]:
        """Return the indexes that the base wants and can have, and why it cannot have the others."""
        can, cannot = [], {}
        for kind in base.settings.indexes:
            try:
                self[kind].spec(base)
                can.append(kind)
            except NotEnabled as reason:
                cannot[kind] = str(reason)
        return can, cannot

    def recipes(self, base: Base, kind: str) -> list[Recipe]:
        """Return the recipes by which rows of this kind were made, newest first."""
        return self._catalogue.recipes(base.key, kind)

    def drop(self, base: str, chunks: Sequence[int]) -> None:
        """Remove the rows of these chunks, of every index and recipe of the base."""
        for kind in self.kinds:
            for recipe in self._catalogue.recipes(base, kind):
                self[kind].drop(recipe, chunks)

    def audit(self, limit: int) -> None:
        """Tend the next index, and look through its next portion for rows whose chunk is gone, round and round.

        What a late worker left in a store outside our transaction is found by nobody else.
        """
        if next(self._round, None) is None:
            self._round = self._portions(limit)

    def _portions(self, limit: int) -> Iterator[int]:
        sweeper = self.sweeper()
        for kind, recipe in self._catalogue.all_recipes():
            if kind not in self.kinds:  # of a package that is not installed here
                continue
            self[kind].tend(recipe)
            after: int | None = 0
            while after is not None:
                after = sweeper.audit(self[kind], recipe, after, limit)
                yield after or 0

    def sweeper(self) -> Sweeper:
        """Return the sweeper over all of them."""
        return Sweeper(self._tools.database, self)

    def close(self) -> None:
        """Close those that were used."""
        for index in self._made.values():
            index.close()
