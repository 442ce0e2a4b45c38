"""All about one document that is not in its text: names, questions, what it lacks, what it cost, what happened."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.service.cursors import place
from holdfast.service.schemas import Card, Cost, Mentioned, Missing, Page
from holdfast.service.timeline import timeline
from holdfast.service.validation import Checked

if TYPE_CHECKING:
    from holdfast.service.authorization import Authorization
    from holdfast.service.schemas import Happening

MOST = 500  # jobs and lines of the log that a history is made of


class LocalDossiers(Checked):
    """The documents of a database, each by itself."""

    def __init__(self, authorization: Authorization) -> None:
        self._at = authorization
        self._library = authorization.library

    def entities(self, base: str, document: int) -> list[Mentioned]:
        """Return the entities that a document names, the most frequent first."""
        return self._library.dossiers.entities(self._at.open(base), document)

    def cards(self, base: str, document: int, *, cursor: str | None = None, limit: int = 100) -> Page[Card]:
        """Return the questions that a document answers, as its index `questions` has them, each with its passage."""
        items, more = self._library.dossiers.questions(
            self._at.open(base), document, after=place(cursor) or 0, limit=limit
        )
        return Page(items=items, next_cursor=None if more is None else str(more))

    def missing(self, base: str, document: int, *, limit: int = 100) -> list[Missing]:
        """Return the chunks that indexes of a document lack, each with the reason: index by index, in their order."""
        return self._library.dossiers.missing(self._at.open(base), document, limit=limit)

    def usage(self, base: str, document: int) -> Cost:
        """Tell what was paid for a document, and what it was spared because an answer was known."""
        shelf = self._at.open(base)
        with self._library.shelves.opened(shelf, document) as (_, item, _):
            name = item.name
        account = self._library.memos.account(shelf.key, [item.key, item.source_key])
        return Cost(
            document=document,
            name=name,
            spent=account.spent,
            saved=account.saved,
            kinds_spent=account.kinds_spent,
            kinds_saved=account.kinds_saved,
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
