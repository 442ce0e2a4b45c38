"""Removes what no list names any more, in small batches: list, rows of indexes, memos, and the chunks last.

A chunk that leaves its last list is *doomed*, in the transaction that proves it. From then on no build lists it: the
same text would become a new chunk. So its rows can be removed in peace, also from a store outside the transaction. A
worker that is late may still write a row there; `audit` finds it from the store's side.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Protocol, TypeVar

from holdfast.library import statements as sql
from holdfast.library.memos import forget_uses
from holdfast.stores.base import LARGEST_BATCH

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.core.slot import OwnerId
    from holdfast.stores.database import Database, Transaction

Recipe_contra = TypeVar("Recipe_contra", contravariant=True)


class Scanned(Protocol[Recipe_contra]):
    """What an audit asks of one index."""

    def scan(self, recipe: Recipe_contra, after: int, limit: int) -> list[int]:
        """Name the chunks that have a row, in ascending order, from behind `after` on."""
        ...

    def drop(self, recipe: Recipe_contra, chunks: Sequence[int]) -> None:
        """Remove the rows of these chunks."""
        ...


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
        return len(stale) + self._purge(limit) + self._settle(limit)

    def audit(
        self, index: Scanned[Recipe_contra], recipe: Recipe_contra, after: int = 0, limit: int = LARGEST_BATCH
    ) -> int | None:
        """Remove rows whose chunk does not exist, of one portion of an index; return where to go on, None at its end.

        A chunk is there before its first row is written and its number is never used again. So a row that is seen
        before its chunk is looked for in vain belongs to nothing, whoever writes meanwhile.
        """
        found = index.scan(recipe, after, limit)
        if not found:
            return None
        with self._database.reading() as tx:
            known = {chunk for (chunk,) in tx.run(sql.EXISTING_CHUNKS, [[chunk] for chunk in found])}
        leftovers = [chunk for chunk in found if chunk not in known]
        if leftovers:
            index.drop(recipe, leftovers)
        return found[-1]

    def clear(self, owner: OwnerId, go_on: Callable[[], None]) -> None:
        """Remove everything of an owner that is being deleted; `go_on` is called between batches and may raise."""
        with self._database.reading() as tx:
            found = [build for (build,) in tx.run(sql.READ_BUILDS, owner_id=owner)]
        for build in found:
            go_on()
            self._unlist(owner, build, only_if_stale=False)
        while self._purge(LARGEST_BATCH, owner):
            go_on()

    def abandon(self, chunks: Sequence[tuple[int, OwnerId]]) -> None:
        """Doom those of the chunks that no list names, and remove those whose owner is gone, which no sweep finds.

        Rows of the latter stay in the indexes: only the owner told in which. `audit` finds them.
        """

        def work(tx: Transaction) -> None:
            tx.lock({owner for _, owner in chunks})
            tx.run(sql.DOOM, [[chunk] for chunk, _ in chunks])
            orphans = {chunk for (chunk,) in tx.run(sql.ORPHANED_CHUNKS, [[chunk] for chunk, _ in chunks])}
            _remove(tx, [one for one in chunks if one[0] in orphans])

        self._database.write(work, durable=False)

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

    def _settle(self, limit: int) -> int:
        """Note of which owners nothing is left to sweep, until they get a new build; return how many."""
        with self._database.reading() as tx:
            found = tx.run(sql.SETTLED_BUILDS, limit=limit)

        def work(tx: Transaction) -> int:
            tx.lock({owner for owner, _ in found})  # a new build unsettles, and must not come between
            return len(tx.run(sql.SETTLE_BUILDS, found))

        return self._database.write(work, durable=False) if found else 0

    def _purge(self, limit: int, owner: OwnerId | None = None) -> int:
        """Remove doomed chunks with all that was made for them; return how many."""
        with self._database.reading() as tx:
            if owner is None:
                rows = tx.run(sql.DOOMED_CHUNKS, limit=limit)
            else:
                rows = tx.run(sql.DOOMED_OF, owner_id=owner, limit=limit)
        by_base: dict[str, list[tuple[int, OwnerId]]] = defaultdict(list)
        for chunk, owner_id, base in rows:
            by_base[base].append((chunk, owner_id))
        for base, doomed in by_base.items():
            self._rows.drop(base, [chunk for chunk, _ in doomed])
            self._database.write(lambda tx, doomed=doomed: _remove(tx, doomed), durable=False)  # type: ignore[misc]
        return len(rows)


def _remove(tx: Transaction, doomed: Sequence[tuple[int, OwnerId]]) -> None:
    """Remove chunks and the uses they make of memos; whoever would note another use waits, and finds them gone."""
    tx.lock({owner for _, owner in doomed})
    chunks = [chunk for chunk, _ in doomed]
    forget_uses(tx, chunks)
    tx.run(sql.REMOVE_CHUNKS, [[chunk] for chunk in chunks])
