"""The slot `content`: a document becomes a list of chunks. What its indexes are built from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from holdfast.content.chunking import Chunking, split
from holdfast.content.reading import read
from holdfast.core.slot import Built
from holdfast.errors import Permanent
from holdfast.library import item_statements as sql
from holdfast.library.builds import Builds, Facts, Part, Portion, numbered
from holdfast.library.catalogue import Kind, removed
from holdfast.stores.desk import record

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sqlalchemy import Connection

    from holdfast.content.readers.base import Reading
    from holdfast.core.slot import Ticket
    from holdfast.library.blobs import Blobs
    from holdfast.library.catalogue import Base, Catalogue, Item, Recipe
    from holdfast.library.sweeping import Sweeper
    from holdfast.runtime.work import Task
    from holdfast.stores.base import Completion
    from holdfast.stores.database import Database, Transaction

CONTENT = "content"


class ContentIndexer:
    """Reads a document once for all its indexes."""

    def __init__(self, database: Database, catalogue: Catalogue, blobs: Blobs, sweeper: Sweeper) -> None:
        self._database = database
        self._catalogue = catalogue
        self._blobs = blobs
        self._sweeper = sweeper
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
        reading = read(self._blobs.path(document.blob), name, fetched=fetched)
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


def list_spec(base: Base) -> Mapping[str, Any]:
    """Return all that the list of a document's chunks depends on beside its bytes."""
    return {"size": base.settings.chunk_size, "overlap": base.settings.chunk_overlap}


def _parts(reading: Reading, rules: Chunking) -> Iterator[Part]:
    """Divide a text; a title that is not among the headings stands above them all."""
    text, title = reading.text, reading.title
    for chunk in split(text, rules):
        headings = chunk.headings
        said = text[chunk.start : chunk.end]
        if title and title not in headings and not _begins_with(said, title):
            headings = (title, *headings)
        yield Part(chunk.start, chunk.body, chunk.end, headings, said)


def _begins_with(text: str, title: str) -> bool:
    """Tell whether the title is the heading that the text itself begins with."""
    return text.lstrip("# \n").startswith(title)
