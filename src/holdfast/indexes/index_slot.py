"""Builds the slot of any index. Only chunks without a row cost anything."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from holdfast.catalog import ChunkLists, fault_to_json
from holdfast.engine import BuildResult
from holdfast.errors import HoldfastError, Permanent, WorkError
from holdfast.indexes import statements as sql
from holdfast.indexes.base import NotEnabled, Paid, Together, Work
from holdfast.indexes.gc import count_by_owner, read_owner_chunks

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sqlalchemy import Connection

    from holdfast.catalog import Catalog, Recipe
    from holdfast.db import Database, Transaction
    from holdfast.engine import OwnerId, SlotId, Ticket
    from holdfast.engine.store import Completion
    from holdfast.engine.task import Task
    from holdfast.indexes.base import Index

LOOKUP_BATCH = 500  # chunks per lookup
PREPARE_BATCH = 4_000  # chunks that are prepared in bulk


class DocumentPlan(NamedTuple):
    """The work that one document needs."""

    work: Work
    chunk_count: int  # in its list
    was_incomplete: bool  # the served build has missing chunks
    kept: Sequence[int]  # chunks that have a row already
    replaced: int  # chunks that are served now, and not by the new build


class ChunkIndexer:
    """An `Indexer` for one index."""

    def __init__(
        self,
        index: Index,
        database: Database,
        catalogue: Catalog,
        *,
        hopeless: frozenset[str] = frozenset(),
        given_up: Callable[[int], bool] = lambda _: False,
    ) -> None:
        """Create the indexer.

        `hopeless` are error codes that fail the whole base: a permanent error at once, others when `given_up` is true.
        """
        self.index = index
        self._deferring_index = index if isinstance(index, Together) else None
        self._fatal_codes = hopeless
        self._given_up = given_up
        self._database = database
        self._catalogue = catalogue
        self._chunk_lists = ChunkLists(database)
        self._prepared_plans: dict[Ticket, DocumentPlan] = {}

    def begin(self, tasks: Sequence[Task]) -> None:
        """Plan many documents, and let the index prepare them in bulk."""
        self._prepared_plans = {}
        for task in tasks:
            task.checkpoint()
        self._prepared_plans = {plan.work.task.ticket: plan for plan in self._plan_all(tasks)}
        self.index.prepare([plan.work for plan in self._prepared_plans.values() if plan.work.pieces])

    def build(self, task: Task) -> BuildResult | None:
        """Write the absent rows and publish; a few chunks may be missing, and are recorded with their errors."""
        try:
            return self._build(task)
        except WorkError as error:
            ended = isinstance(error, Permanent) or self._given_up(task.ticket.attempt)
            if ended and error.code in self._fatal_codes:
                self._catalogue.fail_base(task.ticket.key.base, error)
            raise

    def _build(self, task: Task) -> BuildResult | None:
        plan = self._prepared_plans.pop(task.ticket, None) or self._plan(task)
        if not plan.chunk_count:
            return None
        work = replace(plan.work, task=task)
        task.count_rows(kept=len(plan.kept))
        if (
            plan.kept and task.ticket.attempt == 1 and isinstance(self.index, Paid)
        ):  # later, rows may be paid by this job
            self.index.record_reuse(work, plan.kept)
        if work.pieces and not plan.was_incomplete and self._deferring_index is not None:
            rows = self._deferring_index.ready(work)
            if rows is not None:
                task.count_rows(written=len(work.pieces), removed=plan.replaced)
                return BuildResult(recipe=work.recipe.id, rows=rows)
        refused = self._fill(work)
        if len(refused) > work.base.settings.missing_share * plan.chunk_count:
            first = next(iter(refused.values()))
            raise Permanent(
                "too_much_missing",
                params={
                    "refused": str(len(refused)),
                    "chunks": str(plan.chunk_count),
                    "first": first.code,
                    "detail": str(first),
                },
            )
        task.count_rows(removed=plan.replaced)
        built = BuildResult(missing=len(refused), recipe=work.recipe.id)
        if refused or plan.was_incomplete:
            with task.publish(built) as connection:
                self._record_missing(self._database.wrap_connection(connection), task, refused)
        return built

    def _fill(self, work: Work) -> Mapping[int, WorkError]:
        """Write the rows of a work and count them, also those that were written before an error."""
        if not work.pieces:
            return {}
        try:
            refused = self.index.fill(work)
        except Exception:
            with suppress(HoldfastError):  # the first error is the one to raise
                lacking = self._find_absent(work.recipe, [piece.chunk for piece in work.pieces])
                work.task.count_rows(written=len(work.pieces) - len(lacking))
            raise
        work.task.count_rows(written=len(work.pieces) - len(refused))
        return refused

    def publish(self, connection: Connection, completions: Sequence[Completion]) -> None:
        """Write the rows that were deferred to the publishing transaction."""
        by_recipe: dict[int, dict[int, Any]] = {}
        for completion in completions:
            built = completion.built
            by_recipe.setdefault(cast("int", built.recipe), {}).update(cast("dict[int, Any]", built.rows))
        for recipe, rows in by_recipe.items():
            cast("Together", self.index).keep(self._database.wrap_connection(connection), recipe, rows)

    def remove(self, task: Task) -> None:
        self.remove_all([task])

    def remove_all(self, tasks: Sequence[Task]) -> None:
        """Remove all rows of many documents, of every recipe, in batches across documents."""
        slots = [[task.ticket.slot] for task in tasks]
        with self._database.reading() as tx:
            by_base = read_owner_chunks(tx, [task.ticket.owner for task in tasks])
            lacking = tx.run(sql.SELECT_INCOMPLETE_SLOTS, slots)
        for base, owned in by_base.items():
            chunks = [chunk for chunk, _ in owned]
            recipes = self._catalogue.recipes(base, self.index.kind)
            for first in range(0, len(chunks), LOOKUP_BATCH):
                for task in tasks:
                    task.checkpoint(stage="removing")
                for recipe in recipes:
                    self.index.drop(recipe, chunks[first : first + LOOKUP_BATCH])
        if lacking:
            self._database.write(lambda tx: tx.run(sql.DELETE_MISSING_OF_DELETED_SLOTS, lacking), durable=False)
        removed = count_by_owner(by_base)
        for task in tasks:
            task.count_rows(removed=removed[task.ticket.owner])

    def _plan(self, task: Task) -> DocumentPlan:
        """Plan one document; a base that cannot have this index any more is a permanent error."""
        try:
            return next(iter(self._plan_all([task])))
        except NotEnabled as error:
            raise Permanent(error.subcode, error.own_message, params=error.params) from error

    def _plan_all(self, tasks: Sequence[Task]) -> list[DocumentPlan]:
        """Find the recipe, the chunk list and the chunks without a row, for as many tasks as can be prepared together.

        The first task is always included.
        """
        tickets = [task.ticket for task in tasks]
        bases, _ = self._catalogue.read_for_tickets(tickets)
        recipes = {
            key: self._catalogue.get_or_create_recipe(base, self.index.kind, self.index.spec(base))
            for key, base in bases.items()
        }
        listed = self._chunk_lists.read_chunk_ids([(ticket.owner, ticket.source or 0) for ticket in tickets])
        lacking = self._find_incomplete(tickets)
        chosen = _take_first_batch(tasks, listed)
        replaced = self._count_replaced(chosen, recipes)
        wanted: dict[str, list[int]] = {}
        for task in chosen:
            wanted.setdefault(task.ticket.key.base, []).extend(listed[task.ticket.owner])
        absent = [chunk for key, chunks in wanted.items() for chunk in self._find_absent(recipes[key], chunks)]
        pieces = {piece.chunk: piece for piece in self._chunk_lists.read_texts(absent)}
        lacking_row = set(absent)
        return [
            DocumentPlan(
                work=Work(
                    task=task,
                    base=bases[task.ticket.key.base],
                    recipe=recipes[task.ticket.key.base],
                    database=self._database,
                    pieces=[pieces[chunk] for chunk in listed[task.ticket.owner] if chunk in pieces],
                ),
                chunk_count=len(listed[task.ticket.owner]),
                was_incomplete=task.ticket.slot in lacking,
                kept=[chunk for chunk in listed[task.ticket.owner] if chunk not in lacking_row],
                replaced=replaced.get(task.ticket.slot, 0),
            )
            for task in chosen
        ]

    def _count_replaced(self, tasks: Sequence[Task], recipes: Mapping[str, Recipe]) -> dict[SlotId, int]:
        """Count the chunks that slots serve now, and will not serve any more."""
        tickets = [task.ticket for task in tasks if task.ticket.built]
        rows = [(ticket.slot, ticket.source or 0, recipes[ticket.key.base].id) for ticket in tickets]
        return self._chunk_lists.count_replaced(rows) if rows else {}

    def _find_absent(self, recipe: Recipe, chunks: Sequence[int]) -> list[int]:
        return [
            chunk
            for first in range(0, len(chunks), LOOKUP_BATCH)
            for chunk in self.index.absent(recipe, chunks[first : first + LOOKUP_BATCH])
        ]

    def _find_incomplete(self, tickets: Sequence[Ticket]) -> set[int]:
        """Return the slots with missing chunks; a new build must update these records."""
        with self._database.reading() as tx:
            return {slot for (slot,) in tx.run(sql.SELECT_INCOMPLETE_SLOTS, [[ticket.slot] for ticket in tickets])}

    def _record_missing(self, tx: Transaction, task: Task, refused: Mapping[int, WorkError]) -> None:
        """Record the missing chunks in the publishing transaction."""
        tx.run(sql.CLEAR_MISSING, slot_id=task.ticket.slot)
        tx.run(
            sql.NOTE_MISSING,
            [[task.ticket.slot, chunk, fault_to_json(error)] for chunk, error in refused.items()],
        )


def _take_first_batch(tasks: Sequence[Task], listed: Mapping[OwnerId, Sequence[int]]) -> list[Task]:
    """Return the first tasks with at most `PREPARE_BATCH` chunks together, and at least one task."""
    chosen: list[Task] = []
    chunks = 0
    for task in tasks:
        chunks += len(listed[task.ticket.owner])
        if chosen and chunks > PREPARE_BATCH:
            break
        chosen.append(task)
    return chosen
