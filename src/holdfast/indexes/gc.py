"""Removes what no list names any more, in small batches: list, rows of indexes, memos, and the chunks last.

A chunk that leaves its last list is *doomed*, in the transaction that proves it. From then on no build lists it: the
same text would become a new chunk. So its rows can be removed in peace, also from a store outside the transaction. A
worker that is late may still write a row there; `audit` finds it from the store's side.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Protocol, TypeVar

from holdfast.engine.store import LARGEST_BATCH
from holdfast.indexes import gc_statements as sql
from holdfast.llm import remove_uses

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from holdfast.db import Database, Transaction
    from holdfast.engine import OwnerId

Recipe_contra = TypeVar("Recipe_contra", contravariant=True)


class ScannableIndex(Protocol[Recipe_contra]):
    """What an audit asks of one index."""

    def scan(self, recipe: Recipe_contra, after: int, limit: int) -> list[int]:
        """Name the chunks that have a row, in ascending order, from behind `after` on."""
        ...

    def drop(self, recipe: Recipe_contra, chunks: Sequence[int]) -> None:
        """Remove the rows of these chunks."""
        ...


class IndexRows(Protocol):
    """What the sweeper asks of all indexes together."""

    def drop(self, base: str, chunks: Sequence[int]) -> None:
        """Remove the rows of these chunks, of every index and recipe of the base."""
        ...


class ChunkGarbageCollector:
    """Sweeps one database and the indexes over it."""

    def __init__(self, database: Database, rows: IndexRows) -> None:
        self._database = database
        self._rows = rows

    def collect(self, limit: int = LARGEST_BATCH) -> int:
        """Remove a batch of what is not needed; return how much there was to do."""
        with self._database.reading() as tx:
            stale = tx.run(sql.SELECT_STALE_BUILDS, limit=limit)
        for owner, build in stale:
            self._remove_stale_list(owner, build)
        return len(stale) + self._remove_doomed(limit) + self._mark_settled(limit)

    def remove_orphan_rows(
        self, index: ScannableIndex[Recipe_contra], recipe: Recipe_contra, after: int = 0, limit: int = LARGEST_BATCH
    ) -> int | None:
        """Remove rows whose chunk does not exist, of one portion of an index; return where to go on, None at its end.

        A chunk is there before its first row is written and its number is never used again. So a row that is seen
        before its chunk is looked for in vain belongs to nothing, whoever writes meanwhile.
        """
        found = index.scan(recipe, after, limit)
        if not found:
            return None
        with self._database.reading() as tx:
            leftovers = find_nonexistent_chunks(tx, found)
        if leftovers:
            index.drop(recipe, leftovers)
        return found[-1]

    def remove_owners(self, owners: Sequence[OwnerId], go_on: Callable[[], None]) -> None:
        """Remove everything of owners that are being deleted; `go_on` is called between batches and may raise.

        Their chunks need not be doomed first: no build of a deleted owner is accepted, so none is listed again.
        """
        for group in self._shorten_lists(owners, go_on):
            go_on()
            self._database.write(lambda tx, group=group: _delete_lists(tx, group), durable=False)  # type: ignore[misc]
        for base, own in self._read_chunks_by_base(owners).items():
            for first in range(0, len(own), LARGEST_BATCH):
                go_on()
                portion = own[first : first + LARGEST_BATCH]
                self._rows.drop(base, [chunk for chunk, _ in portion])
                self._database.write(lambda tx, some=portion: _delete_chunks(tx, some, own=True), durable=False)  # type: ignore[misc]

    def _shorten_lists(self, owners: Sequence[OwnerId], go_on: Callable[[], None]) -> Iterator[list[OwnerId]]:
        """Shorten long lists, and yield the owners in groups whose lists fit into one transaction together."""
        with self._database.reading() as tx:
            sizes = dict(tx.run(sql.COUNT_LISTED_CHUNKS, [[owner] for owner in owners]))

        def shorten(tx: Transaction) -> int:
            tx.lock_owners([owner])
            return len(tx.run(sql.DELETE_SOME_LISTED, owner_id=owner, limit=LARGEST_BATCH))

        group: list[OwnerId] = []
        listed = 0
        for owner in owners:
            size = sizes.get(owner, 0)
            while size > LARGEST_BATCH and (gone := self._database.write(shorten, durable=False)):
                size -= gone
                go_on()
            if group and listed + size > LARGEST_BATCH:
                yield group
                group, listed = [], 0
            group.append(owner)
            listed += size
        yield group

    def _read_chunks_by_base(self, owners: Sequence[OwnerId]) -> dict[str, list[tuple[int, OwnerId]]]:
        """Return all chunks of some owners, doomed or not, each with its owner, by base."""
        found: dict[str, list[tuple[int, OwnerId]]] = defaultdict(list)
        with self._database.reading() as tx:
            for chunk, owner, base in read_owner_chunks(tx, owners):
                found[base].append((chunk, owner))
        return found

    def doom_unlisted(self, chunks: Sequence[tuple[int, OwnerId]]) -> None:
        """Doom those of the chunks that no list names, and remove those whose owner is gone, which no sweep finds.

        Rows of the latter stay in the indexes: only the owner told in which. `audit` finds them.
        """

        def work(tx: Transaction) -> None:
            tx.lock_owners({owner for _, owner in chunks})
            tx.run(sql.DOOM_UNLISTED_CHUNKS, [[chunk] for chunk, _ in chunks])
            orphans = {chunk for (chunk,) in tx.run(sql.SELECT_ORPHAN_CHUNKS, [[chunk] for chunk, _ in chunks])}
            _delete_chunks(tx, [one for one in chunks if one[0] in orphans])

        self._database.write(work, durable=False)

    def _remove_stale_list(self, owner: OwnerId, build: int) -> None:
        """Remove a list if it is still stale; what stands in no other list is doomed."""

        def work(tx: Transaction) -> bool:
            tx.lock_owners([owner])
            if not tx.run(sql.SELECT_STILL_STALE, [[owner, build]]):
                return False
            gone = tx.run(sql.DELETE_SOME_OF_LIST, owner_id=owner, build=build, limit=LARGEST_BATCH)
            tx.run(sql.DOOM_UNLISTED_CHUNKS, gone)
            if len(gone) < LARGEST_BATCH:
                tx.run(sql.REMOVE_BUILD, owner_id=owner, build=build)
                return False
            return True

        while self._database.write(work, durable=False):
            pass

    def _mark_settled(self, limit: int) -> int:
        """Note of which owners nothing is left to sweep, until they get a new build; return how many."""
        with self._database.reading() as tx:
            found = tx.run(sql.SELECT_SETTLED_BUILDS, limit=limit)

        def work(tx: Transaction) -> int:
            tx.lock_owners({owner for owner, _ in found})  # a new build unsettles, and must not come between
            return len(tx.run(sql.SETTLE_BUILDS, found))

        return self._database.write(work, durable=False) if found else 0

    def _remove_doomed(self, limit: int) -> int:
        """Remove doomed chunks with all that was made for them; return how many."""
        with self._database.reading() as tx:
            rows = tx.run(sql.SELECT_DOOMED_CHUNKS, limit=limit)
        by_base: dict[str, list[tuple[int, OwnerId]]] = defaultdict(list)
        for chunk, owner_id, base in rows:
            by_base[base].append((chunk, owner_id))
        for base, doomed in by_base.items():
            self._rows.drop(base, [chunk for chunk, _ in doomed])
            self._database.write(lambda tx, doomed=doomed: _delete_chunks(tx, doomed), durable=False)  # type: ignore[misc]
        return len(rows)


def read_owner_chunks(tx: Transaction, owners: Sequence[OwnerId]) -> list[tuple[int, OwnerId, str]]:
    """Return the chunks of some owners, doomed or not: number, owner and base of each."""
    rows = [[owner] for owner in owners]
    return [
        (chunk, owner, base) for statement in sql.SELECT_OWNER_CHUNKS for chunk, owner, base in tx.run(statement, rows)
    ]


def _delete_lists(tx: Transaction, owners: Sequence[OwnerId]) -> None:
    """Remove all lists of owners that are being deleted, with what is known of their texts."""
    tx.lock_owners(owners)
    rows = [[owner] for owner in owners]
    tx.run(sql.DELETE_ALL_LISTED, rows)
    tx.run(sql.REMOVE_BUILDS, rows)


def _delete_chunks(tx: Transaction, some: Sequence[tuple[int, OwnerId]], *, own: bool = False) -> None:
    """Remove chunks, doomed ones or (`own`) those of deleted owners, and the uses they make of memos.

    The owners are locked: a transaction that would note another use waits, and then does not find the chunk.
    """
    tx.lock_owners({owner for _, owner in some})
    chunks = [chunk for chunk, _ in some]
    remove_uses(tx, chunks)
    tx.run(sql.REMOVE_OWN_CHUNKS if own else sql.REMOVE_CHUNKS, [[chunk] for chunk in chunks])


def find_nonexistent_chunks(tx: Transaction, rows: Sequence[int]) -> list[int]:
    """Return the chunks of index rows that do not exist."""
    known = {chunk for (chunk,) in tx.run(sql.SELECT_EXISTING_CHUNKS, [[chunk] for chunk in rows])}
    return [chunk for chunk in rows if chunk not in known]
