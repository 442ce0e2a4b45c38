"""Resolves a selection of items: each once, all of one base, and of nested items only the outermost.

The transaction that writes resolves the selection, so nothing changes between the check and the write.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from holdfast.catalog import Item, item_from_row, lock_base, parse_item_id, read_items
from holdfast.documents import statements as sql
from holdfast.documents.status import generation_of
from holdfast.engine import Status
from holdfast.engine.store import LARGEST_BATCH, lock_and_load_owners, require_held
from holdfast.errors import BaseFailed, PreconditionFailed, UnknownBase, UnknownItem

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence
    from typing import Any

    from holdfast.catalog import Base
    from holdfast.db import Transaction
    from holdfast.engine import AdmissionResult, Request, Ticket
    from holdfast.engine.store import SqlStore


class ItemWithStatus(NamedTuple):
    """An item, the status of its content and indexes, and the status of its slot `source`."""

    item: Item
    document_status: Status | None  # None: no such slots
    source_status: Status | None

    @property
    def status(self) -> Status:
        """The status of the item itself, without the items below it."""
        if self.item.deleting:
            return Status.DELETING
        if self.item.problem is not None:
            return Status.FAILED
        source = [self.source_status] if self.source_status not in (None, Status.SUCCESS) else []
        return combine_statuses([status for status in (*source, self.document_status) if status is not None])


# If any part has one of these, the whole has the first of them.
_DOMINANT = (Status.DELETING, Status.INDEXING, Status.QUEUED)


def combine_statuses(parts: Sequence[Status]) -> Status:
    """Combine the statuses of parts, as `engine.status` does for the slots of one owner."""
    have = set(parts)
    for status in _DOMINANT:
        if status in have:
            return status
    if have == {Status.SUCCESS}:
        return Status.SUCCESS
    if have & {Status.SUCCESS, Status.DEGRADED}:
        return Status.DEGRADED
    return Status.FAILED if Status.FAILED in have else Status.NOT_INDEXED


def derive_tree_status(tree: Sequence[ItemWithStatus]) -> Status:
    """Return the status of an item with everything below it: of documents, and of sources that are not up to date."""
    sources = [entry.source_status for entry in tree if entry.item.is_container and entry.source_status is not None]
    parts = [entry.status for entry in tree if not entry.item.is_container]
    return combine_statuses([*parts, *(status for status in sources if status is not Status.SUCCESS)] or sources)


def require_open(base: Base | None, name: str) -> Base:
    """Return the base; raise `UnknownBase` if it is gone or being deleted."""
    if base is None or base.deleting:
        raise UnknownBase(name)
    return base


def lock_open_base(tx: Transaction, base: Base, *, building: bool) -> Base:
    """Lock a base against other adds and deletes, and return it as it is now; `building` refuses a failed base."""
    now = require_open(lock_base(tx, base.id), base.name)
    if building:
        refuse_failed(now)
    return now


def refuse_failed(base: Base) -> None:
    """Raise `BaseFailed` with the problem of the base if it has one."""
    if base.problem is not None:
        raise BaseFailed(base.name, base.problem)


def require_unchanged(tx: Transaction, base: Base, item: Item, generations: Collection[int] | None) -> None:
    """Raise unless the item has one of these generations; the lock keeps its generation until the commit."""
    if generations is None:
        return
    now = generation_of(list(lock_and_load_owners(tx, base.key, (item.key, item.source_key)).slots.values()))
    if now not in generations:
        raise PreconditionFailed(now)


def select_live_requests(tx: Transaction, requests: Sequence[Request]) -> list[Request]:
    """Return the requests whose items are not deleted, in the transaction that admits them."""
    ids = {request.owner: parse_item_id(request.owner) for request in requests}
    live = {item.id for item in read_items(tx, {id_ for id_ in ids.values() if id_ is not None}) if not item.deleting}
    return [request for request in requests if ids[request.owner] in live]


def admit_live_requests(
    store: SqlStore,
    base: Base,
    requests: Sequence[Request],
    *,
    building: bool,
    ticket: Ticket | None = None,
    checkpoint: Callable[[int], None] = lambda _: None,
) -> list[AdmissionResult]:
    """Admit requests in bounded transactions; requests about items deleted in the meantime are left out.

    `ticket` is the ticket of the calling work: if it lost its slot, nothing more is admitted. `checkpoint` receives
    the number of requests done, before each transaction.
    """
    results: list[AdmissionResult] = []
    for first in range(0, len(requests), LARGEST_BATCH):
        checkpoint(first)

        def write(tx: Transaction, first: int = first) -> list[Request]:
            lock_open_base(tx, base, building=building)
            if ticket is not None:
                require_held(tx, ticket)
            return select_live_requests(tx, requests[first : first + LARGEST_BATCH])

        results += store.admit_with(write)
    return results


def select_outermost(tx: Transaction, base: Base, ids: Iterable[int]) -> list[Item]:
    """Return the items of a selection that are below no other item of it, in the given order."""
    wanted = list(dict.fromkeys(ids))
    found = {item.id: item for item in read_items(tx, wanted) if item.base == base.id}
    unknown = [id_ for id_ in wanted if id_ not in found]
    if unknown:
        raise UnknownItem(base.name, unknown)
    above: dict[int, set[int]] = {}
    for item, ancestor in tx.run(sql.READ_ANCESTORS, [[id_] for id_ in wanted]):
        above.setdefault(item, set()).add(ancestor)
    return [found[id_] for id_ in wanted if not above.get(id_, set()) & found.keys()]


def read_subtree(tx: Transaction, root: int) -> list[ItemWithStatus]:
    """Return an item, first, and everything below it, also deleted items; empty if there is no such item."""
    tree = [item_with_status_from_row(row) for row in tx.run(sql.READ_SUBTREE, [[root]])]
    return sorted(tree, key=lambda entry: (entry.item.id != root, entry.item.id))


def item_with_status_from_row(row: Sequence[Any]) -> ItemWithStatus:
    """Return the item of a row that ends with its two statuses."""
    *columns, document, source = row
    return ItemWithStatus(item_from_row(columns), document and Status(document), source and Status(source))


def select_items_with_slots(tx: Transaction, items: Iterable[int]) -> set[int]:
    """Return the items whose content or indexes were requested at least once."""
    return {id_ for (id_,) in tx.run(sql.SELECT_ITEMS_WITH_OWNER, [[id_] for id_ in items])}
