"""A query goes to every channel, and what they propose is shown only if it is served.

Channels propose from indexes and caches that may be late or hold rows nobody needs. All that they propose is checked
in one snapshot, and a channel whose proposals fall short is asked for more.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from holdfast.library.serving import served, served_recipes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast.indexes.base import Found
    from holdfast.indexes.registry import Indexes
    from holdfast.library.catalogue import Base, Recipe
    from holdfast.library.serving import Served
    from holdfast.stores.database import Database, Transaction

DEPTH = 100  # hits a channel is asked for
TRIES = 4  # how often a channel that fell short is asked for four times as many


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """How a channel saw a hit."""

    rank: int
    score: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A passage of a document that is served, with how each channel saw it."""

    served: Served
    score: float
    channels: Mapping[str, Mark] = field(default_factory=dict)


class Searching:
    """Searches the bases of one database."""

    def __init__(self, database: Database, indexes: Indexes) -> None:
        self._database = database
        self._indexes = indexes

    def channel(self, base: Base, kind: str, query: str, limit: int = DEPTH) -> list[Hit]:
        """Ask one channel."""
        with self._database.reading() as tx:
            found = self._confirmed(tx, base, kind, query, limit)
        return [
            Hit(served=one, score=score, channels={kind: Mark(rank=rank, score=score)})
            for rank, (one, score) in enumerate(found, 1)
        ]

    def _confirmed(self, tx: Transaction, base: Base, kind: str, query: str, limit: int) -> list[tuple[Served, float]]:
        """Ask for as many as it takes until enough of them are served."""
        recipes = [
            recipe for recipe in self._indexes.recipes(base, kind) if recipe.id in served_recipes(tx, base.key, kind)
        ]
        return [hit for recipe in recipes for hit in self._of_recipe(tx, base, kind, recipe, query, limit)][:limit]

    def _of_recipe(
        self, tx: Transaction, base: Base, kind: str, recipe: Recipe, query: str, limit: int
    ) -> list[tuple[Served, float]]:
        asked = limit
        for _ in range(TRIES):
            found: Sequence[Found] = self._indexes[kind].find(recipe, query, asked)
            shown = served(tx, base.key, kind, recipe.id, [one.chunk for one in found])
            if len(shown) >= limit or len(found) < asked:
                break
            asked *= 4
        return [(shown[one.chunk], one.score) for one in found if one.chunk in shown][:limit]
