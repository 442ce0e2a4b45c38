"""Removes chunks that are in no list, in small batches: list, index rows, paid answers, then the chunks.

The transaction that removes a chunk from its last list marks it as *doomed*. No later build lists a doomed chunk: the
same text becomes a new chunk. Its rows can therefore be removed at any time, also from an external store. A late worker
may still write a row there; `remove_orphan_rows` finds it by scanning the store.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, Protocol

from holdfast.engine.store import LARGEST_BATCH
from holdfast.indexes import gc_statements as sql
from holdfast.llm import remove_uses

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from holdfast.catalog import Recipe
    from holdfast.db import Database, Transaction
    from holdfast.engine import OwnerId
    from holdfast.indexes.base import Index


class IndexRows(Protocol):
    """The rows of all indexes together."""

    def drop(self, base: str, chunks: Sequence[int]) -> None:
        """Remove the rows of these chunks, of every index and recipe of the base."""
        ...


class ChunkGarbageCollector:
    """Collects garbage in one database and its indexes."""

    def __init__(self, database: Database, rows: IndexRows) -> None:
        self._database = database
        self._rows = rows

    def collect(self, limit: int = LARGEST_BATCH) -> int:
        """Remove one batch; return how many lists and chunks were processed, 0 if nothing was left."""
        with self._database.reading() as tx:
            stale = tx.run(sql.SELECT_STALE_BUILDS, limit=limit)
        for owner, build in stale:
            self._remove_stale_list(owner, build)
        return len(stale) + self._remove_doomed(limit) + self._mark_settled(limit)

    def remove_orphan_rows(
        self, index: Index, recipe: Recipe, after: int = 0, limit: int = LARGEST_BATCH
    ) -> int | None:
        """Remove rows without a chunk from one portion of an index; return where to continue, None at the end.

        This is safe while others write: a chunk exists before its first row, and chunk ids are never reused. If the
        chunk is missing after its row was read, the row is an orphan.
        """
        found = index.scan(recipe, after, limit)
        if not found:
            return None
        with self._database.reading() as tx:
            leftovers = find_nonexistent_chunks(tx, found)
        if leftovers:
            index.drop(recipe, leftovers)
        return found[-1]

    def remove_owners(self, owners: Sequence[OwnerId], go_on: Callable[[], None]) -> Counter[OwnerId]:
        """Remove all data of owners that are being deleted, and return the number of chunks of each.

        `go_on` is called between batches and may raise.
        The chunks need not be doomed first: the store rejects builds of a deleted owner, so nothing lists them again.
        """
        for group in self._shorten_lists(owners, go_on):
            go_on()
            self._database.write(lambda tx, group=group: _delete_lists(tx, group), durable=False)  # type: ignore[misc]
        with self._database.reading() as tx:
            by_base = read_owner_chunks(tx, owners)
        for base, own in by_base.items():
            for first in range(0, len(own), LARGEST_BATCH):
                go_on()
                portion = own[first : first + LARGEST_BATCH]
                self._rows.drop(base, [chunk for chunk, _ in portion])
                self._database.write(lambda tx, owned=portion: _delete_chunks(tx, owned, own=True), durable=False)  # type: ignore[misc]
        return count_by_owner(by_base)

    def _shorten_lists(self, owners: Sequence[OwnerId], go_on: Callable[[], None]) -> Iterator[list[OwnerId]]:
        """Shorten long lists; yield the owners in groups whose lists fit into one transaction."""
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

    def doom_unlisted(self, chunks: Sequence[tuple[int, OwnerId]]) -> None:
        """Doom chunks that are in no list, and remove those without an owner, which no collection finds.

        Index rows of the latter stay: only the owner says in which base they are. `remove_orphan_rows` finds them.
        """

        def work(tx: Transaction) -> None:
            tx.lock_owners({owner for _, owner in chunks})
            tx.run(sql.DOOM_UNLISTED_CHUNKS, [[chunk] for chunk, _ in chunks])
            orphans = {chunk for (chunk,) in tx.run(sql.SELECT_ORPHAN_CHUNKS, [[chunk] for chunk, _ in chunks])}
            _delete_chunks(tx, [owned for owned in chunks if owned[0] in orphans])

        self._database.write(work, durable=False)

    def _remove_stale_list(self, owner: OwnerId, build: int) -> None:
        """Remove a list if it is still stale, and doom its chunks that are in no other list."""

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
        """Mark owners with nothing left to collect until their next build; return how many."""
        with self._database.reading() as tx:
            found = tx.run(sql.SELECT_SETTLED_BUILDS, limit=limit)

        def work(tx: Transaction) -> int:
            tx.lock_owners({owner for owner, _ in found})  # a new build unsettles, and must wait
            return len(tx.run(sql.SETTLE_BUILDS, found))

        return self._database.write(work, durable=False) if found else 0

    def _remove_doomed(self, limit: int) -> int:
        """Remove doomed chunks with their rows; return how many."""
        with self._database.reading() as tx:
            rows = tx.run(sql.SELECT_DOOMED_CHUNKS, limit=limit)
        for base, doomed in _group_by_base(rows).items():
            self._rows.drop(base, [chunk for chunk, _ in doomed])
            self._database.write(lambda tx, doomed=doomed: _delete_chunks(tx, doomed), durable=False)  # type: ignore[misc]
        return len(rows)


def read_owner_chunks(tx: Transaction, owners: Sequence[OwnerId]) -> dict[str, list[tuple[int, OwnerId]]]:
    """Return all chunks of some owners, doomed or not, with their owners, by base."""
    rows = [[owner] for owner in owners]
    return _group_by_base(row for statement in sql.SELECT_OWNER_CHUNKS for row in tx.run(statement, rows))


def count_by_owner(by_base: Mapping[str, Sequence[tuple[int, OwnerId]]]) -> Counter[OwnerId]:
    """Count chunks by owner."""
    return Counter(owner for owned in by_base.values() for _, owner in owned)


def _group_by_base(rows: Iterable[Sequence[Any]]) -> dict[str, list[tuple[int, OwnerId]]]:
    by_base: dict[str, list[tuple[int, OwnerId]]] = defaultdict(list)
    for chunk, owner, base in rows:
        by_base[base].append((chunk, owner))
    return by_base


def _delete_lists(tx: Transaction, owners: Sequence[OwnerId]) -> None:
    """Remove all lists of owners that are being deleted."""
    tx.lock_owners(owners)
    rows = [[owner] for owner in owners]
    tx.run(sql.DELETE_ALL_LISTED, rows)
    tx.run(sql.REMOVE_BUILDS, rows)


def _delete_chunks(tx: Transaction, owned: Sequence[tuple[int, OwnerId]], *, own: bool = False) -> None:
    """Remove chunks and their uses of paid answers; `own` is for chunks of deleted owners, which need not be doomed.

    The owners are locked, so a transaction that adds a use waits, and then does not find the chunk.
    """
    tx.lock_owners({owner for _, owner in owned})
    chunks = [chunk for chunk, _ in owned]
    remove_uses(tx, chunks)
    tx.run(sql.REMOVE_OWN_CHUNKS if own else sql.REMOVE_CHUNKS, [[chunk] for chunk in chunks])


def find_nonexistent_chunks(tx: Transaction, rows: Sequence[int]) -> list[int]:
    """Return the chunks among these that do not exist."""
    known = {chunk for (chunk,) in tx.run(sql.SELECT_EXISTING_CHUNKS, [[chunk] for chunk in rows])}
    return [chunk for chunk in rows if chunk not in known]
