"""Checks items: that what is deleted goes, that what has content is indexed, that files and rows name each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from holdfast.catalog import parse_item_id
from holdfast.doctor import statements as sql
from holdfast.doctor.report import Check, Issue, ScannedBatch, read_windows
from holdfast.documents import Action, DocumentRemover, RequestOptions, select_items_with_slots
from holdfast.engine import Operation, Request, Status
from holdfast.engine.store import LARGEST_BATCH, ConsistencyChecker
from holdfast.errors import BaseFailed, UnknownBase

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from holdfast.catalog import BlobStore, Catalog, OrphanBlobCollector
    from holdfast.db import Transaction
    from holdfast.documents import DocumentOperations
    from holdfast.engine.store import SqlStore

FILES = "files"
FILES_PER_BATCH = 20  # files that are read before somebody is told


class ItemFile(NamedTuple):
    """An item whose bytes are in a file."""

    id: int
    base: int
    name: str
    blob: str
    digest: str


class ItemChecks:
    """Looks through what is hidden, through owners whose items are gone, and through items that nobody asked for."""

    def __init__(
        self,
        store: SqlStore,
        catalogue: Catalog,
        requesting: DocumentOperations,
        blobs: BlobStore,
        named: Callable[[str], str],
    ) -> None:
        self._store = store
        self._catalogue = catalogue
        self._operations = requesting
        self._removal = DocumentRemover(store, blobs)
        self._consistency = ConsistencyChecker(store.database)
        self._base_label = named  # what people call a base

    def checks(self) -> list[Check]:
        """Return them."""
        return [
            Check("delete_unasked", self._find_unrequested_deletes, self._finish_deletes),
            Check("delete_unfinished", self._find_unfinished_deletes, self._finish_deletes),
            Check("slots_left", self._find_orphan_slots, self._delete_orphan_slots),
            Check("not_asked", self._find_unindexed, self._request_index),
        ]

    # ------------------------------------------------------------ deletes

    def _find_unrequested_deletes(self) -> Iterator[ScannedBatch]:
        """Look twice: whoever deletes very many asks for the clean-up of the last of them a moment later.

        Of a base that is being deleted the items are hidden first, and it is asked for all of them then.
        """
        found = self._removal.list_unrequested_owners()
        again = set(self._removal.list_unrequested_owners()) if found else set()
        open_ = {base.key for base in self._catalogue.bases()}
        left = [(base, owner) for base, owner in found if (base, owner) in again and base in open_]
        yield ScannedBatch(len(found), [Issue(self._base_label(base), f"item {owner}", owner) for base, owner in left])

    def _find_unfinished_deletes(self) -> Iterator[ScannedBatch]:
        found = self._removal.list_removable_items()
        yield ScannedBatch(len(found), [Issue("deleted items", f"item {item}", item) for item, _ in found])

    def _finish_deletes(self, troubles: Sequence[Issue]) -> int:
        while self._removal.continue_deletes():
            pass
        return len(troubles)

    def _find_orphan_slots(self) -> Iterator[ScannedBatch]:
        """Look for owners of items that are gone; an item and its first slots come in one transaction."""
        after = 0
        while True:
            with self._store.database.reading() as tx:
                rows = self._consistency.list_owners(tx, after, LARGEST_BATCH)
                bases = {str(id_) for id_, _ in tx.run(sql.SELECT_BASE_NAMES)}
                owners = {(row.base, row.owner): parse_item_id(row.owner) for row in rows if row.base in bases}
                known = tx.run(sql.SELECT_ITEM_BASES, [[id_] for id_ in owners.values() if id_ is not None])
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
            yield ScannedBatch(
                len(rows),
                [Issue(self._base_label(row.base), f"owner {row.owner}", (row.base, row.owner)) for row in left],
            )
            after = rows[-1].id

    def _delete_orphan_slots(self, troubles: Sequence[Issue]) -> int:
        requests = [
            Request(base=base, owner=owner, operation=Operation.DELETE, cause="doctor")
            for base, owner in (one.key for one in troubles)
        ]
        return sum(answer.accepted for answer in self._store.admit(requests))

    # ------------------------------------------------------------ what nobody asked for

    def _find_unindexed(self) -> Iterator[ScannedBatch]:
        """Look for documents without slots; a base that has failed, or does not index by itself, has them rightly."""
        at_once = {
            base.id: base for base in self._catalogue.bases() if base.settings.auto_index and base.problem is None
        }
        after = 0
        while True:
            with self._store.database.reading() as tx:
                rows = tx.run(sql.SCAN_ITEMS, item=after, limit=LARGEST_BATCH)
                items = {id_: base for id_, base, _, _, _, whole in rows if whole and base in at_once}
                owned = select_items_with_slots(tx, items)
            if not rows:
                return
            names = {row[0]: row[2] for row in rows}
            left = [
                Issue(self._base_label(str(base)), f"item {id_} {names[id_]!r}", (base, id_))
                for id_, base in items.items()
                if id_ not in owned
            ]
            yield ScannedBatch(len(rows), left)
            after = rows[-1][0]

    def _request_index(self, troubles: Sequence[Issue]) -> int:
        """Ask for documents of one base; what was deleted meanwhile is left alone."""
        base = self._catalogue.base(troubles[0].key[0])
        if base is None:
            return 0
        with self._store.database.reading() as tx:
            live = tx.run(sql.SELECT_VISIBLE_ITEMS, [[one.key[1]] for one in troubles])
        try:
            replies = self._operations.request(
                base, [id_ for id_, _ in live], Action.INDEX, RequestOptions(cause="doctor")
            )
        except (BaseFailed, UnknownBase):  # nothing can be built there now
            return 0
        return sum(reply.accepted for reply in replies)


class FileChecks:
    """Looks through files and through the items that name them."""

    def __init__(
        self,
        store: SqlStore,
        blobs: BlobStore,
        leftovers: OrphanBlobCollector,
        named: Callable[[str], str],
        *,
        deep: bool,
    ) -> None:
        self._database = store.database
        self._blobs = blobs
        self._orphan_blobs = leftovers
        self._base_label = named
        self._deep = deep

    def checks(self) -> list[Check]:
        """Return them; whether files are what they were is looked at only in depth."""
        found = [
            Check("file_left", self._find_orphan_files, self._remove_orphan_files),
            Check("file_unfinished", self._find_unfinished_files, lambda _: self._orphan_blobs.remove_unfinished()),
            Check("file_stray", self._find_stray_files),
            Check("file_lacks", lambda: self._find_bad_items(self._is_missing)),
        ]
        return [*found, Check("file_damaged", lambda: self._find_bad_items(self._is_damaged))] if self._deep else found

    def _find_orphan_files(self) -> Iterator[ScannedBatch]:
        """Look for files that no row names and no upload is writing, and look again.

        An upload that replaces a file, or fails, removes it a moment after its transaction.
        """
        after = ""
        while True:
            before = after
            names, after = self._orphan_blobs.find_orphans(before, LARGEST_BATCH)
            again = set(self._orphan_blobs.find_orphans(before, LARGEST_BATCH)[0]) if names else set()
            left = [name for name in names if name in again and self._blobs.written_at(name) is not None]
            yield ScannedBatch(len(names), [Issue(FILES, name, name) for name in left])
            if not after:
                return

    def _remove_orphan_files(self, troubles: Sequence[Issue]) -> int:
        """Remove files without a row: those of uploads that were given up, then those without a record."""
        self._orphan_blobs.files.remove_due_files(LARGEST_BATCH)
        return len(self._orphan_blobs.remove([one.key for one in troubles]))

    def _find_unfinished_files(self) -> Iterator[ScannedBatch]:
        names = self._orphan_blobs.unfinished()
        yield ScannedBatch(len(names), [Issue(FILES, name, name) for name in names])

    def _find_stray_files(self) -> Iterator[ScannedBatch]:
        names = self._blobs.list_foreign_files()
        yield ScannedBatch(len(names), [Issue(FILES, name, name) for name in names])

    def _find_bad_items(self, wrong: Callable[[ItemFile], bool]) -> Iterator[ScannedBatch]:
        """Look for items with something wrong about their files, if they still name them afterwards."""
        for rows in read_windows(self._database, sql.SCAN_ITEMS, "item"):
            items = [ItemFile(*row[:-1]) for row in rows if row[-1]]
            for first in range(0, len(items), FILES_PER_BATCH):
                some = items[first : first + FILES_PER_BATCH]
                yield ScannedBatch(len(some), self._keep_unchanged([item for item in some if wrong(item)]))

    def _keep_unchanged(self, found: Sequence[ItemFile]) -> list[Issue]:
        with self._database.reading() as tx:
            still = {id_ for (id_,) in tx.run(sql.SELECT_UNCHANGED_FILES, [[item.id, item.blob] for item in found])}
        return [
            Issue(self._base_label(str(item.base)), f"item {item.id} {item.name!r}", item.id)
            for item in found
            if item.id in still
        ]

    def _is_missing(self, item: ItemFile) -> bool:
        return self._blobs.written_at(item.blob) is None

    def _is_damaged(self, item: ItemFile) -> bool:
        """Tell whether a file that is there cannot be read, or not as it was written."""
        try:
            return self._blobs.digest(item.blob) not in (None, item.digest)
        except OSError:
            return True


def visible_owners(tx: Transaction, owners: Sequence[tuple[str, str]]) -> set[tuple[str, str]]:
    """Return those of the owners, by base and name, that are documents and not deleted."""
    ids = [[id_] for _, owner in owners if (id_ := parse_item_id(owner)) is not None]
    return {(str(base), str(item)) for item, base in tx.run(sql.SELECT_VISIBLE_ITEMS, ids)}
