"""What is known of one document: the names in it, the questions it answers, what it lacks; only what is served."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.catalog import fault_from_json, read_served_chunks
from holdfast.documents import statements as sql
from holdfast.engine import Problem, describe_fault
from holdfast.indexes.graph import GRAPH, Subject, locate_served_chunks, read_document_names
from holdfast.indexes.questions import KIND as QUESTIONS
from holdfast.indexes.questions import read_document_pairs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.catalog import Base, ServedChunk
    from holdfast.documents.queries import DocumentQueries
    from holdfast.engine import Slot

PREVIEW_CHARACTERS = 200  # with which a chunk is named


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentEntity:
    """An entity that a document names."""

    key: str
    name: str
    kind: str  # empty where only rules have seen it
    mentions: int  # chunks of the document that name it


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """A question, its answer, and the passage both come from."""

    place: int
    question: str
    answer: str
    document: int
    name: str
    chunk: int
    headings: list[str]
    passage: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingChunk:
    """A chunk that an index of a document lacks: searches by this index do not find it."""

    index: str
    chunk: int
    ordinal: int
    start: int
    end: int
    text: str  # how it begins, behind what it repeats of the chunk before
    problem: Problem


class DocumentDetails:
    """Reads what indexes know of single documents."""

    def __init__(self, shelves: DocumentQueries) -> None:
        self._queries = shelves

    def entities(self, base: Base, item: int) -> list[DocumentEntity]:
        """Return the entities that a document names, the most frequent first."""
        found: dict[str, Subject] = {}
        with self._queries.open_item(base, item) as (tx, _, slots):
            for slot in _serving(slots, GRAPH):
                rows = read_document_names(tx, slot)
                places = locate_served_chunks(tx, base.key, slot.recipe or 0, (chunk for _, chunk, *_ in rows))
                for key, chunk, label, kind in rows:
                    if chunk in places:
                        subject = found.setdefault(key, Subject(key=(key, "")))
                        subject.add(chunk, places[chunk], label=label, kind=kind, text="")
        named = [
            DocumentEntity(key=key, name=one.name, kind=one.kind, mentions=len(one.locations))
            for key, one in found.items()
        ]
        return sorted(named, key=lambda one: (-one.mentions, one.key))

    def list_cards(self, base: Base, item: int, *, after: int = 0, limit: int = 100) -> tuple[list[Card], int | None]:
        """Return the questions that a document answers from behind a place on, and where to read on, if there is more.

        What is not served is left out, so a page may have fewer than were asked for.
        """
        with self._queries.open_item(base, item) as (tx, _, slots):
            for slot in _serving(slots, QUESTIONS):
                rows = read_document_pairs(tx, slot, after, limit)
                chunks = list({chunk for chunk, *_ in rows})
                sources = read_served_chunks(tx, base.key, QUESTIONS, slot.recipe or 0, chunks)
                found = [
                    build_card(place, question, answer, sources[chunk])
                    for place, (chunk, question, answer) in enumerate(rows, after + 1)
                    if chunk in sources
                ]
                return found, after + limit if len(rows) == limit else None
        return [], None

    def missing(self, base: Base, item: int, *, limit: int = 100) -> list[MissingChunk]:
        """Return the chunks that the indexes of a document lack: index by index, in the order of its text."""
        with self._queries.open_item(base, item) as (tx, one, _):
            rows = tx.run(sql.READ_MISSING, base=base.key, owner=one.key, letters=PREVIEW_CHARACTERS, limit=limit)
        return [
            MissingChunk(
                index=kind,
                chunk=chunk,
                ordinal=ordinal,
                start=start,
                end=stop,
                text=" ".join(text.split()),
                problem=describe_fault(fault_from_json(reason)),
            )
            for kind, chunk, ordinal, start, stop, text, reason in rows
        ]


def build_card(place: int, question: str, answer: str, source: ServedChunk) -> Card:
    """Return a question with its answer and the passage that both come from."""
    return Card(
        place=place,
        question=question,
        answer=answer,
        document=source.document,
        name=source.name,
        chunk=source.chunk,
        headings=source.headings,
        passage=source.text,
    )


def _serving(slots: Sequence[Slot], kind: str) -> list[Slot]:
    """Return the slot of an index, if it serves anything."""
    return [slot for slot in slots if slot.kind == kind and slot.served and slot.recipe is not None]
