"""Removes what no list names any more, in small batches: list, rows of indexes, memos, and the chunks last.

A chunk that leaves its last list is *doomed*, in the transaction that proves it. From then on no build lists it: the
same text would become a new chunk. So its rows can be removed in peace, also from a store outside the transaction.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Protocol

from holdfast.library import statements as sql
from holdfast.library.memos import forget_uses
from holdfast.stores.base import LARGEST_BATCH

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.core.slot import OwnerId
    from holdfast.stores.database import Database, Transaction


class Rows(Protocol):
    """What the sweeper asks of all indexes together."""

    def drop(self, base: str, chunks: Sequence[int]) -> None:
        """Remove the rows of these chunks, of every index and recipe of the base."""
        ...


class Sweeper:
    """Sweeps one database and the indexes over it."""

    def __init__(self, database: Database, rows: Rows) -> None:
        self._database = database
        self._rows = rows

    def sweep(self, limit: int = LARGEST_BATCH) -> int:
        """Remove a batch of what is not needed; return how much there was to do."""
        with self._database.reading() as tx:
            stale = tx.run(sql.STALE_BUILDS, limit=limit)
        for owner, build in stale:
            self._unlist(owner, build, only_if_stale=True)
        doomed = self._purge(limit)
        settled = self._database.write(lambda tx: tx.run(sql.SETTLE_BUILDS, limit=limit), durable=False)
        return len(stale) + doomed + len(settled)

    def clear(self, owner: OwnerId, go_on: Callable[[], None]) -> None:
        """Remove everything of an owner that is being deleted; `go_on` is called between batches and may raise."""
        with self._database.reading() as tx:
            found = [build for (build,) in tx.run(sql.READ_BUILDS, owner_id=owner)]
        for build in found:
            go_on()
            self._unlist(owner, build, only_if_stale=False)
        while self._purge(LARGEST_BATCH, owner):
            go_on()

    def _unlist(self, owner: OwnerId, build: int, *, only_if_stale: bool) -> None:
        """Remove a list; what stands in no other list is doomed."""

        def work(tx: Transaction) -> bool:
            tx.lock([owner])
            if only_if_stale and not tx.run(sql.STILL_STALE, [[owner, build]]):
                return False
            gone = tx.run(sql.UNLIST, owner_id=owner, build=build, limit=LARGEST_BATCH)
            tx.run(sql.DOOM, gone)
            if len(gone) < LARGEST_BATCH:
                tx.run(sql.REMOVE_BUILD, owner_id=owner, build=build)
                return False
            return True

        while self._database.write(work, durable=False):
            pass

    def _purge(self, limit: int, owner: OwnerId | None = None) -> int:
        """Remove doomed chunks with all that was made for them; return how many."""
        with self._database.reading() as tx:
            if owner is None:
                rows = tx.run(sql.DOOMED_CHUNKS, limit=limit)
            else:
                rows = tx.run(sql.DOOMED_OF, owner_id=owner, limit=limit)
        by_base: dict[str, list[int]] = defaultdict(list)
        for chunk, base in rows:
            by_base[base].append(chunk)
        for base, chunks in by_base.items():
            self._rows.drop(base, chunks)
            self._database.write(lambda tx, chunks=chunks: _remove(tx, chunks), durable=False)  # type: ignore[misc]
        return len(rows)


def _remove(tx: Transaction, chunks: Sequence[int]) -> None:
    forget_uses(tx, chunks)
    tx.run(sql.REMOVE_CHUNKS, [[chunk] for chunk in chunks])
