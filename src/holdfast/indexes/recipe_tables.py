"""Tables of one kind of index, one for each recipe, made when the first row comes; the same idea on both databases."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.db import Database, Transaction


class RecipeTables:
    """Names the tables and makes them: `found` asks for one by its name, `create` has a place for it."""

    def __init__(self, prefix: str, found: str, create: Sequence[str]) -> None:
        self._prefix = prefix
        self._select_table = found
        self._create_statements = create
        self._known: set[int] = set()

    def name(self, recipe: int) -> str:
        """Return the table of a recipe."""
        return f"{self._prefix}_{int(recipe)}"

    def exists(self, tx: Transaction, recipe: int) -> bool:
        """Tell whether anything was ever written by this recipe."""
        return recipe in self._known or bool(tx.run_sql(self._select_table, [self.name(recipe)]))

    def exists_committed(self, tx: Transaction, recipe: int) -> bool:
        """Tell the same to a reader, who sees only what is committed, and so may remember it."""
        there = self.exists(tx, recipe)
        if there:
            self._known.add(recipe)
        return there  # and not what another reader has learnt meanwhile: our snapshot may be older

    def drop_table(self, database: Database, recipe: int) -> None:
        """Remove the table of a recipe; others who remember it must have no reason to ask for it again."""
        self._known.discard(recipe)
        database.write(lambda tx: tx.run_sql(f"DROP TABLE IF EXISTS {self.name(recipe)}"), durable=False)

    def ensure_table(self, tx: Transaction, recipe: int, **more: object) -> str:
        """Make the table of a recipe if it is new; return its name."""
        name = self.name(recipe)
        if not self.exists(tx, recipe):
            for statement in self._create_statements:
                tx.run_sql(statement.format(table=name, **more))
        return name
