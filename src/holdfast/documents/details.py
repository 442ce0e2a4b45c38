"""Reads the served entities and questions of one document, and the chunks that its indexes lack."""

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

PREVIEW_CHARACTERS = 200  # of the text of a missing chunk


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentEntity:
    """An entity that a document mentions."""

    key: str
    name: str
    kind: str  # empty if only the rules found it, not a language model
    mentions: int  # number of chunks that mention it


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """A question, its answer, and the passage that both come from."""

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
    """A chunk that is missing in an index of a document: searches in this index do not find it."""

    index: str
    chunk: int
    ordinal: int
    start: int
    end: int
    text: str  # the beginning, without the overlap with the previous chunk
    problem: Problem


class DocumentDetails:
    def __init__(self, queries: DocumentQueries) -> None:
        self._queries = queries

    def entities(self, base: Base, item: int) -> list[DocumentEntity]:
        """Return the entities that a document mentions, the most frequent first."""
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
        """Return the cards of a document after a place, and the place to continue from; None after the last.

        Cards that are not served are left out, so a page may have fewer than `limit`.
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
        """Return the chunks that are missing in the indexes of a document, by index and in the order of the text."""
        with self._queries.open_item(base, item) as (tx, document, _):
            rows = tx.run(sql.READ_MISSING, base=base.key, owner=document.key, letters=PREVIEW_CHARACTERS, limit=limit)
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
    """Return the slot of an index if it serves something."""
    return [slot for slot in slots if slot.kind == kind and slot.served and slot.recipe is not None]
