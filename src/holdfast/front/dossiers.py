"""All about one document that is not in its text: names, questions, what it lacks, what it cost, what happened."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.front.accounts import spent_of
from holdfast.front.checking import Checked
from holdfast.front.cursors import place
from holdfast.front.sentences import problem_of
from holdfast.front.shown import card
from holdfast.front.timeline import timeline
from holdfast.front.values import Card, Cost, Mentioned, Missing, Page
from holdfast.library.memos import total

if TYPE_CHECKING:
    from holdfast.front.reception import Reception
    from holdfast.front.values import Happening

MOST = 500  # jobs and lines of the log that a history is made of


class LocalDossiers(Checked):
    """The documents of a database, each by itself."""

    def __init__(self, reception: Reception) -> None:
        self._at = reception
        self._library = reception.library

    def entities(self, base: str, document: int) -> list[Mentioned]:
        """Return the entities that a document names, the most frequent first."""
        found = self._library.dossiers.entities(self._at.open(base), document)
        return [Mentioned(**one._asdict()) for one in found]

    def cards(self, base: str, document: int, *, cursor: str | None = None, limit: int = 100) -> Page[Card]:
        """Return the questions that a document answers, as its index `questions` has them, each with its passage."""
        found, more = self._library.dossiers.questions(
            self._at.open(base), document, after=place(cursor) or 0, limit=limit
        )
        items = [card(one.place, one.question, one.answer, one.source) for one in found]
        return Page(items=items, next_cursor=None if more is None else str(more))

    def missing(self, base: str, document: int, *, limit: int = 100) -> list[Missing]:
        """Return the chunks that indexes of a document lack, each with the reason: index by index, in their order."""
        return [
            Missing(
                index=one.kind,
                chunk=one.chunk,
                ordinal=one.ordinal,
                start=one.start,
                end=one.stop,
                text=one.text,
                problem=problem_of(one.why),
            )
            for one in self._library.dossiers.missing(self._at.open(base), document, limit=limit)
        ]

    def usage(self, base: str, document: int) -> Cost:
        """Tell what was paid for a document, and what it was spared because an answer was known."""
        shelf = self._at.open(base)
        with self._library.shelves.opened(shelf, document) as (_, item, _):
            name = item.name
        kinds = self._library.memos.spent(shelf.key, [item.key, item.source_key])
        summed = total(kinds)
        return Cost(
            document=document,
            name=name,
            spent=spent_of(summed.spent),
            saved=spent_of(summed.saved),
            kinds_spent=[spent_of(one) for one in kinds if one.paid],
            kinds_saved=[spent_of(one) for one in kinds if not one.paid],
        )

    def history(self, base: str, document: int, *, limit: int = 100) -> list[Happening]:
        """Return what happened to a document, newest first: requests and their ends, and the attempts of each index.

        The ends of jobs are told for as long as jobs are kept; attempts as far as the log goes back.
        """
        shelf = self._at.open(base)
        with self._library.shelves.opened(shelf, document) as (_, item, slots):
            owners = {slot.owner_id for slot in slots}
        jobs = [job for owner in owners for job in self._library.store.jobs(owner, MOST)]
        lines = self._library.log.lately(shelf.key, [item.key, item.source_key], MOST)
        return timeline(jobs, lines, slots)[:limit]
