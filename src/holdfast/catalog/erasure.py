"""Removes deleted data from the disk, in two stages, and records in the database how far each stage is.

SQLite counts removals by triggers, in the transactions that remove, so a crash loses none. A stage is complete when its
count has reached that of the removals; it is repeated until then. Each stage runs once for many deletes:

- *Overwrite* runs when the clean-up of deleted documents has come to rest.
- *Compact* follows in a quiet moment: nothing is queued, running or being cleaned up, and has not been for a while. It
  blocks writers, so it runs at most once an hour, and automatically only up to a size of the database.

`holdfast.db.secure_delete` has the two stages themselves. On PostgreSQL nothing is counted and nothing is done: VACUUM
removes dead rows from tables and indexes, and its administrator decides about WAL and backups.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

from holdfast.catalog import erasure_statements as sql
from holdfast.clock import micros
from holdfast.db import Obstacle, SecureDeleteStage
from holdfast.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from holdfast.clock import Moment
    from holdfast.db import Database, Transaction

log = logging.getLogger("holdfast")

OVERWRITE_SPACING = timedelta(minutes=1)  # between two attempts to overwrite, of all processes
CLEANUP_WAIT = timedelta(minutes=5)  # how long an overwrite waits for a clean-up that continues
QUIET = timedelta(minutes=5)  # without a job, before the file is compacted
COMPACT_SPACING = timedelta(hours=1)  # between two compactions
COMPACT_RETRY = timedelta(minutes=10)  # after an attempt that was prevented
NOT_FTS = frozenset({sql.ROWS, sql.DOCUMENTS})  # all other places are FTS5 tables


class PendingErasure(NamedTuple):
    """Deletes that a stage has not completed."""

    documents: int  # deleted or changed; 0: only rows of documents that are counted already
    since: Moment | None  # when the first was seen; None: not yet
    obstacle: Obstacle | None = None  # what prevented the last attempt
    blocked_since: Moment | None = None  # since when attempts are prevented


class ErasureState(NamedTuple):
    """What each stage still has to do; None if it is complete."""

    overwrite: PendingErasure | None
    compact: PendingErasure | None


class _Count(NamedTuple):
    removed: int
    overwritten: int
    compacted: int

    def done(self, stage: SecureDeleteStage) -> int:
        return self.overwritten if stage is SecureDeleteStage.OVERWRITE else self.compacted


class _Times(NamedTuple):
    since: Moment | None
    tried_at: Moment | None
    done_at: Moment | None
    obstacle: str | None
    blocked_since: Moment | None


class _Records(NamedTuple):
    counts: dict[str, _Count]
    stages: dict[str, _Times]

    def left(self, stage: SecureDeleteStage) -> dict[str, int]:
        """Return the places where a stage is not complete, and which count completes it."""
        return {place: one.removed for place, one in self.counts.items() if one.removed > one.done(stage)}


class _Activity(NamedTuple):
    now: Moment
    cleaning: int  # 1: deleted documents are being cleaned up
    working: int  # 1: a job is queued or running
    finished_at: Moment | None  # when the last job ended


class Eraser:
    """Erases deleted data of one database. Above `compact_limit` bytes it does not compact automatically."""

    def __init__(self, database: Database, *, compact_limit: int | None = None) -> None:
        self._database = database
        self._compact_limit = compact_limit

    def read_state(self) -> ErasureState:
        with self._database.reading() as tx:
            records = _read(tx)
        return ErasureState(
            _pending(records, SecureDeleteStage.OVERWRITE), _pending(records, SecureDeleteStage.COMPACT)
        )

    def run_due(self) -> None:
        """Run the stage that is due. Errors of the database are recorded, not raised; the stage runs again later."""
        state = self.read_state()
        if state.overwrite is not None:
            self._overwrite(at_once=False)
        elif state.compact is not None:
            self._compact(at_once=False)

    def run_now(self) -> ErasureState:
        """Run both stages now, regardless of the size of the database; return the new state."""
        if self.read_state().overwrite is None or self._overwrite(at_once=True):
            self._compact(at_once=True)
        return self.read_state()

    def overwrite(self) -> bool:
        """Run the first stage now; return whether it is complete."""
        return self._overwrite(at_once=True) and self.read_state().overwrite is None

    def _overwrite(self, *, at_once: bool) -> bool:
        return self._attempt(
            SecureDeleteStage.OVERWRITE,
            lambda due: self._database.overwrite(sorted(due.keys() - NOT_FTS)),
            at_once=at_once,
        )

    def _compact(self, *, at_once: bool) -> bool:
        """Compact. Data that was removed but not yet overwritten is left for the next time."""
        limit = None if at_once else self._compact_limit
        return self._attempt(SecureDeleteStage.COMPACT, lambda _: self._database.compact(limit), at_once=at_once)

    def _attempt(
        self, stage: SecureDeleteStage, erase: Callable[[Mapping[str, int]], Obstacle | None], *, at_once: bool
    ) -> bool:
        due = self._claim(stage, at_once=at_once)
        if due is None:
            return False
        try:
            obstacle = erase(due)
        except (OSError, StoreError):
            log.exception("erase.failed stage=%s", stage)
            obstacle = Obstacle.FAILED
        return self._record(stage, due, obstacle)

    def _claim(self, stage: SecureDeleteStage, *, at_once: bool) -> dict[str, int] | None:
        """Return the counts that this attempt completes, or None if it is not due; other processes then wait."""
        if not at_once:
            with self._database.reading() as tx:
                records, activity = _read(tx), _activity(tx)
            if records.stages[stage].since is not None and not _due(stage, records, activity):
                return None

        def work(tx: Transaction) -> dict[str, int] | None:
            if _read(tx).left(stage):
                tx.run(sql.MARK_STAGE_PENDING, stage=stage)
            records = _read(tx)
            if not at_once and not _due(stage, records, _activity(tx)):
                return None
            tx.run(sql.MARK_STAGE_TRIED, stage=stage)
            if stage is SecureDeleteStage.OVERWRITE:
                return records.left(stage)
            return {place: one.overwritten for place, one in records.counts.items()}

        return self._database.write(work, durable=False)

    def _record(self, stage: SecureDeleteStage, due: Mapping[str, int], obstacle: Obstacle | None) -> bool:
        """Record the result of an attempt; return whether it succeeded."""

        def work(tx: Transaction) -> None:
            if obstacle is not None:
                tx.run(sql.MARK_STAGE_BLOCKED, stage=stage, obstacle=obstacle)
                return
            counted = (
                sql.RAISE_OVERWRITTEN_COUNTS if stage is SecureDeleteStage.OVERWRITE else sql.RAISE_COMPACTED_COUNTS
            )
            tx.run(counted, [list(one) for one in due.items()])
            tx.run(sql.MARK_STAGE_COMPLETE, stage=stage, since=_activity(tx).now if _read(tx).left(stage) else None)

        self._database.write(work, durable=True)
        log.debug("erase.attempted stage=%s obstacle=%s removals=%d", stage, obstacle, sum(due.values()))
        return obstacle is None


def note_removal(tx: Transaction, place: str) -> None:
    """Count a removal from an FTS5 table, which has no triggers, in the transaction that removes."""
    tx.run(sql.NOTE_REMOVAL, place=place)


def _read(tx: Transaction) -> _Records:
    return _Records(
        {place: _Count(*row) for place, *row in tx.run(sql.READ_COUNTS)},
        {stage: _Times(*row) for stage, *row in tx.run(sql.READ_STAGES)},
    )


def _activity(tx: Transaction) -> _Activity:
    ((now, cleaning, working, finished_at),) = tx.run(sql.READ_ACTIVITY)
    return _Activity(now, cleaning, working, finished_at)


def _pending(records: _Records, stage: SecureDeleteStage) -> PendingErasure | None:
    left = records.left(stage)
    if not left:
        return None
    documents, times = records.counts[sql.DOCUMENTS], records.stages[stage]
    obstacle = None if times.obstacle is None else Obstacle(times.obstacle)
    return PendingErasure(documents.removed - documents.done(stage), times.since, obstacle, times.blocked_since)


def _due(stage: SecureDeleteStage, records: _Records, activity: _Activity) -> bool:
    times, now = records.stages[stage], activity.now
    if stage is SecureDeleteStage.OVERWRITE:
        early = activity.cleaning and _within(times.since, now, CLEANUP_WAIT)
        return not early and not _within(times.tried_at, now, OVERWRITE_SPACING)
    busy = activity.cleaning or activity.working or _within(activity.finished_at, now, QUIET)
    rested = not _within(times.done_at, now, COMPACT_SPACING) and not _within(times.tried_at, now, COMPACT_RETRY)
    return not busy and rested and not _within(times.since, now, QUIET)


def _within(moment: Moment | None, now: Moment, span: timedelta) -> bool:
    """Return whether a moment is less than `span` ago; False if the clock was set back behind it."""
    return moment is not None and moment <= now < moment + micros(span)
