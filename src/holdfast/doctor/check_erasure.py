"""Checks whether deleted data is removed from the disk, in both stages."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from holdfast.clock import micros
from holdfast.db import Obstacle, SecureDeleteStage
from holdfast.doctor.report import Check, Issue, Place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from holdfast.catalog import Eraser, PendingErasure
    from holdfast.engine.store import SqlStore

DISK = Place("the disk")
OVERDUE = {SecureDeleteStage.OVERWRITE: timedelta(hours=1), SecureDeleteStage.COMPACT: timedelta(days=1)}
COMPLETE_MESSAGES = {
    SecureDeleteStage.OVERWRITE: "Deleted rows, the words of deleted texts and the write-ahead log are overwritten.",
    SecureDeleteStage.COMPACT: "The database file has no copies of deleted rows.",
}
PENDING_MESSAGES = {
    SecureDeleteStage.OVERWRITE: (
        "Deleted rows are not overwritten yet. They are overwritten within a few minutes after the clean-up."
    ),
    SecureDeleteStage.COMPACT: (
        "The database file may have copies of deleted rows. It is compacted when no job has been active for 5 minutes."
    ),
}
OBSTACLE_MESSAGES = {
    Obstacle.READER: (
        "A program keeps a read transaction open, so the write-ahead log cannot be truncated. Wait until it has "
        "ended, or close that program."
    ),
    Obstacle.WRITER: "Another program keeps the database locked for writing. Wait until it has ended, or close it.",
    Obstacle.ERASER: "Another process is erasing at this moment. Try again when it has ended.",
    Obstacle.NO_SPACE: (
        "The disk has too little space: compacting needs the size of the database beside the database, and as much in "
        "the folder for temporary files. Free some space."
    ),
    Obstacle.TOO_LARGE: (
        "The database is larger than HOLDFAST_COMPACT_LIMIT, so it is not compacted automatically, because writers "
        "would wait too long. Run `holdfast doctor --erase` when the server is not busy."
    ),
    Obstacle.FAILED: "The last attempt failed with an error, which is in the log. Correct its cause.",
}


def explain_stage(stage: SecureDeleteStage, pending: PendingErasure | None) -> str:
    """Return a sentence about what a stage has done, or why it has not."""
    if pending is None:
        return COMPLETE_MESSAGES[stage]
    return PENDING_MESSAGES[stage] if pending.obstacle is None else OBSTACLE_MESSAGES[pending.obstacle]


class ErasureChecks:
    """Reports stages that have been incomplete for too long."""

    def __init__(self, store: SqlStore, erasure: Eraser) -> None:
        self._store = store
        self._erasure = erasure

    def checks(self) -> list[Check]:
        """Return one check per stage. Compacting has no repair: writers wait for it, so a person decides when."""
        return [
            Check("not_overwritten", self._make_overdue_scan(SecureDeleteStage.OVERWRITE), self._overwrite),
            Check("not_compacted", self._make_overdue_scan(SecureDeleteStage.COMPACT)),
        ]

    def _make_overdue_scan(self, stage: SecureDeleteStage) -> Callable[[], Iterator[list[Issue]]]:
        def scan() -> Iterator[list[Issue]]:
            state = self._erasure.read_state()
            pending = state.overwrite if stage is SecureDeleteStage.OVERWRITE else state.compact
            now = self._store.overview().now
            if pending is None or pending.since is None or now < pending.since + micros(OVERDUE[stage]):
                return
            yield [Issue(DISK, explain_stage(stage, pending), None)] * max(1, pending.documents)

        return scan

    def _overwrite(self, issues: Sequence[Issue]) -> int:
        return len(issues) if self._erasure.overwrite() else 0
