"""Applies one action to all items that match a filter, in batches.

Items are read with the filter of a list, oldest first. Each batch is selected in the transaction that requests its
work, so items that no longer match are skipped. Items added after the start are not included. An action on a container
covers everything below it, so items below it are not requested a second time.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from holdfast.catalog import CONTAINERS, ItemKind
from holdfast.documents import statements as sql
from holdfast.documents.lists import count_ids, newest_id, read_ids_after
from holdfast.documents.operations import (
    ITEMS_PER_CLEAN_UP,
    SUBTREE_ACTIONS,
    build_already_deleting_reply,
    build_clean_up_reply,
    build_clean_up_requests,
    combine_answers,
)
from holdfast.documents.requests import DEFAULT_REQUEST_OPTIONS, Action
from holdfast.documents.selection import item_with_status_from_row, lock_open_base, select_outermost
from holdfast.engine import BulkResult
from holdfast.errors import BadRequest, UnknownItem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.catalog import Base, Item
    from holdfast.db import Transaction
    from holdfast.documents.lists import DocumentFilter
    from holdfast.documents.operations import DocumentOperations
    from holdfast.documents.remove import DocumentRemover
    from holdfast.documents.requests import ItemReply, RequestOptions
    from holdfast.documents.selection import ItemWithStatus
    from holdfast.engine import AdmissionResult, Request, Verdict
    from holdfast.engine.store import SqlStore


class BulkOperations:
    """Applies an action to all items that match a filter."""

    def __init__(self, store: SqlStore, operations: DocumentOperations, remover: DocumentRemover) -> None:
        self._store = store
        self._operations = operations
        self._remover = remover

    def apply(
        self,
        base: Base,
        action: Action,
        filter_: DocumentFilter,
        options: RequestOptions = DEFAULT_REQUEST_OPTIONS,
        *,
        dry_run: bool = False,
    ) -> BulkResult:
        """Apply an action; return the number of matches, and the replies for matches that are below no other match."""
        meant = _resolve_filter(action, filter_)
        with self._store.database.reading() as tx:
            if meant.parent and any(item.deleting for item in select_outermost(tx, base, [meant.parent])):
                raise UnknownItem(base.name, [meant.parent])
            found = count_ids(tx, base, meant)
            newest = newest_id(tx, base, meant)
        answers: Counter[tuple[Verdict, str]] = Counter()
        if not dry_run:
            progress = _BulkProgress(base, action, meant, options, newest)
            while not progress.finished:
                answers.update((one.verdict, one.reason) for one in self._batch(progress))
        return BulkResult(found=found, answers=dict(answers))

    def _batch(self, progress: _BulkProgress) -> list[ItemReply]:
        """Process one batch in one transaction, then each of its containers."""
        if progress.action is Action.DELETE:
            replies = self._remover.delete_with(
                progress.base, progress.select_roots, requester=progress.options.requester
            )
        elif progress.filter.deleting:
            replies = self._clean_up(progress)
        else:
            replies = self._build(progress)
        for item in progress.advance():
            if progress.action is not Action.DELETE:
                replies += self._container(progress, item)
        return replies

    def _clean_up(self, progress: _BulkProgress) -> list[ItemReply]:
        requests: list[tuple[int, Request]] = []

        def write(tx: Transaction) -> Sequence[Request]:
            lock_open_base(tx, progress.base, building=False)
            requests[:] = build_clean_up_requests(tx, [item.id for item in progress.select_roots(tx)], progress.options)
            return [request for _, request in requests]

        answers = self._store.admit_with(write)
        by_item = _grouped([id_ for id_, _ in requests], answers)
        return [
            build_clean_up_reply(one.item, by_item.get(one.item.id, [])) or build_already_deleting_reply(one.item)
            for one in progress.chosen
        ]

    def _build(self, progress: _BulkProgress) -> list[ItemReply]:
        owners: list[int] = []

        def write(tx: Transaction) -> Sequence[Request]:
            now = lock_open_base(tx, progress.base, building=progress.action is not Action.CANCEL)
            progress.select_roots(tx)
            documents = progress.documents
            requests = self._operations.build_requests(now, documents, progress.action, progress.options)
            owners[:] = [one.item.id for one, some in zip(documents, requests, strict=True) for _ in some]
            return [request for some in requests for request in some]

        by_item = _grouped(owners, self._store.admit_with(write))
        return [combine_answers(one.item, by_item.get(one.item.id, [])) for one in progress.documents]

    def _container(self, progress: _BulkProgress, item: Item) -> list[ItemReply]:
        """Request the action for one container; skip it if it is gone in the meantime."""
        base, options = progress.base, progress.options
        try:
            if progress.action is Action.REFRESH and not item.source:
                return [combine_answers(item, [])]
            return self._operations.request(base, [item.id], progress.action, options)
        except UnknownItem:
            return []


class _BulkProgress:
    """The progress of one bulk request. `advance` runs after the transaction, because a transaction may run twice."""

    def __init__(
        self, base: Base, action: Action, filter_: DocumentFilter, options: RequestOptions, newest: int
    ) -> None:
        self.base = base
        self.action = action
        self.filter = filter_
        self.options = options
        self.chosen: list[ItemWithStatus] = []  # of this batch, without items below another match
        self._newest = newest
        self._place = self._reached = 0
        self._whole: set[int] = set()  # containers that were requested with everything below them

    @property
    def finished(self) -> bool:
        return self._place >= self._newest

    @property
    def documents(self) -> list[ItemWithStatus]:
        """The items of this batch that are requested together."""
        return [one for one in self.chosen if not one.item.is_container]

    def select_roots(self, tx: Transaction) -> list[Item]:
        """Select the next batch."""
        ids = [
            id_
            for id_ in read_ids_after(tx, self.base, self.filter, self._place, ITEMS_PER_CLEAN_UP)
            if id_ <= self._newest
        ]
        self._reached = ids[-1] if len(ids) == ITEMS_PER_CLEAN_UP else self._newest
        found = [item_with_status_from_row(row) for row in tx.run(sql.READ_ITEMS_WITH_STATUS, [[id_] for id_ in ids])]
        if not self.filter.deleting:  # each hidden item is cleaned up by itself
            whole = self._whole | {one.item.id for one in found if one.item.is_container}
            inside = {
                item for item, ancestor in tx.run(sql.READ_ANCESTORS, [[id_] for id_ in ids]) if ancestor in whole
            }
            found = [one for one in found if one.item.id not in inside]
        self.chosen = found
        return [one.item for one in found]

    def advance(self) -> list[Item]:
        """Finish the batch; return its containers."""
        self._place = self._reached
        containers = [] if self.filter.deleting else [one.item for one in self.chosen if one.item.is_container]
        self._whole |= {item.id for item in containers}
        return containers


def _resolve_filter(action: Action, filter_: DocumentFilter) -> DocumentFilter:
    """Return the filter that the action applies; refuse combinations that make no sense."""
    if filter_.deleting and action is not Action.RETRY:
        raise BadRequest("only_retry")
    if action is Action.DELETE and filter_.empty:
        raise BadRequest("delete_needs_filter")
    if action in SUBTREE_ACTIONS and filter_.states is not None and filter_.kinds is None:
        return replace(filter_, kinds=frozenset(ItemKind) - CONTAINERS)
    return filter_


def _grouped(items: Sequence[int], answers: Sequence[AdmissionResult]) -> dict[int, list[AdmissionResult]]:
    found: dict[int, list[AdmissionResult]] = {}
    for item, answer in zip(items, answers, strict=True):
        found.setdefault(item, []).append(answer)
    return found
