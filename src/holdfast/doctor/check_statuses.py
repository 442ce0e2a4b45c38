"""Checks what lists are read from: that every item that is not deleted is listed, once, and as its owners stand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.doctor import statements as sql
from holdfast.doctor.report import Check, Issue, ScannedBatch, read_windows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from holdfast.db import Transaction
    from holdfast.engine.store import SqlStore


class StatusChecks:
    """Looks through items and through their standings; within one snapshot they agree, whoever works."""

    def __init__(self, store: SqlStore, named: Callable[[str], str]) -> None:
        self._database = store.database
        self._base_label = named  # what people call a base

    def checks(self) -> list[Check]:
        """Return them."""
        return [Check("standing_differs", self._find_wrong_statuses, self._rewrite_statuses)]

    def _find_wrong_statuses(self) -> Iterator[ScannedBatch]:
        for statement in (sql.SCAN_STATUSES, sql.SCAN_ORPHAN_STATUSES):
            for rows in read_windows(self._database, statement, "item"):
                yield ScannedBatch(len(rows), [self._make_issue(*row[:-1]) for row in rows if row[-1]])

    def _make_issue(self, item: int, base: int, name: str) -> Issue:
        return Issue(self._base_label(str(base)), f"item {item} {name!r}", item)

    def _rewrite_statuses(self, troubles: Sequence[Issue]) -> int:
        """Write them anew, under the locks of their owners."""
        rows: list[list[Any]] = [[one.key] for one in troubles]

        def work(tx: Transaction) -> int:
            tx.lock_owners([id_ for pair in tx.run(sql.SELECT_STATUS_OWNERS, rows) for id_ in pair if id_ is not None])
            tx.run(sql.DELETE_STATUSES, rows)
            tx.run(sql.INSERT_STATUSES, rows)
            return len(rows)

        return self._database.write(work, durable=True)
