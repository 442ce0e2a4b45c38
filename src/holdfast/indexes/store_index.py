"""Methods that several built-in indexes share."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.catalog import Recipe
    from holdfast.indexes.base import Work
    from holdfast.indexes.recipe_tables import RowStore


class IndexDefaults:
    """Optional steps of an `Index`, all empty.

    `ready` and `keep` must not be added: an index that has them defers its rows to the publishing transaction
    (`indexes.base.Together`).
    """

    def prepare(self, works: Sequence[Work]) -> None:
        """Prepare nothing."""

    def tend(self, recipe: Recipe) -> None:
        """Maintain nothing."""

    def close(self) -> None:
        """Close nothing."""


class StoreIndex(IndexDefaults):
    """An index whose rows are in one row store."""

    @cached_property
    def _store(self) -> RowStore:
        """Opened at first use, because it loads NumPy, and many commands only ask what an index would store."""
        raise NotImplementedError

    def absent(self, recipe: Recipe, chunks: Sequence[int]) -> list[int]:
        return self._store.absent(recipe.id, chunks)

    def drop(self, recipe: Recipe, chunks: Sequence[int]) -> None:
        self._store.drop(recipe.id, chunks)

    def scan(self, recipe: Recipe, after: int, limit: int) -> list[int]:
        return self._store.scan(recipe.id, after, limit)

    def forget(self, recipe: Recipe) -> None:
        self._store.forget(recipe.id)
