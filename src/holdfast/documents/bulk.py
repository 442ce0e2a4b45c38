"""The same done to all items that a filter lets through, however many there are.

They are read as a list reads them, the oldest first, and each batch is chosen in the transaction that asks for its
work: what ceased to fit meanwhile is left alone, and what comes meanwhile is not met. A container stands for all that
is below it, which is not asked a second time.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from holdfast.catalog import CONTAINERS, ItemKind
from holdfast.documents import statements as sql
from holdfast.documents.lists import count_ids, newest_id, read_ids_after
from holdfast.documents.operations import (
    DEFAULT_REQUEST_OPTIONS,
    ITEMS_PER_CLEAN_UP,
    SUBTREE_ACTIONS,
    Action,
    build_already_deleting_reply,
    build_clean_up_reply,
    build_clean_up_requests,
    combine_answers,
)
from holdfast.documents.selection import item_with_status_from_row, lock_open_base, select_outermost
from holdfast.engine import BulkResult
from holdfast.errors import BadRequest, UnknownItem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.catalog import Base, Item
    from holdfast.db import Transaction
    from holdfast.documents.add import ItemReply
    from holdfast.documents.lists import DocumentFilter
    from holdfast.documents.operations import DocumentOperations, RequestOptions
    from holdfast.documents.remove import DocumentRemover
    from holdfast.documents.selection import ItemWithStatus
    from holdfast.engine import AdmissionResult, Request, Verdict
    from holdfast.engine.store import SqlStore


class BulkOperations:
    """Asks for work on all items that fit."""

    def __init__(self, store: SqlStore, requesting: DocumentOperations, removing: DocumentRemover) -> None:
        self._store = store
        self._operations = requesting
        self._remover = removing

    def apply(
        self,
        base: Base,
        action: Action,
        filter_: DocumentFilter,
        manner: RequestOptions = DEFAULT_REQUEST_OPTIONS,
        *,
        dry_run: bool = False,
    ) -> BulkResult:
        """Do the same to all that fit; return how many they were, and what came of those that stand below no other."""
        meant = _resolve_filter(action, filter_)
        with self._store.database.reading() as tx:
            if meant.parent and any(item.deleting for item in select_outermost(tx, base, [meant.parent])):
                raise UnknownItem(base.name, [meant.parent])
            found = count_ids(tx, base, meant)
            newest = newest_id(tx, base, meant)
        answers: Counter[tuple[Verdict, str]] = Counter()
        if not dry_run:
            course = _BulkProgress(base, action, meant, manner, newest)
            while not course.finished:
                answers.update((one.verdict, one.reason) for one in self._batch(course))
        return BulkResult(found=found, answers=dict(answers))

    def _batch(self, course: _BulkProgress) -> list[ItemReply]:
        """Go one step, in one transaction; containers follow each for itself."""
        if course.action is Action.DELETE:
            replies = self._remover.delete_with(course.base, course.select_roots, requester=course.options.requester)
        elif course.filter.deleting:
            replies = self._clean_up(course)
        else:
            replies = self._build(course)
        for item in course.advance():
            if course.action is not Action.DELETE:
                replies += self._container(course, item)
        return replies

    def _clean_up(self, course: _BulkProgress) -> list[ItemReply]:
        asked: list[tuple[int, Request]] = []

        def write(tx: Transaction) -> Sequence[Request]:
            lock_open_base(tx, course.base, building=False)
            asked[:] = build_clean_up_requests(tx, [item.id for item in course.select_roots(tx)], course.options)
            return [request for _, request in asked]

        answers = self._store.admit_with(write)
        by_item = _grouped([id_ for id_, _ in asked], answers)
        return [
            build_clean_up_reply(one.item, by_item.get(one.item.id, [])) or build_already_deleting_reply(one.item)
            for one in course.chosen
        ]

    def _build(self, course: _BulkProgress) -> list[ItemReply]:
        owners: list[int] = []

        def write(tx: Transaction) -> Sequence[Request]:
            now = lock_open_base(tx, course.base, building=course.action is not Action.CANCEL)
            course.select_roots(tx)
            alone = course.documents
            asked = self._operations.build_requests(now, alone, course.action, course.options)
            owners[:] = [one.item.id for one, some in zip(alone, asked, strict=True) for _ in some]
            return [request for some in asked for request in some]

        by_item = _grouped(owners, self._store.admit_with(write))
        return [combine_answers(one.item, by_item.get(one.item.id, [])) for one in course.documents]

    def _container(self, course: _BulkProgress, item: Item) -> list[ItemReply]:
        """Ask as if it had been named alone; one that is gone meanwhile is left out."""
        base, manner = course.base, course.options
        try:
            if course.action is Action.REFRESH and not item.source:
                return [combine_answers(item, [])]
            return self._operations.request(base, [item.id], course.action, manner)
        except UnknownItem:
            return []


class _BulkProgress:
    """How far one request for many has come. It is told of a step only after its transaction, which may run twice."""

    def __init__(
        self, base: Base, action: Action, filter_: DocumentFilter, manner: RequestOptions, newest: int
    ) -> None:
        self.base = base
        self.action = action
        self.filter = filter_
        self.options = manner
        self.chosen: list[ItemWithStatus] = []  # for this step, those that stand below no other
        self._newest = newest
        self._place = self._reached = 0
        self._whole: set[int] = set()  # containers that were asked with all below them

    @property
    def finished(self) -> bool:
        """Everything that was there at the beginning was met."""
        return self._place >= self._newest

    @property
    def documents(self) -> list[ItemWithStatus]:
        """What is asked together in this step."""
        return [one for one in self.chosen if not one.item.is_container]

    def select_roots(self, tx: Transaction) -> list[Item]:
        """Choose the next ones."""
        ids = [
            id_
            for id_ in read_ids_after(tx, self.base, self.filter, self._place, ITEMS_PER_CLEAN_UP)
            if id_ <= self._newest
        ]
        self._reached = ids[-1] if len(ids) == ITEMS_PER_CLEAN_UP else self._newest
        found = [item_with_status_from_row(row) for row in tx.run(sql.READ_ITEMS_WITH_STATUS, [[id_] for id_ in ids])]
        if not self.filter.deleting:  # there each is cleaned up by itself
            whole = self._whole | {one.item.id for one in found if one.item.is_container}
            inside = {
                item for item, ancestor in tx.run(sql.READ_ANCESTORS, [[id_] for id_ in ids]) if ancestor in whole
            }
            found = [one for one in found if one.item.id not in inside]
        self.chosen = found
        return [one.item for one in found]

    def advance(self) -> list[Item]:
        """Note that a step is done; return the containers of it, which stand for all below them."""
        self._place = self._reached
        containers = [] if self.filter.deleting else [one.item for one in self.chosen if one.item.is_container]
        self._whole |= {item.id for item in containers}
        return containers


def _resolve_filter(action: Action, filter_: DocumentFilter) -> DocumentFilter:
    """Return the filter as an action means it; refuse what nobody can mean."""
    if filter_.deleting and action is not Action.RETRY:
        raise BadRequest("What is being deleted can be tried again, and nothing else.", "only_retry")
    if action is Action.DELETE and filter_.empty:
        raise BadRequest(
            "A delete needs a filter; to delete every document of a base, clear it.", "delete_needs_filter"
        )
    if action in SUBTREE_ACTIONS and filter_.states is not None and filter_.kinds is None:
        return replace(filter_, kinds=frozenset(ItemKind) - CONTAINERS)
    return filter_


def _grouped(items: Sequence[int], answers: Sequence[AdmissionResult]) -> dict[int, list[AdmissionResult]]:
    found: dict[int, list[AdmissionResult]] = {}
    for item, answer in zip(items, answers, strict=True):
        found.setdefault(item, []).append(answer)
    return found
