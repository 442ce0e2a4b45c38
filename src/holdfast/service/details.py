"""Details of one document: entities, cards, missing chunks, cost, history."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.llm import UsageTotal
from holdfast.paging import Page
from holdfast.service.cursors import parse_cursor
from holdfast.service.timeline import build_timeline
from holdfast.service.validation import ValidatedOperations

if TYPE_CHECKING:
    from holdfast.documents import Card, DocumentEntity, MissingChunk
    from holdfast.service.authorization import Authorization
    from holdfast.service.timeline import HistoryEntry

MAX_HISTORY_ROWS = 500  # a history is built from at most so many jobs per slot owner, and so many events


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentUsage:
    """What Holdfast paid for one document, and what cached answers saved."""

    document: int
    name: str
    spent: UsageTotal
    saved: UsageTotal
    kinds_spent: list[UsageTotal]
    kinds_saved: list[UsageTotal]


class LocalDocumentDetails(ValidatedOperations):
    def __init__(self, authorization: Authorization) -> None:
        self._authorization = authorization
        self._library = authorization.library

    def entities(self, base: str, document: int) -> list[DocumentEntity]:
        """Return the entities that a document mentions, each with its number of chunks, most frequent first."""
        return self._library.document_details.entities(self._authorization.find_base(base), document)

    def cards(self, base: str, document: int, *, cursor: str | None = None, limit: int = 100) -> Page[Card]:
        """Return the questions that a document answers, each with its answer and passage."""
        items, more = self._library.document_details.list_cards(
            self._authorization.find_base(base), document, after=parse_cursor(cursor) or 0, limit=limit
        )
        return Page(items=items, next_cursor=None if more is None else str(more))

    def missing(self, base: str, document: int, *, limit: int = 100) -> list[MissingChunk]:
        """Return the chunks that are missing in an index of a document, each with the reason and its first words."""
        return self._library.document_details.missing(self._authorization.find_base(base), document, limit=limit)

    def usage(self, base: str, document: int) -> DocumentUsage:
        """Return what Holdfast paid for a document, and what cached answers saved."""
        target = self._authorization.find_base(base)
        with self._library.document_queries.open_item(target, document) as (_, item, _):
            name = item.name
        ledger = self._library.paid_cache.summarize_base(target.key, [item.key, item.source_key])
        return DocumentUsage(
            document=document,
            name=name,
            spent=ledger.spent,
            saved=ledger.saved,
            kinds_spent=ledger.kinds_spent,
            kinds_saved=ledger.kinds_saved,
        )

    def history(self, base: str, document: int, *, limit: int = 100) -> list[HistoryEntry]:
        """Return the history of a document, newest first: requests, their outcomes, and the attempts of each index.

        Outcomes are available as long as jobs are kept, attempts as long as the event log is kept.
        """
        target = self._authorization.find_base(base)
        with self._library.document_queries.open_item(target, document) as (_, item, slots):
            owners = {slot.owner_id for slot in slots}
        jobs = [job for owner in owners for job in self._library.store.list_jobs_of_owner(owner, MAX_HISTORY_ROWS)]
        events = self._library.event_log.read_recent_of_owners(
            target.key, [item.key, item.source_key], MAX_HISTORY_ROWS
        )
        return build_timeline(jobs, events, slots)[:limit]
