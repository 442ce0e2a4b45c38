"""Checks what lists are read from: that every item that is not deleted is listed, once, and as its owners stand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.doctor import statements as sql
from holdfast.doctor.report import Check, Portion, Trouble, windows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from holdfast.db import Transaction
    from holdfast.engine.store import SqlStore


class StandingChecks:
    """Looks through items and through their standings; within one snapshot they agree, whoever works."""

    def __init__(self, store: SqlStore, named: Callable[[str], str]) -> None:
        self._database = store.database
        self._named = named  # what people call a base

    def checks(self) -> list[Check]:
        """Return them."""
        return [Check("standing_differs", self._look, self._mend)]

    def _look(self) -> Iterator[Portion]:
        for statement in (sql.STANDINGS, sql.STANDINGS_LEFT):
            for rows in windows(self._database, statement, "item"):
                yield Portion(len(rows), [self._trouble(*row[:-1]) for row in rows if row[-1]])

    def _trouble(self, item: int, base: int, name: str) -> Trouble:
        return Trouble(self._named(str(base)), f"item {item} {name!r}", item)

    def _mend(self, troubles: Sequence[Trouble]) -> int:
        """Write them anew, under the locks of their owners."""
        rows: list[list[Any]] = [[one.key] for one in troubles]

        def work(tx: Transaction) -> int:
            tx.lock([id_ for pair in tx.run(sql.OWNERS_OF_STANDINGS, rows) for id_ in pair if id_ is not None])
            tx.run(sql.REMOVE_STANDINGS, rows)
            tx.run(sql.MAKE_STANDINGS, rows)
            return len(rows)

        return self._database.write(work, durable=True)
