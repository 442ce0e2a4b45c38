"""Checks whether deleted data is removed from the disk, in both stages."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from holdfast.clock import micros
from holdfast.db import Obstacle, Stage
from holdfast.doctor.report import Check, Portion, Trouble

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from holdfast.catalog import Erasure, Pending
    from holdfast.engine.store import SqlStore

OVERDUE = {Stage.OVERWRITE: timedelta(hours=1), Stage.COMPACT: timedelta(days=1)}
DONE = {
    Stage.OVERWRITE: "Deleted rows, the words of deleted texts and the write-ahead log are overwritten.",
    Stage.COMPACT: "The database file has no copies of deleted rows.",
}
WAITING = {
    Stage.OVERWRITE: "Deleted rows are not overwritten yet. It happens within a few minutes after the clean-up.",
    Stage.COMPACT: (
        "The database file may have copies of deleted rows. It is compacted when no job has been active for 5 minutes."
    ),
}
OBSTACLES = {
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
        "The database is larger than HOLDFAST_COMPACT_LIMIT, so it is not compacted by itself, because nobody can "
        "write meanwhile. Choose a quiet time and run `holdfast doctor --erase`."
    ),
    Obstacle.FAILED: "The last attempt failed with an error, which is in the log. Correct its cause.",
}


def explain(stage: Stage, pending: Pending | None) -> str:
    """Return a sentence about what a stage has done, or why it has not."""
    if pending is None:
        return DONE[stage]
    return WAITING[stage] if pending.obstacle is None else OBSTACLES[pending.obstacle]


class ErasureChecks:
    """Reports stages that are not complete for long."""

    def __init__(self, store: SqlStore, erasure: Erasure) -> None:
        self._store = store
        self._erasure = erasure

    def checks(self) -> list[Check]:
        """Return one check for each stage; only a person decides to compact at once, because writers wait."""
        return [
            Check("not_overwritten", self._overdue(Stage.OVERWRITE), self._overwrite),
            Check("not_compacted", self._overdue(Stage.COMPACT)),
        ]

    def _overdue(self, stage: Stage) -> Callable[[], Iterator[Portion]]:
        def look() -> Iterator[Portion]:
            state = self._erasure.state()
            pending = state.overwrite if stage is Stage.OVERWRITE else state.compact
            now = self._store.overview().now
            if pending is None or pending.since is None or now < pending.since + micros(OVERDUE[stage]):
                yield Portion(0)
                return
            count = max(1, pending.documents)
            yield Portion(count, [Trouble("the disk", explain(stage, pending), None)] * count)

        return look

    def _overwrite(self, troubles: Sequence[Trouble]) -> int:
        return len(troubles) if self._erasure.overwrite() else 0
