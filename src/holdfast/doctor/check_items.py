"""Checks items: deleted items are cleaned up, items with content are indexed, files and rows match."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from holdfast.catalog import parse_item_id
from holdfast.doctor import statements as sql
from holdfast.doctor.report import Check, Issue, Place, read_windows
from holdfast.documents import Action, DocumentRemover, RequestOptions, select_items_with_slots
from holdfast.engine import Operation, Request, Status
from holdfast.engine.store import LARGEST_BATCH, ConsistencyChecker
from holdfast.errors import BaseFailed, UnknownBase

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from holdfast.blobs import BlobStore
    from holdfast.catalog import Catalog, OrphanBlobCollector
    from holdfast.db import Transaction
    from holdfast.doctor.report import Locator
    from holdfast.documents import DocumentOperations
    from holdfast.engine.store import SqlStore

FILES = Place("files")
DELETED_ITEMS = Place("deleted items")
FILES_PER_BATCH = 20  # files that are read per batch


class ItemFile(NamedTuple):
    id: int
    base: int
    name: str
    blob: str
    digest: str


class ItemChecks:
    """Checks deleted items, owners without items, and items that were never indexed."""

    def __init__(
        self,
        store: SqlStore,
        catalogue: Catalog,
        operations: DocumentOperations,
        blobs: BlobStore,
        locate: Locator,
    ) -> None:
        self._store = store
        self._catalogue = catalogue
        self._operations = operations
        self._removal = DocumentRemover(store, blobs)
        self._consistency = ConsistencyChecker(store.database)
        self._locate = locate

    def checks(self) -> list[Check]:
        return [
            Check("delete_unasked", self._find_unrequested_deletes, self._finish_deletes, removes_files=True),
            Check("delete_unfinished", self._find_unfinished_deletes, self._finish_deletes, removes_files=True),
            Check("slots_left", self._find_orphan_slots, self._delete_orphan_slots),
            Check("not_asked", self._find_unindexed, self._request_index),
        ]

    def _find_unrequested_deletes(self) -> Iterator[list[Issue]]:
        """Read twice: a delete of very many items requests the clean-up of the last ones a moment later.

        A base that is being deleted is skipped: it hides its items first, and then requests the clean-up for all.
        """
        found = self._removal.list_unrequested_owners()
        again = set(self._removal.list_unrequested_owners()) if found else set()
        open_ = {base.key for base in self._catalogue.bases()}
        left = [(base, owner) for base, owner in found if (base, owner) in again and base in open_]
        yield [Issue(self._locate(base), f"item {owner}", owner) for base, owner in left]

    def _find_unfinished_deletes(self) -> Iterator[list[Issue]]:
        yield [Issue(DELETED_ITEMS, f"item {item}", item) for item, _ in self._removal.list_removable_items()]

    def _finish_deletes(self, issues: Sequence[Issue]) -> int:
        while self._removal.continue_deletes():
            pass
        return len(issues)

    def _find_orphan_slots(self) -> Iterator[list[Issue]]:
        """Find owners whose item is gone. An item and its first slots are written in one transaction."""
        after = 0
        while True:
            with self._store.database.reading() as tx:
                rows = self._consistency.list_owners(tx, after, LARGEST_BATCH)
                bases = {str(id_) for id_, _ in tx.run(sql.SELECT_BASE_NAMES)}
                owners = {(row.base, row.owner): parse_item_id(row.owner) for row in rows if row.base in bases}
                known = tx.run(sql.SELECT_ITEM_BASES, [[id_] for id_ in owners.values() if id_ is not None])
            if not rows:
                return
            existing = {(str(base), item) for item, base in known}
            yield [
                Issue(self._locate(row.base), f"owner {row.owner}", (row.base, row.owner))
                for row in rows
                if row.status != Status.DELETING
                and (id_ := owners.get((row.base, row.owner))) is not None
                and (row.base, id_) not in existing
            ]
            after = rows[-1].id

    def _delete_orphan_slots(self, issues: Sequence[Issue]) -> int:
        requests = [
            Request(base=base, owner=owner, operation=Operation.DELETE, cause="doctor")
            for base, owner in (issue.key for issue in issues)
        ]
        return sum(answer.accepted for answer in self._store.admit(requests))

    def _find_unindexed(self) -> Iterator[list[Issue]]:
        """Find documents without slots, except in bases that have failed or have `auto_index` off."""
        indexing = {base.id for base in self._catalogue.bases() if base.settings.auto_index and base.problem is None}
        after = 0
        while True:
            with self._store.database.reading() as tx:
                rows = tx.run(sql.SCAN_ITEMS, item=after, limit=LARGEST_BATCH)
                items = {id_: base for id_, base, _, _, _, whole in rows if whole and base in indexing}
                owned = select_items_with_slots(tx, items)
            if not rows:
                return
            names = {row[0]: row[2] for row in rows}
            yield [
                Issue(self._locate(str(base)), f"item {id_} {names[id_]!r}", (base, id_))
                for id_, base in items.items()
                if id_ not in owned
            ]
            after = rows[-1][0]

    def _request_index(self, issues: Sequence[Issue]) -> int:
        """Request the index of documents of one base, except those that were deleted in the meantime."""
        base = self._catalogue.base(issues[0].key[0])
        if base is None:
            return 0
        with self._store.database.reading() as tx:
            live = tx.run(sql.SELECT_VISIBLE_ITEMS, [[issue.key[1]] for issue in issues])
        try:
            replies = self._operations.request(
                base, [id_ for id_, _ in live], Action.INDEX, RequestOptions(cause="doctor")
            )
        except (BaseFailed, UnknownBase):  # nothing can be built there now
            return 0
        return sum(reply.accepted for reply in replies)


class FileChecks:
    """Checks files against the items that name them."""

    def __init__(
        self,
        store: SqlStore,
        blobs: BlobStore,
        orphan_blobs: OrphanBlobCollector,
        locate: Locator,
        *,
        deep: bool,
    ) -> None:
        self._database = store.database
        self._blobs = blobs
        self._orphan_blobs = orphan_blobs
        self._locate = locate
        self._deep = deep

    def checks(self) -> list[Check]:
        checks = [
            Check("file_left", self._find_orphan_files, self._remove_orphan_files),
            Check("file_unfinished", self._find_unfinished_files, lambda _: self._orphan_blobs.remove_unfinished()),
            Check("file_stray", self._find_stray_files),
            Check("file_lacks", lambda: self._find_bad_items(self._find_missing)),
        ]
        if self._deep:
            checks.append(Check("file_damaged", lambda: self._find_bad_items(self._find_damaged)))
        return [check._replace(reads_files=True) for check in checks]

    def _find_orphan_files(self) -> Iterator[list[Issue]]:
        """Find files that no row names and no process is writing or removing.

        Read twice: an upload that replaces a file, or fails, removes the file a moment after its transaction.
        """
        after = ""
        while True:
            before = after
            names, after = self._orphan_blobs.find_orphans(before, LARGEST_BATCH)
            again = set(self._orphan_blobs.find_orphans(before, LARGEST_BATCH)[0]) if names else set()
            yield [Issue(FILES, name, name) for name in names if name in again]
            if not after:
                return

    def _remove_orphan_files(self, issues: Sequence[Issue]) -> int:
        """Remove files without a row: first those of abandoned uploads, then those without a record."""
        self._orphan_blobs.files.remove_due_files(LARGEST_BATCH)
        return len(self._orphan_blobs.remove([issue.key for issue in issues]))

    def _find_unfinished_files(self) -> Iterator[list[Issue]]:
        yield [Issue(FILES, name, name) for name in self._orphan_blobs.unfinished()]

    def _find_stray_files(self) -> Iterator[list[Issue]]:
        yield [Issue(FILES, name, name) for name in self._blobs.list_foreign_files()]

    def _find_bad_items(self, find_bad: Callable[[Sequence[ItemFile]], Sequence[ItemFile]]) -> Iterator[list[Issue]]:
        """Find items whose file is bad, and that still name this file after it was checked."""
        for rows in read_windows(self._database, sql.SCAN_ITEMS, "item"):
            items = [ItemFile(*row[:-1]) for row in rows if row[-1]]
            for first in range(0, len(items), FILES_PER_BATCH):
                batch = items[first : first + FILES_PER_BATCH]
                yield self._keep_unchanged(find_bad(batch))

    def _keep_unchanged(self, items: Sequence[ItemFile]) -> list[Issue]:
        with self._database.reading() as tx:
            unchanged = {id_ for (id_,) in tx.run(sql.SELECT_UNCHANGED_FILES, [[item.id, item.blob] for item in items])}
        return [
            Issue(self._locate(str(item.base)), f"item {item.id} {item.name!r}", item.id)
            for item in items
            if item.id in unchanged
        ]

    def _find_missing(self, items: Sequence[ItemFile]) -> list[ItemFile]:
        missing = self._blobs.find_missing({item.blob for item in items})
        return [item for item in items if item.blob in missing]

    def _find_damaged(self, items: Sequence[ItemFile]) -> list[ItemFile]:
        return [item for item in items if self._is_damaged(item)]

    def _is_damaged(self, item: ItemFile) -> bool:
        """Return whether a file exists and cannot be read, or has another digest than the item."""
        try:
            return self._blobs.digest(item.blob) not in (None, item.digest)
        except OSError:
            return True


def visible_owners(tx: Transaction, owners: Sequence[tuple[str, str]]) -> set[tuple[str, str]]:
    """Return the given owners, as base and name, that are documents and not deleted."""
    ids = [[id_] for _, owner in owners if (id_ := parse_item_id(owner)) is not None]
    return {(str(base), str(item)) for item, base in tx.run(sql.SELECT_VISIBLE_ITEMS, ids)}
