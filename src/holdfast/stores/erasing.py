"""What is deleted is soon gone from the disk, too: the duty is kept in the database, and done for many deletes at once.

SQLite counts removals itself, by triggers, in the transactions that remove; so a crash loses no duty, whoever removes
what. Erasing is due when something is counted that is not erased, the clean-up is at rest, and the last attempt was a
while ago. It is repeated until it succeeds: whoever reads for long keeps the log of SQLite from being cut.

How it is done is told in `shredding`. On PostgreSQL nothing is counted and nothing is done: VACUUM takes dead rows out
of tables and indexes, and what its log and its backups keep is for its administrator to decide.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

from holdfast.core.clock import micros
from holdfast.errors import StoreError
from holdfast.stores import erasing_statements as sql

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.core.clock import Moment
    from holdfast.stores.database import Database, Transaction

log = logging.getLogger("holdfast")

SPACING = timedelta(minutes=1)  # between two attempts, whoever makes them
PATIENCE = timedelta(minutes=5)  # how long a clean-up that goes on is waited for
COUNTED = frozenset({sql.ROWS, sql.DOCUMENTS})  # all other places are tables of words


class Pending(NamedTuple):
    """What was deleted and may still be on the disk."""

    documents: int  # deleted or changed; 0: only what was left over of some
    since: Moment | None  # when it was first seen; None: not yet
    held_since: Moment | None  # since when somebody who reads keeps it there


class _Place(NamedTuple):
    removed: int
    erased: int
    since: Moment | None
    tried_at: Moment | None
    held_since: Moment | None


class Erasing:
    """Erases what was deleted in one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def pending(self) -> Pending | None:
        """Tell what is not erased yet; None: whatever was deleted is gone."""
        with self._database.reading() as tx:
            places = _read(tx)
        if not _left(places):
            return None
        rows, documents = places[sql.ROWS], places[sql.DOCUMENTS]
        return Pending(documents.removed - documents.erased, rows.since, rows.held_since)

    def erase(self, *, at_once: bool = False) -> bool:
        """Erase what was deleted, if that is due; return whether nothing is left. A failure is tried again later."""
        if self.pending() is None:
            return True
        due = self._database.write(lambda tx: _due(tx, at_once=at_once), durable=False)
        if not due:
            return False
        try:
            gone = self._database.erase(sorted(due.keys() - COUNTED))
        except (OSError, StoreError):
            log.exception("erase.failed")
            return False
        self._database.write(lambda tx: _note(tx, due, gone=gone), durable=True)
        log.debug("erase.%s removals=%d", "done" if gone else "held", sum(due.values()))
        return gone and self.pending() is None


def note_removal(tx: Transaction, place: str) -> None:
    """Count a removal from a table of words, where SQLite cannot count by itself, in the transaction that removes."""
    tx.run(sql.NOTE_REMOVAL, place=place)


def _read(tx: Transaction) -> dict[str, _Place]:
    return {place: _Place(*row) for place, *row in tx.run(sql.READ_ERASURES)}


def _left(places: Mapping[str, _Place]) -> dict[str, int]:
    """Return where something is not erased, and up to which removal that is counted."""
    return {place: one.removed for place, one in places.items() if one.removed > one.erased}


def _due(tx: Transaction, *, at_once: bool) -> dict[str, int]:
    """Return what is to be erased now, if it is time; then nobody else tries for a while."""
    places = _read(tx)
    rows = places[sql.ROWS]
    ((now, cleaning),) = tx.run(sql.TIME_AND_CLEANING)
    since = now if rows.since is None else rows.since
    tx.run(sql.SEE, since=since)
    early = cleaning and since <= now < since + micros(PATIENCE)
    again = rows.tried_at is not None and rows.tried_at <= now < rows.tried_at + micros(SPACING)
    if (early or again) and not at_once:
        return {}
    tx.run(sql.TRY)
    return _left(places)


def _note(tx: Transaction, due: Mapping[str, int], *, gone: bool) -> None:
    """Write down what came of it; what was removed meanwhile is still to be erased."""
    if gone:
        tx.run(sql.ERASED, [list(one) for one in due.items()])
        tx.run(sql.FREED)
    else:
        tx.run(sql.HELD)
