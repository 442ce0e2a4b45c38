"""The log, read by everybody in the same order: what was read once is never overtaken by something that comes later.

Whoever reads keeps a cursor. One from before the lines that retention removed, or one that this log never gave, is
recognised: its reader is told to begin anew, and misses nothing silently.
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

PAGE_SIZE = 500  # lines read at once
MAX_HISTORY_LINES = 20_000  # lines looked through for one page of history
MAX_OWNER_LINES = 100_000  # lines looked through for what concerns one document
END_OF_LOG = Cursor(2**63 - 1, 2**63 - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPage:
    """Some events in their order, and where to read on."""

    events: Sequence[PublicEvent] = ()
    cursor: Cursor  # behind everything that was looked at, also what is not among the events
    reset: bool = False  # something behind the place that was named is gone: begin anew, from this cursor
    has_more: bool = False  # there may be more to read at once
    has_unreadable: bool = False  # something is there that an older transaction still keeps from being read


class EventLog:
    """Reads the event log of one database; everything within a call is one snapshot."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._ids_are_order = database.engine.dialect.name != "postgresql"
        self._statements = sql.SQLITE_STATEMENTS if self._ids_are_order else sql.POSTGRES_STATEMENTS

    def read(self, after: Cursor | None, limit: int = PAGE_SIZE, *, only: EventFilter = ALL_EVENTS) -> LogPage:
        """Look at the next lines behind a place, the oldest first; None begins with the oldest there is."""
        with self._database.reading() as tx:
            return self._read(tx, after, limit, only)

    def read_with_progress(self, after: Cursor, limit: int = PAGE_SIZE) -> tuple[LogPage, list[RunningSlot]]:
        """Read on, and read how far running work is, in the same snapshot."""
        with self._database.reading() as tx:
            return self._read(tx, after, limit, ALL_EVENTS), [
                RunningSlot(*row) for row in tx.run(sql.SELECT_RUNNING_SLOTS)
            ]

    def newest_cursor(self) -> Cursor:
        """Return the place behind all that may be read now."""
        with self._database.reading() as tx:
            return self._newest_cursor(tx, self._swept_cursor(tx))

    def history(self, before: Cursor | None = None, limit: int = 100, *, only: EventFilter = ALL_EVENTS) -> LogPage:
        """Read what was before a place, the newest first; the cursor leads further back while there is `more`.

        Only so many lines are looked through: where what is asked for is rare, a page may have few events, or none.
        """
        found: list[PublicEvent] = []
        place, seen = before or END_OF_LOG, 0
        with self._database.reading() as tx:
            while seen < MAX_HISTORY_LINES:
                rows = tx.run(self._statements.before, xid=place.xid, id=place.id, limit=PAGE_SIZE)
                for row in rows:
                    line = event_from_row(row)
                    place = Cursor(line.xid, line.id)
                    event = to_public_event(line)
                    if event is not None and only.matches(event):
                        found.append(event)
                    if len(found) == limit:
                        return LogPage(events=found, cursor=place, has_more=True)
                seen += len(rows)
                if len(rows) < PAGE_SIZE:
                    return LogPage(events=found, cursor=place)
        return LogPage(events=found, cursor=place, has_more=True)

    def read_recent_of_owners(self, base: str, owners: Sequence[str], limit: int = 1000) -> list[LoggedEvent]:
        """Read the newest lines about some owners, every move of their slots among them; only so far back."""
        with self._database.reading() as tx:
            rows = tx.run(
                sql.SELECT_RECENT_OF_OWNERS, [[owner] for owner in owners], base=base, far=MAX_OWNER_LINES, limit=limit
            )
        return [event_from_row(row) for row in rows]

    def adopt_foreign_events(self) -> int:
        """Make lines readable that came with a copy from another PostgreSQL, whose transactions are unknown here."""
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
        place = swept if after is None else after
        if place < swept:
            return LogPage(cursor=self._newest_cursor(tx, swept), reset=True)
        lines = [event_from_row(row) for row in tx.run(self._statements.after, xid=place.xid, id=place.id, limit=limit)]
        if not lines and place > self._newest_cursor(tx, swept):
            return LogPage(cursor=self._newest_cursor(tx, swept), reset=True)
        events = [event for event in map(to_public_event, lines) if event is not None and only.matches(event)]
        return LogPage(
            events=events,
            cursor=Cursor(lines[-1].xid, lines[-1].id) if lines else place,
            has_more=len(lines) == limit,
            has_unreadable=self._statements.unreadable is not None
            and len(lines) < limit
            and bool(tx.run(self._statements.unreadable)),
        )

    def _swept_cursor(self, tx: Transaction) -> Cursor:
        """Return the last place that retention has removed."""
        return Cursor(*tx.run(sql.SELECT_SWEPT_MARK)[0])

    def _newest_cursor(self, tx: Transaction, swept: Cursor) -> Cursor:
        found = tx.run(self._statements.newest)
        return max(swept, Cursor(*found[0])) if found else swept
