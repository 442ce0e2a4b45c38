"""The slot `content`: a document becomes a list of chunks. What its indexes are built from."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, cast

from holdfast.catalog import Builds, Facts, Kind, Part, Portion, numbered, removed
from holdfast.content.blocks import blocks
from holdfast.content.chunking import Chunking, split
from holdfast.content.readers.cleaning import unmarked
from holdfast.content.reading import read
from holdfast.engine import Built
from holdfast.engine.store import record
from holdfast.errors import Permanent
from holdfast.indexes import statements as sql
from holdfast.indexes.base import CONTENT, list_spec

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from sqlalchemy import Connection

    from holdfast.catalog import Base, Blobs, Catalogue, Item, Recipe
    from holdfast.content.chunking import Chunk
    from holdfast.content.readers.base import Reading
    from holdfast.db import Database, Transaction
    from holdfast.engine import Ticket
    from holdfast.engine.store import Completion
    from holdfast.engine.task import Task
    from holdfast.indexes.gc import Sweeper


class ContentIndexer:
    """Reads a document once for all its indexes."""

    def __init__(
        self, database: Database, catalogue: Catalogue, blobs: Blobs, sweeper: Sweeper, home: Path | None = None
    ) -> None:
        self._database = database
        self._catalogue = catalogue
        self._blobs = blobs
        self._sweeper = sweeper
        self._home = home  # where a reader unpacks its libraries if the temporary folder is not suitable
        self._builds = Builds(database)
        self._begun: dict[Ticket, tuple[Base, Item, Recipe]] = {}

    def begin(self, tasks: Sequence[Task]) -> None:
        """Look up many documents at once."""
        self._begun = self._known([task.ticket for task in tasks])

    def build(self, task: Task) -> Built:
        """Read, divide, and write the list."""
        ticket = task.ticket
        known = self._begun.pop(ticket, None) or self._known([ticket]).get(ticket)
        base, document, recipe = known or (None, None, None)
        if base is None or recipe is None or document is None or document.blob is None:
            raise Permanent("unknown_document", "The document is not there any more; it has been deleted.")
        task.checkpoint(stage="reading")
        fetched = document.kind is Kind.URL  # its name is what people call it; the file has one of its own
        name = str(document.metadata.get("file", document.name)) if fetched else document.name
        reading = read(self._blobs.path(document.blob), name, fetched=fetched, spare=self._home)
        task.checkpoint(stage="chunking")
        rules = Chunking(size=base.settings.chunk_size, overlap=base.settings.chunk_overlap)
        facts = Facts(reading.title, reading.pages, reading.metadata, reading.warnings, len(reading.text))
        last: Portion | None = None
        for parts in numbered(_parts(reading, rules)):
            if last is not None:
                task.checkpoint(stage="chunking", done=parts[0][0])
                with task.guarded() as connection:
                    self._builds.write(self._database.within(connection), [last])
            last = Portion(ticket.owner, ticket.fence, facts if last is None else None, parts)
        if last is None:
            raise Permanent("no_text", "No text was found in this file.")
        return Built(rows=last, recipe=recipe.id)

    def publish(self, connection: Connection, completions: Sequence[Completion]) -> None:
        """Write the last portion of each list, which is the only one of a small document."""
        portions = [one.built.rows for one in completions]
        self._builds.write(self._database.within(connection), cast("list[Portion]", portions))

    def _known(self, tickets: Sequence[Ticket]) -> dict[Ticket, tuple[Base, Item, Recipe]]:
        bases, documents = self._catalogue.keyed(tickets)
        recipes = {key: self._catalogue.recipe(base, CONTENT, list_spec(base)) for key, base in bases.items()}
        return {
            ticket: (bases[ticket.key.base], documents[ticket.key.owner], recipes[ticket.key.base])
            for ticket in tickets
            if ticket.key.owner in documents
        }

    def remove(self, task: Task) -> None:
        """Remove the lists, the chunks with everything made for them, the bytes, and the row last."""
        self.remove_all([task])

    def remove_all(self, tasks: Sequence[Task]) -> None:
        """Remove all of many documents, each step for all of them."""

        def go_on() -> None:
            for task in tasks:
                task.checkpoint(stage="removing")

        tickets = [task.ticket for task in tasks]
        self._sweeper.clear([ticket.owner for ticket in tickets], go_on)
        _, documents = self._catalogue.keyed(tickets)
        for document in documents.values():  # before the row, which alone knows its name; that it goes is durable
            if document.blob is not None:
                self._blobs.remove(document.blob)
        self._database.write(lambda tx: _forget(tx, [int(ticket.key.owner) for ticket in tickets]), durable=True)


def _forget(tx: Transaction, items: Sequence[int]) -> None:
    gone = tx.run(sql.REMOVE_DOCUMENTS, [[item] for item in items])
    record(tx, [removed(base, id_) for base, id_ in gone])


def _parts(reading: Reading, rules: Chunking) -> Iterator[Part]:
    """Divide a text into chunks, each under its real heading path.

    A title from the metadata is added only where it is needed: above the opening chunk, and above chunks that stand
    under no level-1 heading. A level-1 heading names the document itself, so below it an edited title changes nothing.
    """
    text = reading.text
    tops = _tops(text, reading.title) if reading.title else None
    for ordinal, chunk in enumerate(split(text, rules)):
        headings, said = chunk.headings, text[chunk.start : chunk.end]
        if reading.title and tops is not None and (ordinal == 0 or not tops.cover(chunk)):
            headings = headings if said.startswith(reading.title) else (reading.title, *headings)
        yield Part(chunk.start, chunk.body, chunk.end, headings, said)


class _Tops(NamedTuple):
    """The level-1 headings of a text: their places, and their words."""

    starts: set[int]
    titles: set[str]

    def cover(self, chunk: Chunk) -> bool:
        """Tell whether a chunk begins with a level-1 heading or stands under one."""
        return chunk.start in self.starts or bool(chunk.headings and chunk.headings[0] in self.titles)


def _tops(text: str, title: str) -> _Tops | None:
    """Return the level-1 headings; None if the title is a heading of the text itself, where it has its place."""
    tops = _Tops(set(), set())
    for block in blocks(text):
        if block.level and unmarked(block.title) == title:
            return None
        if block.level == 1:
            tops.starts.add(block.start)
            tops.titles.add(block.title)
    return tops
