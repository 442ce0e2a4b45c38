"""Builds the slot of any index over the chunks of a document: only chunks without a row cost anything."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from holdfast.catalog import Builds, fault_text
from holdfast.engine import Built
from holdfast.errors import Permanent, WorkError
from holdfast.indexes import statements as sql
from holdfast.indexes.base import NotEnabled, Together, Work
from holdfast.indexes.gc import own_chunks

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sqlalchemy import Connection

    from holdfast.catalog import Catalogue, Recipe
    from holdfast.db import Database, Transaction
    from holdfast.engine import OwnerId, Ticket
    from holdfast.engine.store import Completion
    from holdfast.engine.task import Task
    from holdfast.indexes.base import Index

PORTION = 500  # chunks looked up at once
TOGETHER = 4_000  # chunks of many documents that are prepared together


class Plan(NamedTuple):
    """What one document needs."""

    work: Work
    chunks: int  # in its list
    lacked: bool  # what is served so far lacks something


class ChunkIndexer:
    """An `Indexer` for one index."""

    def __init__(
        self,
        index: Index,
        database: Database,
        catalogue: Catalogue,
        *,
        hopeless: frozenset[str] = frozenset(),
        given_up: Callable[[int], bool] = lambda _: False,
    ) -> None:
        """`hopeless` are the codes of failures that are those of the whole base, once `given_up` (or at once)."""
        self.index = index
        self._together = index if isinstance(index, Together) else None
        self._hopeless = hopeless
        self._given_up = given_up
        self._database = database
        self._catalogue = catalogue
        self._builds = Builds(database)
        self._begun: dict[Ticket, Plan] = {}

    def begin(self, tasks: Sequence[Task]) -> None:
        """Look at many documents at once, and prepare together what is better done so."""
        self._begun = {}
        for task in tasks:
            task.checkpoint()
        self._begun = {plan.work.task.ticket: plan for plan in self._plans(tasks)}
        self.index.prepare([plan.work for plan in self._begun.values() if plan.work.pieces])

    def build(self, task: Task) -> Built | None:
        """Fill in what is absent and publish; a few chunks may be missing, and are named."""
        try:
            return self._build(task)
        except WorkError as error:
            ended = isinstance(error, Permanent) or self._given_up(task.ticket.attempt)
            if ended and error.code in self._hopeless:
                self._catalogue.fail_base(task.ticket.key.base, error)
            raise

    def _build(self, task: Task) -> Built | None:
        plan = self._begun.pop(task.ticket, None) or self._plan(task)
        if not plan.chunks:
            return None
        work = replace(plan.work, task=task)
        if work.pieces and not plan.lacked and self._together is not None:
            rows = self._together.ready(work)
            if rows is not None:
                return Built(recipe=work.recipe.id, rows=rows)
        refused = self.index.fill(work) if work.pieces else {}
        if len(refused) > work.base.settings.missing_share * plan.chunks:
            raise _too_much_missing(refused, plan.chunks)
        built = Built(missing=len(refused), recipe=work.recipe.id)
        if refused or plan.lacked:
            with task.publish(built) as connection:
                self._note(self._database.within(connection), task, refused)
        return built

    def publish(self, connection: Connection, completions: Sequence[Completion]) -> None:
        """Write the rows that were left for the transaction that publishes."""
        by_recipe: dict[int, dict[int, Any]] = {}
        for one in completions:
            by_recipe.setdefault(cast("int", one.built.recipe), {}).update(cast("dict[int, Any]", one.built.rows))
        for recipe, rows in by_recipe.items():
            cast("Together", self.index).keep(self._database.within(connection), recipe, rows)

    def remove(self, task: Task) -> None:
        """Remove all rows of the document, of every recipe."""
        self.remove_all([task])

    def remove_all(self, tasks: Sequence[Task]) -> None:
        """Remove all rows of many documents, of every recipe, in portions that know nothing of documents."""
        slots = [[task.ticket.slot] for task in tasks]
        with self._database.reading() as tx:
            found = own_chunks(tx, [task.ticket.owner for task in tasks])
            lacking = tx.run(sql.LACKING_SLOTS, slots)
        for base in {base for _, _, base in found}:
            chunks = [chunk for chunk, _, one in found if one == base]
            recipes = self._catalogue.recipes(base, self.index.kind)
            for first in range(0, len(chunks), PORTION):
                for task in tasks:
                    task.checkpoint(stage="removing")
                for recipe in recipes:
                    self.index.drop(recipe, chunks[first : first + PORTION])
        if lacking:
            self._database.write(lambda tx: tx.run(sql.CLEAR_REMOVED, lacking), durable=False)

    def _plan(self, task: Task) -> Plan:
        """Find out what is to be done; nothing ever, where the base can no longer have this index."""
        try:
            return next(iter(self._plans([task])))
        except NotEnabled as error:
            raise Permanent(error.reason, str(error)) from error

    def _plans(self, tasks: Sequence[Task]) -> list[Plan]:
        """Find out what is to be done: the recipe, the list, and the chunks that have no row.

        Of many tasks only as many as can be prepared together are looked at, but always the first.
        """
        tickets = [task.ticket for task in tasks]
        bases, _ = self._catalogue.keyed(tickets)
        recipes = {
            key: self._catalogue.recipe(base, self.index.kind, self.index.spec(base)) for key, base in bases.items()
        }
        listed = self._builds.listed([(ticket.owner, ticket.source or 0) for ticket in tickets])
        lacking = self._lacking(tickets)
        chosen = _together(tasks, listed)
        wanted: dict[str, list[int]] = {}
        for task in chosen:
            wanted.setdefault(task.ticket.key.base, []).extend(listed[task.ticket.owner])
        absent = [chunk for key, chunks in wanted.items() for chunk in self._absent(recipes[key], chunks)]
        pieces = {piece.chunk: piece for piece in self._builds.pieces(absent)}
        return [
            Plan(
                work=Work(
                    task=task,
                    base=bases[task.ticket.key.base],
                    recipe=recipes[task.ticket.key.base],
                    database=self._database,
                    pieces=[pieces[chunk] for chunk in listed[task.ticket.owner] if chunk in pieces],
                ),
                chunks=len(listed[task.ticket.owner]),
                lacked=task.ticket.slot in lacking,
            )
            for task in chosen
        ]

    def _absent(self, recipe: Recipe, chunks: Sequence[int]) -> list[int]:
        return [
            chunk
            for first in range(0, len(chunks), PORTION)
            for chunk in self.index.absent(recipe, chunks[first : first + PORTION])
        ]

    def _lacking(self, tickets: Sequence[Ticket]) -> set[int]:
        """Return the slots that lack something now, which a new build would have to take back."""
        with self._database.reading() as tx:
            return {slot for (slot,) in tx.run(sql.LACKING_SLOTS, [[ticket.slot] for ticket in tickets])}

    def _note(self, tx: Transaction, task: Task, refused: Mapping[int, WorkError]) -> None:
        """Write down what is missing, in the transaction that publishes."""
        tx.run(sql.CLEAR_MISSING, slot_id=task.ticket.slot)
        tx.run(
            sql.NOTE_MISSING,
            [[task.ticket.slot, chunk, fault_text(error)] for chunk, error in refused.items()],
        )


def _together(tasks: Sequence[Task], listed: Mapping[OwnerId, Sequence[int]]) -> list[Task]:
    """Return the first tasks, as many as have not too many chunks together, and at least one."""
    chosen: list[Task] = []
    chunks = 0
    for task in tasks:
        chunks += len(listed[task.ticket.owner])
        if chosen and chunks > TOGETHER:
            break
        chosen.append(task)
    return chosen


def _too_much_missing(refused: Mapping[int, WorkError], listed: int) -> Permanent:
    """Say that too many chunks were refused, and why the first was."""
    first = next(iter(refused.values()))
    return Permanent(
        "too_much_missing",
        f"{len(refused)} of {listed} chunks could not be indexed; the first: {first}",
        params={"refused": str(len(refused)), "chunks": str(listed), "first": first.code},
    )
