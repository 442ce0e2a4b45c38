"""The study cards of a base: one set, made from the questions of its documents, and replaced as a whole.

A set is a list of question pairs, named by the fence of the worker that wrote it. The slot `cards` of the base serves
one set, so the old set is shown until the new one is complete. A card is shown only while its passage is served, so the
cards of a deleted or changed document disappear at once. Making a set calls no language model.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from holdfast.bases import card_statements as sql
from holdfast.bases.card_export import to_anki, to_csv, to_json
from holdfast.bases.slots import CARDS
from holdfast.catalog import ChunkLists, read_served_chunks
from holdfast.documents import Card, Progress, build_card, lock_open_base, progress_of
from holdfast.engine import DEFAULT_PRIORITY, BuildResult, Operation, Problem, Request, SlotSpec, Status, describe_fault
from holdfast.engine.store import LARGEST_BATCH
from holdfast.errors import BadRequest, UnknownOwner
from holdfast.indexes import NotEnabled
from holdfast.indexes.questions import KIND as QUESTIONS
from holdfast.indexes.questions import PairStore, remove_duplicate_questions

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from holdfast.catalog import Base
    from holdfast.db import Database, Transaction
    from holdfast.engine import AdmissionResult, OwnerId
    from holdfast.engine.store import SqlStore
    from holdfast.engine.task import Task
    from holdfast.indexes import IndexRegistry

CARDS_PER_TRANSACTION = 200
CHUNKS_PER_READ = 100
CARDS_PER_READ = 200
EXPORT_FORMATS = {"csv": to_csv, "json": to_json, "anki": to_anki}


class QuestionSource(NamedTuple):
    """A document with served questions: the list of its chunks, and the recipe of their pairs."""

    owner: OwnerId
    build: int
    recipe: int


class CardCandidate(NamedTuple):
    id: int
    question: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CardSetStatus:
    """The status of the study cards of a base."""

    status: Status  # of the newest request
    generation: int  # of the set that is served; 0: there is none
    cards: int  # in that set, including cards whose passage is no longer served
    job: str | None
    progress: Progress | None
    error: Problem | None


NO_CARDS = CardSetStatus(status=Status.NOT_INDEXED, generation=0, cards=0, job=None, progress=None, error=None)


class CardsIndexer:
    """An `Indexer` that builds the slot `cards` of a base."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._chunk_lists = ChunkLists(database)
        self._pairs = PairStore(database)

    def build(self, task: Task) -> BuildResult | None:
        """Write the served questions, without duplicates, as a new set; None if there are none."""
        with self._database.reading() as tx:
            served = next((build for _, build in tx.run(sql.SERVED_SET, base=task.ticket.key.base)), 0)
            sources = [QuestionSource(*row) for row in tx.run(sql.READ_QUESTION_SOURCES, base=task.ticket.key.base)]
        self._clear(task, keep=served)
        chosen = remove_duplicate_questions(self._collect(task, sources))
        for first in range(0, len(chosen), CARDS_PER_TRANSACTION):
            task.checkpoint(stage="publishing", step=len(sources), steps=len(sources), done=len(chosen))
            self._write(task, first, chosen[first : first + CARDS_PER_TRANSACTION])
        return BuildResult() if chosen else None

    def remove(self, task: Task) -> None:
        self._clear(task, keep=0)

    def _collect(self, task: Task, sources: Sequence[QuestionSource]) -> Iterator[CardCandidate]:
        """Yield the served pairs, document by document, and report progress."""
        pairs = 0
        for step, source in enumerate(sources, 1):
            task.checkpoint(stage="collecting cards", step=step, steps=len(sources), done=pairs)
            chunks = self._chunk_lists.read_chunk_ids([(source.owner, source.build)])[source.owner]
            for first in range(0, len(chunks), CHUNKS_PER_READ):
                for found in self._pairs.read_pairs(source.recipe, chunks[first : first + CHUNKS_PER_READ]).values():
                    pairs += len(found)
                    yield from (CardCandidate(stored.id, stored.pair.question) for stored in found)
                task.checkpoint(stage="collecting cards", step=step, steps=len(sources), done=pairs)

    def _write(self, task: Task, first: int, chosen: Sequence[CardCandidate]) -> None:
        ticket = task.ticket
        rows = [[ticket.owner, ticket.fence, place, pair.id] for place, pair in enumerate(chosen, first + 1)]
        with task.guarded() as connection:
            self._database.wrap_connection(connection).run(sql.PUT_CARDS, rows)

    def _clear(self, task: Task, *, keep: int) -> None:
        """Remove all sets except `keep`, in batches."""
        gone = LARGEST_BATCH
        while gone == LARGEST_BATCH:
            task.checkpoint(stage="removing")
            with task.guarded() as connection:
                tx = self._database.wrap_connection(connection)
                gone = len(tx.run(sql.CLEAR_OTHERS, owner_id=task.ticket.owner, build=keep, limit=LARGEST_BATCH))


class StudyCards:
    """Requests, reads and exports the cards of bases."""

    def __init__(self, store: SqlStore, indexes: IndexRegistry) -> None:
        self._store = store
        self._indexes = indexes

    def generate(self, base: Base, *, requester: str = "", priority: int = DEFAULT_PRIORITY) -> AdmissionResult:
        """Request a new set, or join an active request; raise `NotEnabled` if the base can have no questions."""
        self._require_questions(base)
        return self._admit(base, Operation.FORCE, (SlotSpec(CARDS),), requester=requester, priority=priority)

    def cancel(self, base: Base, *, requester: str = "") -> AdmissionResult:
        """Cancel the active request; the served set stays."""
        return self._admit(base, Operation.CANCEL, (), requester=requester, priority=DEFAULT_PRIORITY)

    def status(self, base: Base) -> CardSetStatus:
        """Return the status of the served set and of the next one."""
        try:
            owner = self._store.owner(base.key, CARDS)
        except UnknownOwner:
            return NO_CARDS
        (slot,) = owner.slots
        with self._store.database.reading() as tx:
            ((count,),) = tx.run(sql.COUNT_CARDS, owner_id=owner.id, build=slot.source or 0)
        return CardSetStatus(
            status=owner.status,
            generation=slot.built,
            cards=count,
            job=slot.job,
            progress=progress_of(slot.progress),
            error=describe_fault(slot.error),
        )

    def page(self, base: Base, *, after: int = 0, limit: int | None = CARDS_PER_READ) -> list[Card]:
        """Return up to `limit` cards after a place, each with its source; without a limit, all."""
        with self._store.database.reading() as tx:
            return list(islice(_shown(tx, base, after), limit))

    def export(self, base: Base, form: str) -> str:
        """Return all cards as text: `csv`, `json` or `anki`."""
        if form not in EXPORT_FORMATS:
            raise BadRequest("cards_format", format=form, formats=", ".join(EXPORT_FORMATS))
        return EXPORT_FORMATS[form](self.page(base, limit=None))

    def _admit(
        self, base: Base, operation: Operation, slots: tuple[SlotSpec, ...], *, requester: str, priority: int
    ) -> AdmissionResult:
        request = Request(
            base=base.key, owner=CARDS, operation=operation, slots=slots, requester=requester, priority=priority
        )

        def write(tx: Transaction) -> list[Request]:
            lock_open_base(tx, base, building=operation is not Operation.CANCEL)
            return [request]

        return self._store.admit_with(write)[0]

    def _require_questions(self, base: Base) -> None:
        """Raise `NotEnabled` if the documents of a base have no questions and cannot have any."""
        can, cannot = self._indexes.check_enabled(base)
        with self._store.database.reading() as tx:
            if QUESTIONS not in can and not tx.run(sql.READ_QUESTION_SOURCES, base=base.key):
                raise cannot.get(QUESTIONS) or NotEnabled("no_questions", base=base.name)


def _shown(tx: Transaction, base: Base, after: int) -> Iterator[Card]:
    """Yield the cards of the served set whose passages are served, in one snapshot."""
    for owner, build in tx.run(sql.SERVED_SET, base=base.key):
        while rows := tx.run(sql.READ_CARDS, owner_id=owner, build=build, after=after, limit=CARDS_PER_READ):
            after = rows[-1][0]
            sources = {
                recipe: read_served_chunks(
                    tx, base.key, QUESTIONS, recipe, list({row[2] for row in rows if row[1] == recipe})
                )
                for recipe in {row[1] for row in rows}
            }
            for place, recipe, chunk, question, answer in rows:
                if chunk in sources[recipe]:
                    yield build_card(place, question, answer, sources[recipe][chunk])
