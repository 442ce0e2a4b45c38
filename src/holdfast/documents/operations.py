"""Requests work on existing items: index, retry, reindex, cancel, refresh.

A request for a container covers everything below it. A reindex is refused for a root with anything active or being
deleted below it; the other roots of the request are not affected.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from holdfast.catalog import ItemKind, item_from_row, read_base
from holdfast.documents import statements as sql
from holdfast.documents.requests import DEFAULT_REQUEST_OPTIONS, SOURCE_SLOT, Action, ItemReply, RequestOptions
from holdfast.documents.selection import (
    ItemWithStatus,
    admit_live_requests,
    derive_tree_status,
    lock_open_base,
    read_subtree,
    require_unchanged,
    select_live_requests,
    select_outermost,
)
from holdfast.engine import JobId, Operation, Request, SlotSpec, Status, Verdict
from holdfast.engine.store import LARGEST_BATCH, LOWEST_PRIORITY, record_refusals
from holdfast.errors import BadRequest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from holdfast.catalog import Base, Item
    from holdfast.db import Transaction
    from holdfast.documents.add import DocumentAdder
    from holdfast.engine import AdmissionResult
    from holdfast.engine.store import SqlStore

TERMINAL = frozenset({Status.SUCCESS, Status.DEGRADED, Status.FAILED, Status.NOT_INDEXED})
# The kinds of items that a container's source adds to it; all other items in it were added by users.
KINDS_FROM_SOURCE = {
    ItemKind.DIRECTORY: frozenset({ItemKind.FILE, ItemKind.DIRECTORY}),
    ItemKind.SITEMAP: frozenset({ItemKind.URL}),
}
ITEMS_PER_CLEAN_UP = LARGEST_BATCH // 2  # an item has two owners at most
REINDEX_UNCHANGED = "again"  # payload of a refresh job that also indexes unchanged items again


# On a container, these also affect items below it that have another status.
SUBTREE_ACTIONS = frozenset({Action.REINDEX, Action.FORCE, Action.DELETE})


class DocumentOperations:
    def __init__(self, store: SqlStore, adder: DocumentAdder) -> None:
        self._store = store
        self._adder = adder

    def request(
        self, base: Base, ids: Iterable[int], action: Action, options: RequestOptions = DEFAULT_REQUEST_OPTIONS
    ) -> list[ItemReply]:
        """Request an action on items and on everything below them, in bounded transactions.

        `DocumentRemover` deletes items. While an item is being deleted, only its clean-up can be retried.
        """
        if action is Action.REINDEX:
            return self.reindex(base, ids, options)
        if action is Action.REFRESH:
            return self.refresh(base, ids, options)
        if action is Action.DELETE:
            raise BadRequest("use_delete")
        return [self._request_for_root(base, root, Operation(action), options) for root in self._roots(base, ids)]

    def reindex(
        self, base: Base, ids: Iterable[int], options: RequestOptions = DEFAULT_REQUEST_OPTIONS
    ) -> list[ItemReply]:
        """Build items again from their sources; the old content stays served until the new is built."""
        return [self._reindex(base, root, options) for root in self._roots(base, ids)]

    def refresh(
        self,
        base: Base,
        ids: Iterable[int],
        options: RequestOptions = DEFAULT_REQUEST_OPTIONS,
        *,
        source_changed: bool = False,
    ) -> list[ItemReply]:
        """Read the sources of items again: fetch a page, scan a folder. Unchanged content costs nothing.

        A request joins a refresh that is already queued or running. With `source_changed` it replaces that refresh,
        which may have missed the change.
        """
        operation = Operation.CHANGE if source_changed else Operation.FORCE
        roots = self._roots(base, ids)
        for root in roots:
            if root.source is None:
                raise BadRequest("not_from_a_source", name=root.name)
        return [
            self._reply_being_deleted(base, root, operation, options)
            if root.deleting
            else self._admit_for_root(base, root, [_build_refresh_request(base.key, root, options, operation)], options)
            for root in roots
        ]

    def refresh_due(self, limit: int) -> int:
        """Request a refresh of all items whose schedule is due; return how many."""

        def take(tx: Transaction) -> list[Request]:
            due = [item_from_row(row) for row in tx.run(sql.CLAIM_DUE_SOURCES, limit=limit)]
            return [
                _build_refresh_request(str(item.base), item, RequestOptions(priority=LOWEST_PRIORITY, cause="schedule"))
                for item in due
            ]

        return len(self._store.admit_with(take))

    def _request_for_root(self, base: Base, root: Item, operation: Operation, options: RequestOptions) -> ItemReply:
        if not root.deleting:
            return self._request_for_tree(base, root, operation, options)
        if operation is Operation.RETRY:
            return self._clean_up(base, root, options)
        return self._reply_being_deleted(base, root, operation, options)

    def build_requests(
        self, base: Base, items: Iterable[ItemWithStatus], action: Action, options: RequestOptions
    ) -> list[list[Request]]:
        """Return the requests of an action for each item; not for a delete. Containers come before items below them."""
        specs = self._adder.slot_specs(base)
        if action is Action.REINDEX:
            return _build_reindex_requests(base.key, items, specs, options)
        return [_build_item_requests(base.key, one, action, specs, options) for one in items]

    def _roots(self, base: Base, ids: Iterable[int]) -> list[Item]:
        wanted = list(ids)
        if not wanted:
            return []
        with self._store.database.reading() as tx:
            return select_outermost(tx, base, wanted)

    def _reindex(self, base: Base, root: Item, options: RequestOptions) -> ItemReply:
        """Reindex one root. The transaction that admits its first requests checks that everything below is at rest."""
        refused: list[ItemReply] = []
        more: list[Request] = []

        def write(tx: Transaction) -> list[Request]:
            refused.clear()
            now = lock_open_base(tx, base, building=True)
            require_unchanged(tx, now, root, options.unless_changed)
            tree = read_subtree(tx, root.id)
            gone = [ItemWithStatus(replace(root, deleting=True), None, None)]
            refused.extend(self.refuse_reindex(tx, now, tree or gone, options))
            if refused:
                return []
            planned = self.build_requests(now, tree, Action.REINDEX, options)
            requests = [request for some in planned for request in some]
            more[:] = requests[LARGEST_BATCH:]
            return requests[:LARGEST_BATCH]

        answers = self._store.admit_with(write)
        if refused:
            return refused[0]
        answers += admit_live_requests(self._store, base, more, building=True)
        return combine_answers(root, answers)

    def refuse_reindex(
        self, tx: Transaction, base: Base, tree: Sequence[ItemWithStatus], options: RequestOptions
    ) -> list[ItemReply]:
        """Return the refusal for a root, and record it, unless everything below the root is at rest."""
        root, reason = tree[0].item, _find_reindex_obstacle(tree)
        if not reason:
            return []
        refused = ItemReply(
            verdict=Verdict.REJECTED,
            reason=reason,
            status=derive_tree_status(tree),
            name=root.name,
            item=root.id,
            job=_find_active_job(tx, base, tree),
        )
        _record(tx, base, refused, Operation.REINDEX, options)
        return [refused]

    def _reply_being_deleted(self, base: Base, root: Item, operation: Operation, options: RequestOptions) -> ItemReply:
        """Reply to a request for an item that is being deleted, and record it."""
        reply = build_already_deleting_reply(root)
        if operation is not Operation.RETRY:
            reply = replace(reply, verdict=Verdict.REJECTED, reason="being_deleted")

        def write(tx: Transaction) -> None:
            now = lock_open_base(tx, base, building=False)
            require_unchanged(tx, now, root, options.unless_changed)
            _record(tx, now, reply, operation, options)

        self._store.database.write(write, durable=False)
        return reply

    def _clean_up(self, base: Base, root: Item, options: RequestOptions) -> ItemReply:
        """Retry the clean-up of a deleted item and of everything below it now."""
        with self._store.database.reading() as tx:
            ids = [one.item.id for one in read_subtree(tx, root.id)]
        answers: list[AdmissionResult] = []
        for first in range(0, len(ids), ITEMS_PER_CLEAN_UP):
            portion = ids[first : first + ITEMS_PER_CLEAN_UP]

            def write(tx: Transaction, portion: Sequence[int] = portion) -> Sequence[Request]:
                now = lock_open_base(tx, base, building=False)
                if portion[0] == root.id:
                    require_unchanged(tx, now, root, options.unless_changed)
                return [request for _, request in build_clean_up_requests(tx, portion, options)]

            answers += self._store.admit_with(write)
        return build_clean_up_reply(root, answers) or self._reply_being_deleted(base, root, Operation.RETRY, options)

    def _admit_for_root(
        self, base: Base, root: Item, requests: Sequence[Request], options: RequestOptions
    ) -> ItemReply:
        def write(tx: Transaction) -> Sequence[Request]:
            require_unchanged(tx, lock_open_base(tx, base, building=True), root, options.unless_changed)
            return select_live_requests(tx, requests)

        return combine_answers(root, self._store.admit_with(write))

    def _request_for_tree(self, base: Base, root: Item, operation: Operation, options: RequestOptions) -> ItemReply:
        """Request an operation for a root and everything below it."""
        with self._store.database.reading() as tx:
            tree = read_subtree(tx, root.id)
            current = read_base(tx, base.id) or base
        requests = [one for some in self.build_requests(current, tree, Action(operation), options) for one in some]
        building = operation is not Operation.CANCEL

        def first(tx: Transaction) -> Sequence[Request]:
            require_unchanged(tx, lock_open_base(tx, base, building=building), root, options.unless_changed)
            return select_live_requests(tx, requests[:LARGEST_BATCH])

        needed = requests or options.unless_changed is not None
        answers = self._store.admit_with(first) if needed else []
        answers += admit_live_requests(self._store, base, requests[LARGEST_BATCH:], building=building)
        return combine_answers(root, answers)


def _request(
    base: str,
    owner: str,
    operation: Operation,
    slots: tuple[SlotSpec, ...],
    options: RequestOptions,
    *,
    payload: str | None = None,
) -> Request:
    return Request(
        base=base,
        owner=owner,
        operation=operation,
        slots=slots,
        requester=options.requester,
        priority=options.priority,
        cause=options.cause,
        payload=payload,
    )


def _build_refresh_request(
    base: str, item: Item, options: RequestOptions, operation: Operation = Operation.FORCE, payload: str | None = None
) -> Request:
    return _request(base, item.source_key, operation, (SlotSpec(SOURCE_SLOT),), options, payload=payload)


def _build_item_requests(
    base: str, one: ItemWithStatus, action: Action, specs: tuple[SlotSpec, ...], options: RequestOptions
) -> list[Request]:
    if action is Action.REFRESH:
        return [_build_refresh_request(base, one.item, options)] if one.item.source is not None else []
    operation = Operation(action)
    return [
        _request(base, owner, operation, () if operation is Operation.CANCEL else wanted, options)
        for owner, wanted in _owners(one, specs, operation)
    ]


def _build_reindex_requests(
    base: str, tree: Iterable[ItemWithStatus], specs: tuple[SlotSpec, ...], options: RequestOptions
) -> list[list[Request]]:
    """Return the requests that rebuild each item. The refresh of a source also rebuilds the items that it added."""
    kinds_by_container: dict[int, frozenset[ItemKind]] = {}
    requests: list[list[Request]] = []
    for item, document, _ in tree:  # containers come before their children
        requests.append([])
        from_source = item.source is not None and item.kind in kinds_by_container.get(item.parent, ())
        has_source = item.source is not None and (item.is_container or item.kind is ItemKind.URL)
        if has_source:
            kinds_by_container[item.id] = KINDS_FROM_SOURCE.get(item.kind, frozenset())
        if from_source:
            continue
        if has_source:
            requests[-1].append(_build_refresh_request(base, item, options, payload=REINDEX_UNCHANGED))
        elif item.digest is not None:
            operation = Operation.INDEX if document is None else Operation.REINDEX
            requests[-1].append(_request(base, item.key, operation, specs, options))
    return requests


def build_clean_up_requests(tx: Transaction, ids: Sequence[int], options: RequestOptions) -> list[tuple[int, Request]]:
    """Return requests to clean up deleted items, each with its item: a retry, or a delete if none was requested yet.

    An owner that is being deleted never changes its state, so a retry cannot restore anything.
    """
    return [
        (id_, _request(base, owner, Operation.RETRY if status == Status.DELETING else Operation.DELETE, (), options))
        for id_, base, owner, status in tx.run(sql.OWNERS_OF_DELETED, [[id_] for id_ in ids])
    ]


def build_clean_up_reply(root: Item, answers: Sequence[AdmissionResult]) -> ItemReply | None:
    """Return the reply to a retried clean-up; None if the item has no slots left and needs no request."""
    left = [answer for answer in answers if answer.reason != "unknown_owner"]
    return combine_answers(root, left) if left else None


def build_already_deleting_reply(root: Item) -> ItemReply:
    return ItemReply(
        verdict=Verdict.JOINED, reason="already_deleting", status=Status.DELETING, name=root.name, item=root.id
    )


def _record(tx: Transaction, base: Base, reply: ItemReply, operation: Operation, options: RequestOptions) -> None:
    row = [base.key, str(reply.item), str(operation), str(reply.verdict), reply.reason, None, options.requester, 0.0]
    record_refusals(tx, [row])


def _find_active_job(tx: Transaction, base: Base, tree: Sequence[ItemWithStatus]) -> JobId | None:
    """Return an active job in a tree, if there is one."""
    names = [[name] for one in tree if one.status not in TERMINAL for name in (one.item.key, one.item.source_key)]
    found = tx.run(sql.ACTIVE_JOBS, names[:LARGEST_BATCH], base=base.key) if names else []
    return JobId(found[0][0]) if found else None


def _find_reindex_obstacle(tree: Sequence[ItemWithStatus]) -> str:
    """Return why a tree cannot be reindexed; empty if it can."""
    if any(one.item.deleting for one in tree):
        return "being_deleted"
    return "not_terminal" if any(one.status not in TERMINAL for one in tree) else ""


def _owners(
    one: ItemWithStatus, specs: tuple[SlotSpec, ...], operation: Operation
) -> list[tuple[str, tuple[SlotSpec, ...]]]:
    """Return the owners of an item that an operation applies to, each with the slots that it should have."""
    item = one.item
    if item.deleting or item.problem is not None:
        return []
    found: list[tuple[str, tuple[SlotSpec, ...]]] = []
    if one.source_status is not None or (
        item.source is not None and item.digest is None and operation is Operation.INDEX
    ):
        found.append((item.source_key, (SlotSpec(SOURCE_SLOT),)))
    if one.document_status is not None or (item.digest is not None and operation is Operation.INDEX):
        found.append((item.key, specs))
    return found


def combine_answers(root: Item, answers: Sequence[AdmissionResult]) -> ItemReply:
    """Return the reply for a root: the first accepted result, or else the first one."""
    best = next((one for one in answers if one.accepted), answers[0] if answers else None)
    if best is None:
        return ItemReply(verdict=Verdict.SKIPPED, reason="nothing_to_do", name=root.name, item=root.id)
    return ItemReply.from_admission(root.name, root.id, best)
