"""Checks items: that what is deleted goes, that what has content is indexed, that files and rows name each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from holdfast.catalog import item_of_owner
from holdfast.doctor import statements as sql
from holdfast.doctor.report import Check, Portion, Trouble, windows
from holdfast.documents import Manner, Removing, with_slots
from holdfast.engine import Operation, Request, Status
from holdfast.engine.store import LARGEST_BATCH, Auditing
from holdfast.errors import BaseFailed, UnknownBase

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from holdfast.catalog import Blobs, Catalogue, Leftovers
    from holdfast.db import Transaction
    from holdfast.documents import Requesting
    from holdfast.engine.store import SqlStore

FILES = "files"
TOGETHER = 20  # files that are read before somebody is told


class Named(NamedTuple):
    """An item whose bytes are in a file."""

    id: int
    base: int
    name: str
    blob: str
    digest: str


class ItemChecks:
    """Looks through what is hidden, through owners whose items are gone, and through items that nobody asked for."""

    def __init__(
        self, store: SqlStore, catalogue: Catalogue, requesting: Requesting, blobs: Blobs, named: Callable[[str], str]
    ) -> None:
        self._store = store
        self._catalogue = catalogue
        self._requesting = requesting
        self._removing = Removing(store, blobs)
        self._auditing = Auditing(store.database)
        self._named = named  # what people call a base

    def checks(self) -> list[Check]:
        """Return them."""
        return [
            Check("delete_unasked", self._unasked, self._finish),
            Check("delete_unfinished", self._unfinished, self._finish),
            Check("slots_left", self._slots_left, self._delete),
            Check("not_asked", self._not_asked, self._index),
        ]

    # ------------------------------------------------------------ deletes

    def _unasked(self) -> Iterator[Portion]:
        """Look twice: whoever deletes very many asks for the clean-up of the last of them a moment later.

        Of a base that is being deleted the items are hidden first, and it is asked for all of them then.
        """
        found = self._removing.owners_left()
        again = set(self._removing.owners_left()) if found else set()
        open_ = {base.key for base in self._catalogue.bases()}
        left = [(base, owner) for base, owner in found if (base, owner) in again and base in open_]
        yield Portion(len(found), [Trouble(self._named(base), f"item {owner}", owner) for base, owner in left])

    def _unfinished(self) -> Iterator[Portion]:
        found = self._removing.items_left()
        yield Portion(len(found), [Trouble("deleted items", f"item {item}", item) for item, _ in found])

    def _finish(self, troubles: Sequence[Trouble]) -> int:
        while self._removing.finish():
            pass
        return len(troubles)

    def _slots_left(self) -> Iterator[Portion]:
        """Look for owners of items that are gone; an item and its first slots come in one transaction."""
        after = 0
        while True:
            with self._store.database.reading() as tx:
                rows = self._auditing.owners(tx, after, LARGEST_BATCH)
                bases = {str(id_) for id_, _ in tx.run(sql.BASE_NAMES)}
                owners = {(row.base, row.owner): item_of_owner(row.owner) for row in rows if row.base in bases}
                known = tx.run(sql.ITEM_BASES, [[id_] for id_ in owners.values() if id_ is not None])
            if not rows:
                return
            there = {(str(base), item) for item, base in known}
            left = [
                row
                for row in rows
                if row.status != Status.DELETING
                and (id_ := owners.get((row.base, row.owner))) is not None
                and (row.base, id_) not in there
            ]
            yield Portion(
                len(rows), [Trouble(self._named(row.base), f"owner {row.owner}", (row.base, row.owner)) for row in left]
            )
            after = rows[-1].id

    def _delete(self, troubles: Sequence[Trouble]) -> int:
        requests = [
            Request(base=base, owner=owner, operation=Operation.DELETE, cause="doctor")
            for base, owner in (one.key for one in troubles)
        ]
        return sum(answer.accepted for answer in self._store.admit(requests))

    # ------------------------------------------------------------ what nobody asked for

    def _not_asked(self) -> Iterator[Portion]:
        """Look for documents without slots; a base that has failed, or does not index by itself, has them rightly."""
        at_once = {
            base.id: base for base in self._catalogue.bases() if base.settings.auto_index and base.problem is None
        }
        after = 0
        while True:
            with self._store.database.reading() as tx:
                rows = tx.run(sql.ITEMS, item=after, limit=LARGEST_BATCH)
                items = {id_: base for id_, base, _, _, _, whole in rows if whole and base in at_once}
                owned = with_slots(tx, items)
            if not rows:
                return
            names = {row[0]: row[2] for row in rows}
            left = [
                Trouble(self._named(str(base)), f"item {id_} {names[id_]!r}", (base, id_))
                for id_, base in items.items()
                if id_ not in owned
            ]
            yield Portion(len(rows), left)
            after = rows[-1][0]

    def _index(self, troubles: Sequence[Trouble]) -> int:
        """Ask for documents of one base; what was deleted meanwhile is left alone."""
        base = self._catalogue.base(troubles[0].key[0])
        if base is None:
            return 0
        with self._store.database.reading() as tx:
            live = tx.run(sql.VISIBLE_ITEMS, [[one.key[1]] for one in troubles])
        try:
            replies = self._requesting.ask(base, [id_ for id_, _ in live], Operation.INDEX, Manner(cause="doctor"))
        except (BaseFailed, UnknownBase):  # nothing can be built there now
            return 0
        return sum(reply.accepted for reply in replies)


class FileChecks:
    """Looks through files and through the items that name them."""

    def __init__(
        self, store: SqlStore, blobs: Blobs, leftovers: Leftovers, named: Callable[[str], str], *, deep: bool
    ) -> None:
        self._database = store.database
        self._blobs = blobs
        self._leftovers = leftovers
        self._named = named
        self._deep = deep

    def checks(self) -> list[Check]:
        """Return them; whether files are what they were is looked at only in depth."""
        found = [
            Check("file_left", self._left, self._remove),
            Check("file_unfinished", self._given_up, lambda _: self._leftovers.remove_unfinished()),
            Check("file_stray", self._strays),
            Check("file_lacks", lambda: self._items(self._gone)),
        ]
        return [*found, Check("file_damaged", lambda: self._items(self._damaged))] if self._deep else found

    def _left(self) -> Iterator[Portion]:
        """Look for files that no row names and no upload is writing, and look again.

        An upload that replaces a file, or fails, removes it a moment after its transaction.
        """
        after = ""
        while True:
            before = after
            names, after = self._leftovers.look(before, LARGEST_BATCH)
            again = set(self._leftovers.look(before, LARGEST_BATCH)[0]) if names else set()
            left = [name for name in names if name in again and self._blobs.written_at(name) is not None]
            yield Portion(len(names), [Trouble(FILES, name, name) for name in left])
            if not after:
                return

    def _remove(self, troubles: Sequence[Trouble]) -> int:
        """Remove files without a row: those of uploads that were given up, then those without a record."""
        self._leftovers.settle(LARGEST_BATCH)
        return len(self._leftovers.remove([one.key for one in troubles]))

    def _given_up(self) -> Iterator[Portion]:
        names = self._leftovers.unfinished()
        yield Portion(len(names), [Trouble(FILES, name, name) for name in names])

    def _strays(self) -> Iterator[Portion]:
        names = self._blobs.strays()
        yield Portion(len(names), [Trouble(FILES, name, name) for name in names])

    def _items(self, wrong: Callable[[Named], bool]) -> Iterator[Portion]:
        """Look for items with something wrong about their files, if they still name them afterwards."""
        for rows in windows(self._database, sql.ITEMS, "item"):
            items = [Named(*row[:-1]) for row in rows if row[-1]]
            for first in range(0, len(items), TOGETHER):
                some = items[first : first + TOGETHER]
                yield Portion(len(some), self._still_named([item for item in some if wrong(item)]))

    def _still_named(self, found: Sequence[Named]) -> list[Trouble]:
        with self._database.reading() as tx:
            still = {id_ for (id_,) in tx.run(sql.STILL_NAMED, [[item.id, item.blob] for item in found])}
        return [
            Trouble(self._named(str(item.base)), f"item {item.id} {item.name!r}", item.id)
            for item in found
            if item.id in still
        ]

    def _gone(self, item: Named) -> bool:
        return self._blobs.written_at(item.blob) is None

    def _damaged(self, item: Named) -> bool:
        """Tell whether a file that is there cannot be read, or not as it was written."""
        try:
            return self._blobs.digest(item.blob) not in (None, item.digest)
        except OSError:
            return True


def visible(tx: Transaction, owners: Sequence[tuple[str, str]]) -> set[tuple[str, str]]:
    """Return those of the owners, by base and name, that are documents and not deleted."""
    ids = [[id_] for _, owner in owners if (id_ := item_of_owner(owner)) is not None]
    return {(str(base), str(item)) for item, base in tx.run(sql.VISIBLE_ITEMS, ids)}
