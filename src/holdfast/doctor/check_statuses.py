"""Checks the cached status rows that lists read: each visible item has one, and it matches its owners."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.doctor import statements as sql
from holdfast.doctor.report import Check, Issue, read_windows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from holdfast.db import Transaction
    from holdfast.doctor.report import Locator
    from holdfast.engine.store import SqlStore


class StatusChecks:
    """Compares items with their status rows. Within one snapshot they agree, even while workers run."""

    def __init__(self, store: SqlStore, locate: Locator) -> None:
        self._database = store.database
        self._locate = locate

    def checks(self) -> list[Check]:
        return [Check("standing_differs", self._find_wrong_statuses, self._rewrite_statuses)]

    def _find_wrong_statuses(self) -> Iterator[list[Issue]]:
        for statement in (sql.SCAN_STATUSES, sql.SCAN_ORPHAN_STATUSES):
            for rows in read_windows(self._database, statement, "item"):
                yield [self._make_issue(*row[:-1]) for row in rows if row[-1]]

    def _make_issue(self, item: int, base: int, name: str) -> Issue:
        return Issue(self._locate(str(base)), f"item {item} {name!r}", item)

    def _rewrite_statuses(self, issues: Sequence[Issue]) -> int:
        """Write the rows again, while holding the locks of their owners."""
        rows: list[list[Any]] = [[issue.key] for issue in issues]

        def work(tx: Transaction) -> int:
            tx.lock_owners([id_ for pair in tx.run(sql.SELECT_STATUS_OWNERS, rows) for id_ in pair if id_ is not None])
            tx.run(sql.DELETE_STATUSES, rows)
            tx.run(sql.INSERT_STATUSES, rows)
            return len(rows)

        return self._database.write(work, durable=True)
