"""Reads the event log in one order for all readers: no event appears before a position that was read already.

A reader keeps a cursor. If retention removed lines after the cursor, or the cursor is not from this log, the page has
`reset` set: the reader must start again, and no event is lost silently.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.engine.store import event_from_row
from holdfast.events import statements as sql
from holdfast.events.progress import RunningSlot
from holdfast.events.public_events import ALL_EVENTS, Cursor, to_public_event

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.db import Database, Transaction
    from holdfast.engine.store import LoggedEvent
    from holdfast.events.public_events import EventFilter, PublicEvent

PAGE_SIZE = 500  # lines per query
MAX_HISTORY_LINES = 20_000  # lines scanned for one page of history
MAX_OWNER_LINES = 100_000  # lines scanned for the events of one document
END_OF_LOG = Cursor(2**63 - 1, 2**63 - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPage:
    """Some events in order, and the cursor of the next page."""

    events: Sequence[PublicEvent] = ()
    cursor: Cursor  # after all lines that were read, also those that are no public event
    reset: bool = False  # lines after the given cursor are gone: start again from this cursor
    has_more: bool = False  # the next page may have events now
    has_unreadable: bool = False  # an open transaction hides newer lines


class EventLog:
    """Reads the event log of one database. Each call reads one snapshot."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._ids_are_order = database.engine.dialect.name != "postgresql"
        self._statements = sql.SQLITE_STATEMENTS if self._ids_are_order else sql.POSTGRES_STATEMENTS

    def read(self, after: Cursor | None, limit: int = PAGE_SIZE, *, only: EventFilter = ALL_EVENTS) -> LogPage:
        """Return the next events after a cursor, oldest first; None starts with the oldest line."""
        with self._database.reading() as tx:
            return self._read(tx, after, limit, only)

    def read_with_progress(self, after: Cursor, limit: int = PAGE_SIZE) -> tuple[LogPage, list[RunningSlot]]:
        """Return the next events and the running slots, from one snapshot."""
        with self._database.reading() as tx:
            return self._read(tx, after, limit, ALL_EVENTS), [
                RunningSlot(*row) for row in tx.run(sql.SELECT_RUNNING_SLOTS)
            ]

    def newest_cursor(self) -> Cursor:
        """Return the cursor after the last readable line."""
        with self._database.reading() as tx:
            return self._newest_cursor(tx, self._swept_cursor(tx))

    def history(self, before: Cursor | None = None, limit: int = 100, *, only: EventFilter = ALL_EVENTS) -> LogPage:
        """Return events before a cursor, newest first; the page's cursor leads further back while `has_more`.

        A call scans at most `MAX_HISTORY_LINES`: if few events match, a page may have few or none.
        """
        events: list[PublicEvent] = []
        cursor, scanned = before or END_OF_LOG, 0
        with self._database.reading() as tx:
            while scanned < MAX_HISTORY_LINES:
                rows = tx.run(self._statements.before, xid=cursor.xid, id=cursor.id, limit=PAGE_SIZE)
                for row in rows:
                    line = event_from_row(row)
                    cursor = Cursor(line.xid, line.id)
                    event = to_public_event(line)
                    if event is not None and only.matches(event):
                        events.append(event)
                    if len(events) == limit:
                        return LogPage(events=events, cursor=cursor, has_more=True)
                scanned += len(rows)
                if len(rows) < PAGE_SIZE:
                    return LogPage(events=events, cursor=cursor)
        return LogPage(events=events, cursor=cursor, has_more=True)

    def read_recent_of_owners(self, base: str, owners: Sequence[str], limit: int = 1000) -> list[LoggedEvent]:
        """Return the newest lines of some owners, including each move of their slots.

        Only the newest `MAX_OWNER_LINES` of the log are scanned.
        """
        with self._database.reading() as tx:
            rows = tx.run(
                sql.SELECT_RECENT_OF_OWNERS, [[owner] for owner in owners], base=base, far=MAX_OWNER_LINES, limit=limit
            )
        return [event_from_row(row) for row in rows]

    def adopt_foreign_events(self) -> int:
        """Make lines readable that were restored from another PostgreSQL server, with its transaction ids."""
        if self._ids_are_order:
            return 0
        with self._database.reading() as tx:
            if not tx.run(sql.SELECT_FOREIGN_EVENT):
                return 0

        def work(tx: Transaction) -> int:
            tx.run(sql.ADOPT_SWEPT_MARK)
            return len(tx.run(sql.ADOPT_FOREIGN_EVENTS))

        return self._database.write(work, durable=True)

    def _read(self, tx: Transaction, after: Cursor | None, limit: int, only: EventFilter) -> LogPage:
        swept = self._swept_cursor(tx)
        cursor = swept if after is None else after
        from_elsewhere = self._ids_are_order and cursor.xid > 0  # before the log was moved from PostgreSQL
        if cursor < swept or from_elsewhere:
            return LogPage(cursor=self._newest_cursor(tx, swept), reset=True)
        lines = [
            event_from_row(row) for row in tx.run(self._statements.after, xid=cursor.xid, id=cursor.id, limit=limit)
        ]
        if not lines and cursor > self._newest_cursor(tx, swept):
            return LogPage(cursor=self._newest_cursor(tx, swept), reset=True)
        events = [event for event in map(to_public_event, lines) if event is not None and only.matches(event)]
        return LogPage(
            events=events,
            cursor=Cursor(lines[-1].xid, lines[-1].id) if lines else cursor,
            has_more=len(lines) == limit,
            has_unreadable=self._statements.unreadable is not None
            and len(lines) < limit
            and bool(tx.run(self._statements.unreadable)),
        )

    def _swept_cursor(self, tx: Transaction) -> Cursor:
        """Return the cursor of the last line that retention removed."""
        return Cursor(*tx.run(sql.SELECT_SWEPT_MARK)[0])

    def _newest_cursor(self, tx: Transaction, swept: Cursor) -> Cursor:
        rows = tx.run(self._statements.newest)
        return max(swept, Cursor(*rows[0])) if rows else swept
