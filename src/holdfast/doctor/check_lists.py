"""Checks lists of chunks, and the rows in the same database that belong to chunks.

These rows change together in single transactions, so one snapshot is enough to judge them. The garbage collector
removes most leftovers anyway; the others are damage that no code of Holdfast causes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.catalog import mark_for_gc
from holdfast.doctor import statements as sql
from holdfast.doctor.report import Check, Issue, Place, read_windows
from holdfast.llm import remove_orphan_answers, remove_uses

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from holdfast.db import Database
    from holdfast.indexes import ChunkGarbageCollector

CHUNK_LISTS, PAID_ANSWERS = Place("lists of chunks"), Place("paid answers")


class ListChecks:
    """Checks builds, lists, chunks, missing chunks and paid answers."""

    def __init__(self, database: Database, garbage_collector: ChunkGarbageCollector) -> None:
        self._database = database
        self._garbage_collector = garbage_collector

    def checks(self) -> list[Check]:
        """Return the checks in order: a repair may leave work for the next check."""
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

    def _make_scan(self, statement: Any, where: Place, what: str, *after: str) -> Callable[[], Iterator[list[Issue]]]:
        """Return a scan with a statement whose last column is true for a wrong row."""

        def scan() -> Iterator[list[Issue]]:
            for rows in read_windows(self._database, statement, *after):
                yield [Issue(where, what.format(*row[:-1]), row[:-1]) for row in rows if row[-1]]

        return scan

    def _make_removal(self, statement: Any) -> Callable[[Sequence[Issue]], int]:
        """Return a repair with a statement that checks the condition again in its own transaction."""

        def repair(issues: Sequence[Issue]) -> int:
            rows = [issue.key for issue in issues]
            return self._database.write(lambda tx: len(tx.run(statement, rows)), durable=False)

        return repair

    def _sweep_all(self) -> None:
        while self._garbage_collector.collect():
            pass

    def _sweep_builds(self, issues: Sequence[Issue]) -> int:
        """Mark the owners for the garbage collector, which may have recorded that nothing is left to do, and run it."""
        owners = {issue.key[0] for issue in issues}
        self._database.write(lambda tx: mark_for_gc(tx, owners), durable=False)
        self._sweep_all()
        return len(issues)

    def _sweep_chunks(self, issues: Sequence[Issue]) -> int:
        self._garbage_collector.doom_unlisted([issue.key for issue in issues])
        self._sweep_all()
        return len(issues)

    def _end_uses(self, issues: Sequence[Issue]) -> int:
        chunks = sorted({chunk for _, chunk in (issue.key for issue in issues)})
        self._database.write(lambda tx: remove_uses(tx, chunks), durable=False)  # chunk ids are never reused
        return len(issues)

    def _remove_memos(self, issues: Sequence[Issue]) -> int:
        memos = [memo for (memo,) in (issue.key for issue in issues)]
        self._database.write(lambda tx: remove_orphan_answers(tx, memos), durable=False)
        return len(issues)
