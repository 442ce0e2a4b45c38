"""The slot `content`: reads a document once and divides it into the list of chunks that all its indexes use."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, cast

from holdfast.blobs import waiting_for_blobs
from holdfast.catalog import ChunkBatch, ChunkDraft, ChunkLists, ItemKind, TextFacts, item_removed_event, number_chunks
from holdfast.content import (
    ChunkingRules,
    parse_blocks,
    read,
    split_into_chunks,
    strip_markdown,
    translate_os_errors,
)
from holdfast.engine import BuildResult
from holdfast.engine.store import record_events
from holdfast.errors import Outage, Permanent, StoreReadOnly
from holdfast.indexes import statements as sql
from holdfast.indexes.base import CONTENT, chunk_list_spec

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from sqlalchemy import Connection

    from holdfast.blobs import BlobStore
    from holdfast.catalog import Base, Catalog, Item, Recipe
    from holdfast.content import ChunkSpan, ExtractedText
    from holdfast.db import Database, Transaction
    from holdfast.engine import Ticket
    from holdfast.engine.store import Completion
    from holdfast.engine.task import Task
    from holdfast.indexes.gc import ChunkGarbageCollector


class ContentIndexer:
    """Builds the slot `content`."""

    def __init__(
        self,
        database: Database,
        catalogue: Catalog,
        blobs: BlobStore,
        sweeper: ChunkGarbageCollector,
        home: Path | None = None,
    ) -> None:
        self._database = database
        self._catalogue = catalogue
        self._blobs = blobs
        self._garbage_collector = sweeper
        self._home = home  # readers unpack libraries here if the temporary folder is unsuitable
        self._chunk_lists = ChunkLists(database)
        self._prefetched: dict[Ticket, tuple[Base, Item, Recipe]] = {}

    def begin(self, tasks: Sequence[Task]) -> None:
        """Look up many documents in one query."""
        self._prefetched = self._look_up([task.ticket for task in tasks])

    def build(self, task: Task) -> BuildResult:
        """Read the document, split it, and write the list of chunks."""
        ticket = task.ticket
        known = self._prefetched.pop(ticket, None) or self._look_up([ticket]).get(ticket)
        base, document, recipe = known or (None, None, None)
        if base is None or recipe is None or document is None or document.blob is None:
            raise Permanent(
                "unknown_document",
                params={"document": ticket.key.owner, "base": base.name if base else ticket.key.base},
            )
        task.checkpoint(stage="reading")
        fetched = document.kind is ItemKind.URL  # a page has a display name; the fetched file has its own
        name = str(document.metadata.get("file", document.name)) if fetched else document.name
        with translate_os_errors(), waiting_for_blobs(), self._blobs.local_file(document.blob) as path:
            reading = read(path, name, fetched=fetched, spare=self._home, report=task.add_child_usage)
        task.checkpoint(stage="chunking")
        rules = ChunkingRules(size=base.settings.chunk_size, overlap=base.settings.chunk_overlap)
        facts = TextFacts(reading.title, reading.pages, reading.metadata, reading.warnings, len(reading.text))
        last: ChunkBatch | None = None
        served = 0
        for parts in number_chunks(_split_into_parts(reading, rules)):
            if last is not None:
                task.checkpoint(stage="chunking", done=parts[0][0])
                with task.guarded() as connection:
                    self._chunk_lists.write(self._database.wrap_connection(connection), [last])
            last = ChunkBatch(ticket.owner, ticket.fence, facts if last is None else None, parts)
            served += self._count_rows(task, last)
        if last is None:
            raise Permanent("no_text")
        if ticket.built:
            task.count_rows(removed=self._chunk_lists.count_served(ticket.owner) - served)
        return BuildResult(rows=last, recipe=recipe.id)

    def _count_rows(self, task: Task, batch: ChunkBatch) -> int:
        """Count new and known chunks of a batch, and return how many of them are served now."""
        repeated = task.ticket.generation > 1 or task.ticket.attempt > 1  # else no chunk can be known
        known, served = self._chunk_lists.compare_batch(batch) if repeated else (0, 0)
        task.count_rows(written=len(batch.chunks) - known, kept=known)
        return served

    def publish(self, connection: Connection, completions: Sequence[Completion]) -> None:
        """Write the last batch of each list; a small document has no other batch."""
        portions = [completion.built.rows for completion in completions]
        self._chunk_lists.write(self._database.wrap_connection(connection), cast("list[ChunkBatch]", portions))

    def _look_up(self, tickets: Sequence[Ticket]) -> dict[Ticket, tuple[Base, Item, Recipe]]:
        bases, documents = self._catalogue.read_for_tickets(tickets)
        recipes = {
            key: self._catalogue.get_or_create_recipe(base, CONTENT, chunk_list_spec(base))
            for key, base in bases.items()
        }
        return {
            ticket: (bases[ticket.key.base], documents[ticket.key.owner], recipes[ticket.key.base])
            for ticket in tickets
            if ticket.key.owner in documents
        }

    def remove(self, task: Task) -> None:
        self.remove_all([task])

    def remove_all(self, tasks: Sequence[Task]) -> None:
        """Remove many documents: lists, chunks with their rows, the files, and the items last.

        Each step runs for all documents.
        """

        def go_on() -> None:
            for task in tasks:
                task.checkpoint(stage="removing")

        tickets = [task.ticket for task in tasks]
        removed = self._garbage_collector.remove_owners([ticket.owner for ticket in tickets], go_on)
        for task in tasks:
            task.count_rows(removed=removed[task.ticket.owner])
        _, documents = self._catalogue.read_for_tickets(tickets)
        # Before the items, which alone have the names of the files; the deletion is durable already.
        self._remove_files([document.blob for document in documents.values() if document.blob is not None])
        self._database.write(
            lambda tx: _delete_documents(tx, [int(ticket.key.owner) for ticket in tickets]), durable=True
        )

    def _remove_files(self, names: Sequence[str]) -> None:
        try:
            with waiting_for_blobs():
                self._blobs.remove(names)
        except Outage as outage:
            if len(names) > 1 and isinstance(outage.__cause__, StoreReadOnly):
                raise outage.__cause__ from None  # perhaps of one file only: the executor removes one by one
            raise


def _delete_documents(tx: Transaction, items: Sequence[int]) -> None:
    gone = tx.run(sql.REMOVE_DOCUMENTS, [[item] for item in items])
    record_events(tx, [item_removed_event(base, id_) for base, id_ in gone])


def _split_into_parts(reading: ExtractedText, rules: ChunkingRules) -> Iterator[ChunkDraft]:
    """Split a text into chunks, each with its heading path.

    A title from the metadata is added only to the first chunk and to chunks under no level-1 heading. A level-1 heading
    names the document already, so an edited title leaves the chunks below it unchanged.
    """
    text = reading.text
    tops = _find_top_headings(text, reading.title) if reading.title else None
    for ordinal, chunk in enumerate(split_into_chunks(text, rules)):
        headings, content = chunk.headings, text[chunk.start : chunk.end]
        if reading.title and tops is not None and (ordinal == 0 or not tops.covers(chunk)):
            headings = headings if content.startswith(reading.title) else (reading.title, *headings)
        yield ChunkDraft(chunk.start, chunk.own_start, chunk.end, headings, content)


class _TopHeadings(NamedTuple):
    """The level-1 headings of a text: their positions and titles."""

    starts: set[int]
    titles: set[str]

    def covers(self, chunk: ChunkSpan) -> bool:
        """Return whether a chunk starts with a level-1 heading or is below one."""
        return chunk.start in self.starts or bool(chunk.headings and chunk.headings[0] in self.titles)


def _find_top_headings(text: str, title: str) -> _TopHeadings | None:
    """Return the level-1 headings; None if the title is itself a heading of the text."""
    tops = _TopHeadings(set(), set())
    for block in parse_blocks(text):
        if block.level and strip_markdown(block.title) == title:
            return None
        if block.level == 1:
            tops.starts.add(block.start)
            tops.titles.add(block.title)
    return tops
