"""What is known of one document: the names in it, the questions it answers, what it lacks; only what is served."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.indexes import graph_statements, questions_statements
from holdfast.indexes.questions import KIND as QUESTIONS
from holdfast.indexes.sayings import GRAPH, Subject, shown
from holdfast.library import statements as sql
from holdfast.library.catalogue import fault_of
from holdfast.library.serving import served

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.core.slot import Fault, Slot
    from holdfast.knowledge.shelves import Shelves
    from holdfast.library.catalogue import Base
    from holdfast.library.serving import Served

LETTERS = 200  # with which a chunk is named


class Mentioned(NamedTuple):
    """An entity, and in how many chunks of the document it is named."""

    key: str
    name: str
    kind: str
    mentions: int


class Asked(NamedTuple):
    """A question that a chunk answers; `place` is its number among all of the document."""

    place: int
    question: str
    answer: str
    source: Served


class Lacked(NamedTuple):
    """A chunk of what an index serves that is not in it, and why."""

    kind: str
    chunk: int
    ordinal: int
    start: int
    stop: int
    text: str  # how its own part begins
    why: Fault


class Dossiers:
    """Reads what indexes know of single documents."""

    def __init__(self, shelves: Shelves) -> None:
        self._shelves = shelves

    def entities(self, base: Base, item: int) -> list[Mentioned]:
        """Return the entities that a document names, the most frequent first."""
        found: dict[str, Subject] = {}
        with self._shelves.opened(base, item) as (tx, _, slots):
            for slot in _serving(slots, GRAPH):
                rows = tx.run(graph_statements.NAMED_IN, **_build(slot))
                places = shown(tx, base.key, slot.recipe or 0, (chunk for _, chunk, *_ in rows))
                for key, chunk, label, kind in rows:
                    if chunk in places:
                        subject = found.setdefault(key, Subject(key=(key, "")))
                        subject.add(chunk, places[chunk], label=label, kind=kind, text="")
        named = [Mentioned(key, one.name, one.kind, len(one.places)) for key, one in found.items()]
        return sorted(named, key=lambda one: (-one.mentions, one.key))

    def questions(self, base: Base, item: int, *, after: int = 0, limit: int = 100) -> tuple[list[Asked], int | None]:
        """Return the questions that a document answers from behind a place on, and where to read on, if there is more.

        What is not served is left out, so a page may have fewer than were asked for.
        """
        with self._shelves.opened(base, item) as (tx, _, slots):
            for slot in _serving(slots, QUESTIONS):
                rows = tx.run(questions_statements.ASKED_IN, **_build(slot), offset=after, limit=limit)
                chunks = list({chunk for chunk, *_ in rows})
                sources = served(tx, base.key, QUESTIONS, slot.recipe or 0, chunks)
                found = [
                    Asked(place, question, answer, sources[chunk])
                    for place, (chunk, question, answer) in enumerate(rows, after + 1)
                    if chunk in sources
                ]
                return found, after + limit if len(rows) == limit else None
        return [], None

    def missing(self, base: Base, item: int, *, limit: int = 100) -> list[Lacked]:
        """Return the chunks that the indexes of a document lack: index by index, in the order of its text."""
        with self._shelves.opened(base, item) as (tx, one, _):
            rows = tx.run(sql.READ_MISSING, base=base.key, owner=one.key, letters=LETTERS, limit=limit)
        return [
            Lacked(kind, chunk, ordinal, start, stop, " ".join(text.split()), fault_of(reason))
            for kind, chunk, ordinal, start, stop, text, reason in rows
        ]


def _serving(slots: Sequence[Slot], kind: str) -> list[Slot]:
    """Return the slot of an index, if it serves anything."""
    return [slot for slot in slots if slot.kind == kind and slot.served and slot.recipe is not None]


def _build(slot: Slot) -> dict[str, Any]:
    """Name what a slot serves: the list of chunks, and the recipe of their rows."""
    return {"recipe": slot.recipe, "owner_id": slot.owner_id, "build": slot.source}
