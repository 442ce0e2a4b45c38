"""Deletes items: hidden from every read at once, removed from the disk in the background, never given up.

One transaction hides items with everything below them, and requests their clean-up. The clean-up of very many items is
requested in several transactions. A crash between them leaves hidden items whose owners are not being deleted;
`continue_deletes` finds these, and rows whose owners are gone.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from holdfast.catalog import base_event, item_removed_event
from holdfast.documents import statements as sql
from holdfast.documents.requests import ItemReply
from holdfast.documents.selection import lock_open_base, require_unchanged, select_outermost
from holdfast.engine import Event, Operation, Request, Status, Verdict
from holdfast.engine.store import LARGEST_BATCH, find_existing_owners, record_events, require_held
from holdfast.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from holdfast.blobs import BlobStore
    from holdfast.catalog import Base, Item
    from holdfast.db import Transaction
    from holdfast.engine import AdmissionResult, JobId, Ticket
    from holdfast.engine.store import SqlStore

log = logging.getLogger("holdfast")

ITEMS_PER_REQUEST = LARGEST_BATCH // 2  # whose clean-up one transaction requests; an item has two owners at most


class DocumentRemover:
    """Deletes items in any state."""

    def __init__(self, store: SqlStore, blobs: BlobStore) -> None:
        self._store = store
        self._blobs = blobs

    def delete(
        self,
        base: Base,
        ids: Iterable[int],
        *,
        requester: str = "",
        ticket: Ticket | None = None,
        unless_changed: Collection[int] | None = None,
    ) -> list[ItemReply]:
        """Delete items with everything below them: they are hidden at once, and their names are free.

        Returns a reply for each root of the selection, in order. Deletes nothing if the work with `ticket` lost its
        slot, or if the generation of an item is not in `unless_changed`.
        """
        wanted = list(ids)
        if not wanted:
            return []

        def roots(tx: Transaction) -> list[Item]:
            if ticket is not None:
                require_held(tx, ticket)
            found = select_outermost(tx, base, wanted)
            for item in found:
                require_unchanged(tx, base, item, unless_changed)
            return found

        return self.delete_with(base, roots, requester=requester)

    def delete_with(
        self,
        base: Base,
        choose: Callable[[Transaction], Sequence[Item]],
        *,
        requester: str = "",
        record: Callable[[Transaction, Sequence[ItemReply], int], None] = lambda _tx, _replies, _hidden: None,
    ) -> list[ItemReply]:
        """Delete the items that `choose` returns, in the same transaction.

        In that transaction `record` receives the replies, and the number of items that it hid.
        """
        roots: list[Item] = []
        requests: list[Request] = []
        hidden: list[tuple[int]] = []
        replies: list[ItemReply] = []

        def hide(tx: Transaction) -> list[Request]:
            lock_open_base(tx, base, building=False)
            roots[:] = choose(tx)
            hidden[:] = tx.run(sql.HIDE_SUBTREES, [[item.id] for item in roots])
            record_events(tx, [Event("document.deleted", base.key, str(id_)) for (id_,) in hidden])
            owned = tx.run(sql.OWNERS_OF_DELETED, hidden[:ITEMS_PER_REQUEST])
            requests[:] = [build_delete_request(key, owner, requester) for _, key, owner, _ in owned]
            return requests

        def reply(tx: Transaction, answers: Sequence[AdmissionResult]) -> None:
            jobs = {request.owner: answer.job for request, answer in zip(requests, answers, strict=True)}
            replies[:] = [_reply(item, jobs.get(item.source_key) or jobs.get(item.key)) for item in roots]
            record(tx, replies, len(hidden))

        self._store.admit_with(hide, reply)
        while len(hidden) > ITEMS_PER_REQUEST and self._begin_clean_up(requester):
            pass
        return replies

    def clear(self, base: Base, others: Iterable[str] = (), *, requester: str = "") -> None:
        """Delete all items of a base, and the slots of `others` of its owners; the base stays.

        One statement hides all items. `continue_deletes` requests the clean-up of most of them.
        """

        def hide(tx: Transaction) -> list[Request]:
            now = lock_open_base(tx, base, building=False)
            tx.run(sql.HIDE_ALL, base_id=base.id)
            record_events(tx, [base_event("cleared", now)])
            return [
                build_delete_request(base.key, owner, requester) for owner in find_existing_owners(tx, base.key, others)
            ]

        self._store.admit_with(hide)
        self._begin_clean_up(requester)

    def continue_deletes(self, limit: int = LARGEST_BATCH) -> int:
        """Continue interrupted deletes, and remove items without slots; return how many owners and items."""
        return self._request_clean_up("", limit) + self._sweep(limit)

    def list_unrequested_owners(self, limit: int = LARGEST_BATCH) -> list[tuple[str, str]]:
        """Return base and owner of hidden items whose clean-up was not requested yet."""
        with self._store.database.reading() as tx:
            return [(base, owner) for base, owner in tx.run(sql.SELECT_UNREQUESTED_OWNERS, limit=limit)]

    def list_removable_items(self, limit: int = LARGEST_BATCH) -> list[tuple[int, str | None]]:
        """Return hidden items without slots and children, and their blobs."""
        with self._store.database.reading() as tx:
            return [(item, blob) for item, blob in tx.run(sql.SELECT_REMOVABLE_ITEMS, limit=limit)]

    def _begin_clean_up(self, requester: str) -> int:
        """Request a batch of clean-ups after the items are hidden; return how many.

        The delete is committed, so an error here must not reach the caller. `continue_deletes` repeats the request.
        """
        try:
            return self._request_clean_up(requester, LARGEST_BATCH)
        except StoreError as error:
            log.warning("delete.clean_up_postponed error=%s", error)
            return 0

    def _request_clean_up(self, requester: str, limit: int) -> int:
        """Request clean-ups that were not requested yet; return how many."""
        left = self.list_unrequested_owners(limit)
        self._store.admit([build_delete_request(key, owner, requester) for key, owner in left])
        return len(left)

    def _sweep(self, limit: int) -> int:
        """Remove hidden items without slots and children; their files first."""
        left = self.list_removable_items(limit)
        self._blobs.remove([blob for _, blob in left if blob is not None])

        def remove(tx: Transaction) -> None:
            gone = tx.run(sql.REMOVE_ITEMS, [[id_] for id_, _ in left])
            record_events(tx, [item_removed_event(base, id_) for base, id_ in gone])

        self._store.database.write(remove, durable=True)
        return len(left)


def _reply(item: Item, job: JobId | None) -> ItemReply:
    return ItemReply(
        verdict=Verdict.JOINED if item.deleting else Verdict.ACCEPTED,
        reason="already_deleting" if item.deleting else "delete",
        status=Status.DELETING,
        name=item.name,
        item=item.id,
        job=job,
    )


def build_delete_request(base: str, owner: str, requester: str) -> Request:
    return Request(base=base, owner=owner, operation=Operation.DELETE, requester=requester)
