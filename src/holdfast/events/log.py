"""The log, read by everybody in the same order: what was read once is never overtaken by something that comes later.

Whoever reads keeps a cursor. One from before the lines that retention removed, or one that this log never gave, is
recognised: its reader is told to begin anew, and misses nothing silently.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.engine.store import event_of
from holdfast.events import statements as sql
from holdfast.events.progress import Running
from holdfast.events.public_events import EVERYTHING, Cursor, told

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.db import Database, Transaction
    from holdfast.engine.store import LoggedEvent
    from holdfast.events.public_events import Filter, PublicEvent

PAGE = 500  # lines read at once
FAR = 20_000  # lines looked through for one page of history
FARTHEST = 100_000  # lines looked through for what concerns one document
END = Cursor(2**63 - 1, 2**63 - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Some events in their order, and where to read on."""

    events: Sequence[PublicEvent] = ()
    cursor: Cursor  # behind everything that was looked at, also what is not among the events
    reset: bool = False  # something behind the place that was named is gone: begin anew, from this cursor
    more: bool = False  # there may be more to read at once
    held: bool = False  # something is there that an older transaction still keeps from being read


class Log:
    """Reads the event log of one database; everything within a call is one snapshot."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._ordered = database.engine.dialect.name != "postgresql"
        self._forms = sql.SQLITE if self._ordered else sql.POSTGRES

    def read(self, after: Cursor | None, limit: int = PAGE, *, only: Filter = EVERYTHING) -> Page:
        """Look at the next lines behind a place, the oldest first; None begins with the oldest there is."""
        with self._database.reading() as tx:
            return self._read(tx, after, limit, only)

    def look(self, after: Cursor, limit: int = PAGE) -> tuple[Page, list[Running]]:
        """Read on, and read how far running work is, in the same snapshot."""
        with self._database.reading() as tx:
            return self._read(tx, after, limit, EVERYTHING), [Running(*row) for row in tx.run(sql.RUNNING)]

    def newest(self) -> Cursor:
        """Return the place behind all that may be read now."""
        with self._database.reading() as tx:
            return self._newest(tx, self._swept(tx))

    def history(self, before: Cursor | None = None, limit: int = 100, *, only: Filter = EVERYTHING) -> Page:
        """Read what was before a place, the newest first; the cursor leads further back while there is `more`.

        Only so many lines are looked through: where what is asked for is rare, a page may have few events, or none.
        """
        found: list[PublicEvent] = []
        place, seen = before or END, 0
        with self._database.reading() as tx:
            while seen < FAR:
                rows = tx.run(self._forms.before, xid=place.xid, id=place.id, limit=PAGE)
                for row in rows:
                    line = event_of(row)
                    place = Cursor(line.xid, line.id)
                    event = told(line)
                    if event is not None and only.admits(event):
                        found.append(event)
                    if len(found) == limit:
                        return Page(events=found, cursor=place, more=True)
                seen += len(rows)
                if len(rows) < PAGE:
                    return Page(events=found, cursor=place)
        return Page(events=found, cursor=place, more=True)

    def lately(self, base: str, owners: Sequence[str], limit: int = 1000) -> list[LoggedEvent]:
        """Read the newest lines about some owners, every move of their slots among them; only so far back."""
        with self._database.reading() as tx:
            rows = tx.run(sql.LATELY_OF, [[owner] for owner in owners], base=base, far=FARTHEST, limit=limit)
        return [event_of(row) for row in rows]

    def adopt(self) -> int:
        """Make lines readable that came with a copy from another PostgreSQL, whose transactions are unknown here."""
        if self._ordered:
            return 0
        with self._database.reading() as tx:
            if not tx.run(sql.SOME_FOREIGN):
                return 0

        def work(tx: Transaction) -> int:
            tx.run(sql.ADOPT_MARK)
            return len(tx.run(sql.ADOPT))

        return self._database.write(work, durable=True)

    def _read(self, tx: Transaction, after: Cursor | None, limit: int, only: Filter) -> Page:
        swept = self._swept(tx)
        place = swept if after is None else after
        if place < swept:
            return Page(cursor=self._newest(tx, swept), reset=True)
        lines = [event_of(row) for row in tx.run(self._forms.after, xid=place.xid, id=place.id, limit=limit)]
        if not lines and place > self._newest(tx, swept):
            return Page(cursor=self._newest(tx, swept), reset=True)
        events = [event for event in map(told, lines) if event is not None and only.admits(event)]
        return Page(
            events=events,
            cursor=Cursor(lines[-1].xid, lines[-1].id) if lines else place,
            more=len(lines) == limit,
            held=self._forms.held is not None and len(lines) < limit and bool(tx.run(self._forms.held)),
        )

    def _swept(self, tx: Transaction) -> Cursor:
        """Return the last place that retention has removed."""
        return Cursor(*tx.run(sql.SWEPT)[0])

    def _newest(self, tx: Transaction, swept: Cursor) -> Cursor:
        found = tx.run(self._forms.newest)
        return max(swept, Cursor(*found[0])) if found else swept
