"""Checks the lists of chunks, and all that belongs to chunks in the same database.

All of it moves together in single transactions, so what one snapshot shows is so. The sweep removes most of it anyway;
the rest is damage that nothing of ours makes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.catalog import mark_for_gc
from holdfast.doctor import statements as sql
from holdfast.doctor.report import Check, Issue, ScannedBatch, read_windows
from holdfast.llm import remove_orphan_answers, remove_uses

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from holdfast.db import Database
    from holdfast.indexes import ChunkGarbageCollector

CHUNK_LISTS, PAID_ANSWERS = "lists of chunks", "paid answers"


class ListChecks:
    """Looks through builds, lists, chunks, what is missing, and memos."""

    def __init__(self, database: Database, sweeper: ChunkGarbageCollector) -> None:
        self._database = database
        self._sweeper = sweeper

    def checks(self) -> list[Check]:
        """Return them in the order in which one makes work for the next."""
        return [
            Check(
                "build_left",
                self._make_scan(sql.SCAN_BUILDS, CHUNK_LISTS, "owner {} build {}", "owner", "build"),
                self._sweep_builds,
            ),
            Check(
                "list_left",
                self._make_scan(sql.SCAN_LISTS, CHUNK_LISTS, "owner {} chunk {} build {}", "owner", "chunk", "build"),
                self._make_removal(sql.DELETE_STRAY_ENTRIES),
            ),
            Check("chunk_left", self._make_scan(sql.SCAN_CHUNKS, CHUNK_LISTS, "chunk {}", "chunk"), self._sweep_chunks),
            Check(
                "missing_left",
                self._make_scan(sql.SCAN_MISSING_CHUNKS, CHUNK_LISTS, "slot {} chunk {}", "slot", "chunk"),
                self._make_removal(sql.DELETE_MISSING_CHUNKS),
            ),
            Check(
                "use_left",
                self._make_scan(sql.SCAN_ANSWER_USES, PAID_ANSWERS, "memo {} chunk {}", "memo", "chunk"),
                self._end_uses,
            ),
            Check(
                "memo_left", self._make_scan(sql.SCAN_PAID_ANSWERS, PAID_ANSWERS, "memo {}", "memo"), self._remove_memos
            ),
        ]

    def _make_scan(self, statement: Any, where: str, what: str, *after: str) -> Callable[[], Iterator[ScannedBatch]]:
        """Return a look through all windows of a statement whose last column tells what is wrong."""

        def look() -> Iterator[ScannedBatch]:
            for rows in read_windows(self._database, statement, *after):
                wrong = [row[:-1] for row in rows if row[-1]]
                yield ScannedBatch(len(rows), [Issue(where, what.format(*row), row) for row in wrong])

        return look

    def _make_removal(self, statement: Any) -> Callable[[Sequence[Issue]], int]:
        """Return a removal that looks again in its own transaction."""

        def mend(troubles: Sequence[Issue]) -> int:
            rows = [one.key for one in troubles]
            return self._database.write(lambda tx: len(tx.run(statement, rows)), durable=False)

        return mend

    def _sweep_all(self) -> None:
        while self._sweeper.collect():
            pass

    def _sweep_builds(self, troubles: Sequence[Issue]) -> int:
        """Let the sweep see the lists, also where it had noted that nothing is left to do."""
        owners = {one.key[0] for one in troubles}
        self._database.write(lambda tx: mark_for_gc(tx, owners), durable=False)
        self._sweep_all()
        return len(troubles)

    def _sweep_chunks(self, troubles: Sequence[Issue]) -> int:
        self._sweeper.doom_unlisted([one.key for one in troubles])
        self._sweep_all()
        return len(troubles)

    def _end_uses(self, troubles: Sequence[Issue]) -> int:
        chunks = sorted({chunk for _, chunk in (one.key for one in troubles)})
        self._database.write(lambda tx: remove_uses(tx, chunks), durable=False)  # their numbers are never used again
        return len(troubles)

    def _remove_memos(self, troubles: Sequence[Issue]) -> int:
        memos = [memo for (memo,) in (one.key for one in troubles)]
        self._database.write(lambda tx: remove_orphan_answers(tx, memos), durable=False)
        return len(troubles)
