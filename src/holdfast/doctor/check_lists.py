"""Checks the lists of chunks, and all that belongs to chunks in the same database.

All of it moves together in single transactions, so what one snapshot shows is so. The sweep removes most of it anyway;
the rest is damage that nothing of ours makes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.catalog import unsettle
from holdfast.doctor import statements as sql
from holdfast.doctor.report import Check, Portion, Trouble, windows
from holdfast.llm import forget_uses, remove_without_use

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from holdfast.db import Database
    from holdfast.indexes import Sweeper

LISTS, MEMOS = "lists of chunks", "paid answers"


class ListChecks:
    """Looks through builds, lists, chunks, what is missing, and memos."""

    def __init__(self, database: Database, sweeper: Sweeper) -> None:
        self._database = database
        self._sweeper = sweeper

    def checks(self) -> list[Check]:
        """Return them in the order in which one makes work for the next."""
        return [
            Check("build_left", self._looking(sql.BUILDS, LISTS, "owner {} build {}", "owner", "build"), self._unlist),
            Check(
                "list_left",
                self._looking(sql.LISTS, LISTS, "owner {} chunk {} build {}", "owner", "chunk", "build"),
                self._removing(sql.REMOVE_STRAY),
            ),
            Check("chunk_left", self._looking(sql.CHUNKS, LISTS, "chunk {}", "chunk"), self._abandon),
            Check(
                "missing_left",
                self._looking(sql.MISSING, LISTS, "slot {} chunk {}", "slot", "chunk"),
                self._removing(sql.REMOVE_MISSING),
            ),
            Check("use_left", self._looking(sql.USES, MEMOS, "memo {} chunk {}", "memo", "chunk"), self._end_uses),
            Check("memo_left", self._looking(sql.MEMOS, MEMOS, "memo {}", "memo"), self._remove_memos),
        ]

    def _looking(self, statement: Any, where: str, what: str, *after: str) -> Callable[[], Iterator[Portion]]:
        """Return a look through all windows of a statement whose last column tells what is wrong."""

        def look() -> Iterator[Portion]:
            for rows in windows(self._database, statement, *after):
                wrong = [row[:-1] for row in rows if row[-1]]
                yield Portion(len(rows), [Trouble(where, what.format(*row), row) for row in wrong])

        return look

    def _removing(self, statement: Any) -> Callable[[Sequence[Trouble]], int]:
        """Return a removal that looks again in its own transaction."""

        def mend(troubles: Sequence[Trouble]) -> int:
            rows = [one.key for one in troubles]
            return self._database.write(lambda tx: len(tx.run(statement, rows)), durable=False)

        return mend

    def _sweep(self) -> None:
        while self._sweeper.sweep():
            pass

    def _unlist(self, troubles: Sequence[Trouble]) -> int:
        """Let the sweep see the lists, also where it had noted that nothing is left to do."""
        owners = {one.key[0] for one in troubles}
        self._database.write(lambda tx: unsettle(tx, owners), durable=False)
        self._sweep()
        return len(troubles)

    def _abandon(self, troubles: Sequence[Trouble]) -> int:
        self._sweeper.abandon([one.key for one in troubles])
        self._sweep()
        return len(troubles)

    def _end_uses(self, troubles: Sequence[Trouble]) -> int:
        chunks = sorted({chunk for _, chunk in (one.key for one in troubles)})
        self._database.write(lambda tx: forget_uses(tx, chunks), durable=False)  # their numbers are never used again
        return len(troubles)

    def _remove_memos(self, troubles: Sequence[Trouble]) -> int:
        memos = [memo for (memo,) in (one.key for one in troubles)]
        self._database.write(lambda tx: remove_without_use(tx, memos), durable=False)
        return len(troubles)
