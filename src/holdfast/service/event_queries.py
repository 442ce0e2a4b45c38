"""Reads the event log, and makes the filter for a stream of events."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.events import Cursor, Event, EventFilter, resolve_topics
from holdfast.paging import Page
from holdfast.service.validation import ValidatedOperations

if TYPE_CHECKING:
    from collections.abc import Collection

    from holdfast.service.authorization import Authorization


class LocalEvents(ValidatedOperations):
    """The event log, limited to what the caller may see."""

    def __init__(self, authorization: Authorization) -> None:
        self._authorization = authorization
        self._log = authorization.library.event_log

    def list(
        self,
        base: str | None = None,
        *,
        document: int | None = None,
        topics: Collection[str] | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> Page[Event]:
        """Return events, newest first."""
        before = None if cursor is None else Cursor.parse(cursor)
        page = self._log.history(before, limit, only=self.make_filter(base, document=document, topics=topics))
        return Page(
            items=[event.to_schema() for event in page.events], next_cursor=str(page.cursor) if page.has_more else None
        )

    def after(
        self,
        cursor: str | None,
        base: str | None = None,
        *,
        document: int | None = None,
        topics: Collection[str] | None = None,
        limit: int = 100,
    ) -> Page[Event]:
        """Return the events after a cursor, oldest first. `next_cursor` is always set, to continue later."""
        after = self._log.newest_cursor() if cursor is None else Cursor.parse(cursor)
        page = self._log.read(after, limit, only=self.make_filter(base, document=document, topics=topics))
        return Page(items=[event.to_schema() for event in page.events], next_cursor=str(page.cursor))

    def make_filter(
        self, base: str | None, *, document: int | None = None, topics: Collection[str] | None = None
    ) -> EventFilter:
        """Return a filter for the requested events that the caller may see."""
        types = None if topics is None else resolve_topics(topics)
        return EventFilter(bases=self.visible_base_keys(base), types=types, document=document)

    def visible_base_keys(self, base: str | None) -> frozenset[str] | None:
        """Return the keys of the bases whose events the caller may see; None means all."""
        if base is not None:
            return frozenset({self._authorization.find_base(base).key})
        bases = self._authorization.caller.bases
        return None if bases is None else frozenset(map(str, bases))
