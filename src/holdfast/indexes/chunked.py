"""Builds the slot of any index over the chunks of a document: only chunks without a row cost anything."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from holdfast.core.slot import Built
from holdfast.errors import Permanent
from holdfast.indexes.base import Work
from holdfast.library import statements as sql
from holdfast.library.builds import Builds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast.errors import WorkError
    from holdfast.indexes.base import Index
    from holdfast.library.catalogue import Base, Catalogue, Recipe
    from holdfast.runtime.work import Task
    from holdfast.stores.database import Database, Transaction

PORTION = 500  # chunks looked up at once
TOGETHER = 2_000  # chunks of many documents that are prepared together


class ChunkIndexer:
    """An `Indexer` for one index."""

    def __init__(self, index: Index, database: Database, catalogue: Catalogue) -> None:
        self.index = index
        self._database = database
        self._catalogue = catalogue
        self._builds = Builds(database)

    def begin(self, tasks: Sequence[Task]) -> None:
        """Prepare many documents together, as far as that is worth it."""
        works, pieces = [], 0
        for task in tasks:
            task.checkpoint()
            work, _ = self._work(task)
            works.append(work)
            pieces += len(work.pieces)
            if pieces >= TOGETHER:
                break
        self.index.prepare([work for work in works if work.pieces])

    def build(self, task: Task) -> Built | None:
        """Fill in what is absent and publish; a few chunks may be missing, and are named."""
        work, listed = self._work(task)
        if not listed:
            return None
        refused = self.index.fill(work) if work.pieces else {}
        allowed = work.base.settings.missing_share * len(listed)
        if len(refused) > allowed:
            raise _too_much_missing(refused, len(listed))
        built = Built(missing=len(refused), recipe=work.recipe.id)
        if refused or self._lacked(task):
            with task.publish(built) as connection:
                self._note(self._database.within(connection), task, refused)
        return built

    def remove(self, task: Task) -> None:
        """Remove all rows of the document, of every recipe."""
        ticket = task.ticket
        recipes = self._catalogue.recipes(ticket.key.base, ticket.key.kind)
        after = 0
        while chunks := self._own(task, after):
            task.checkpoint(stage="removing")
            for recipe in recipes:
                self.index.drop(recipe, chunks)
            after = chunks[-1]
        with task.guarded() as connection:
            self._database.within(connection).run(sql.CLEAR_MISSING, slot_id=ticket.slot)

    def _work(self, task: Task) -> tuple[Work, list[int]]:
        """Find out what is to be done: the recipe, the list, and the chunks that have no row."""
        ticket = task.ticket
        base = self._catalogue.base(ticket.key.base)
        recipe = self._recipe(base)
        listed = self._builds.chunks(ticket.owner, ticket.source or 0)
        absent = [
            chunk
            for first in range(0, len(listed), PORTION)
            for chunk in self.index.absent(recipe, listed[first : first + PORTION])
        ]
        pieces = self._builds.pieces(absent) if absent else []
        return Work(task=task, base=base, recipe=recipe, database=self._database, pieces=pieces), listed

    def _recipe(self, base: Base) -> Recipe:
        return self._catalogue.recipe(base, self.index.kind, self.index.spec(base))

    def _own(self, task: Task, after: int) -> list[int]:
        with self._database.reading() as tx:
            rows = tx.run(sql.OWN_CHUNKS, owner_id=task.ticket.owner, after=after, limit=PORTION)
        return [chunk for (chunk,) in rows]

    def _lacked(self, task: Task) -> bool:
        """Tell whether what is served now lacks something, which this build would have to take back."""
        with self._database.reading() as tx:
            return bool(tx.run(sql.READ_MISSING, slot_id=task.ticket.slot))

    def _note(self, tx: Transaction, task: Task, refused: Mapping[int, WorkError]) -> None:
        """Write down what is missing, in the transaction that publishes."""
        tx.run(sql.CLEAR_MISSING, slot_id=task.ticket.slot)
        tx.run(
            sql.NOTE_MISSING,
            [
                [task.ticket.slot, chunk, json.dumps({"code": error.code, **error.params}, ensure_ascii=False)]
                for chunk, error in refused.items()
            ],
        )


def _too_much_missing(refused: Mapping[int, WorkError], listed: int) -> Permanent:
    """Say that too many chunks were refused, and why the first was."""
    first = next(iter(refused.values()))
    return Permanent(
        "too_much_missing",
        f"{len(refused)} of {listed} chunks could not be indexed; the first: {first}",
        params={"refused": str(len(refused)), "chunks": str(listed), "first": first.code},
    )
