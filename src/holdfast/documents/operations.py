"""What people ask of items that are there: index, retry, reindex, cancel, look at the source again.

A container stands for all that is below it. Reindexing is a rebuild from rest: it is refused for a root of which
anything is active or being deleted, and the other roots go on.
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from holdfast.catalog import ItemKind, item_from_row, read_base
from holdfast.documents import statements as sql
from holdfast.documents.add import SOURCE_SLOT, ItemReply
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
from holdfast.engine import DEFAULT_PRIORITY, JobId, Operation, Request, SlotSpec, Status, Verdict
from holdfast.engine.store import LARGEST_BATCH, LOWEST_PRIORITY, record_refusals
from holdfast.errors import BadRequest

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from holdfast.catalog import Base, Item
    from holdfast.db import Transaction
    from holdfast.documents.add import DocumentAdder
    from holdfast.engine import AdmissionResult
    from holdfast.engine.store import SqlStore

TERMINAL = frozenset({Status.SUCCESS, Status.DEGRADED, Status.FAILED, Status.NOT_INDEXED})
# What a look at a container brings into it; whatever else stands there was put there by people.
KINDS_FROM_SOURCE = {
    ItemKind.DIRECTORY: frozenset({ItemKind.FILE, ItemKind.DIRECTORY}),
    ItemKind.SITEMAP: frozenset({ItemKind.URL}),
}
ITEMS_PER_CLEAN_UP = (
    LARGEST_BATCH // 2
)  # items whose clean-up is asked for in one transaction; each has two owners at most
REINDEX_UNCHANGED = "again"  # payload of a job that looks at a source: what did not change is indexed again, too


class Action(StrEnum):
    """What can be done to items.

    This is the only list of them: the API takes its choices from here, and a test compares the buttons of the page.
    """

    INDEX = "index"  # what is not indexed
    REINDEX = "reindex"  # build all of it again, from rest
    REFRESH = "refresh"  # look at its source again
    RETRY = "retry"  # what failed or is lacking; of what is being deleted, the clean-up
    FORCE = "force"  # build all of it, whatever it has
    CANCEL = "cancel"  # stop what is active
    DELETE = "delete"


# Done to a container they concern all that is below it, also what has another status.
SUBTREE_ACTIONS = frozenset({Action.REINDEX, Action.FORCE, Action.DELETE})


class RequestOptions(NamedTuple):
    """Who asks, how urgent it is, and which generations an item may have for it."""

    requester: str = ""
    priority: int = DEFAULT_PRIORITY
    cause: str = "user"
    unless_changed: Collection[int] | None = None  # None: any


DEFAULT_REQUEST_OPTIONS = RequestOptions()


class DocumentOperations:
    """Asks for work on items."""

    def __init__(self, store: SqlStore, adding: DocumentAdder) -> None:
        self._store = store
        self._adder = adding

    def request(
        self, base: Base, ids: Iterable[int], action: Action, manner: RequestOptions = DEFAULT_REQUEST_OPTIONS
    ) -> list[ItemReply]:
        """Request an action on items and on everything below them, in bounded transactions.

        `DocumentRemover` deletes items. While an item is being deleted, only its clean-up can be retried.
        """
        if action is Action.REINDEX:
            return self.reindex(base, ids, manner)
        if action is Action.REFRESH:
            return self.refresh(base, ids, manner)
        if action is Action.DELETE:
            raise BadRequest(f"To {action} an item use the verb of that name; it does more than this one.")
        return [self._request_for_root(base, root, Operation(action), manner) for root in self._roots(base, ids)]

    def reindex(
        self, base: Base, ids: Iterable[int], manner: RequestOptions = DEFAULT_REQUEST_OPTIONS
    ) -> list[ItemReply]:
        """Build items again from their sources; nothing of what is served goes before the new is built."""
        return [self._reindex(base, root, manner) for root in self._roots(base, ids)]

    def refresh(
        self, base: Base, ids: Iterable[int], manner: RequestOptions = DEFAULT_REQUEST_OPTIONS, *, stirred: bool = False
    ) -> list[ItemReply]:
        """Look at the sources of items again: fetch a page, scan a folder; what did not change costs nothing.

        A look that is under way is joined, unless the source `stirred`: then it may have missed that, and is replaced.
        """
        operation = Operation.CHANGE if stirred else Operation.FORCE
        roots = self._roots(base, ids)
        for root in roots:
            if root.source is None:
                raise BadRequest(
                    f"{root.name!r} was uploaded; there is no place where it could be looked for again.",
                    "not_from_a_source",
                    name=root.name,
                )
        return [
            self._reply_being_deleted(base, root, operation, manner)
            if root.deleting
            else self._admit_for_root(base, root, [_build_refresh_request(base.key, root, manner, operation)], manner)
            for root in roots
        ]

    def refresh_due(self, limit: int) -> int:
        """Look at the sources again whose time has come; return how many."""

        def take(tx: Transaction) -> list[Request]:
            due = [item_from_row(row) for row in tx.run(sql.CLAIM_DUE_SOURCES, limit=limit)]
            return [
                _build_refresh_request(str(item.base), item, RequestOptions(priority=LOWEST_PRIORITY, cause="schedule"))
                for item in due
            ]

        return len(self._store.admit_with(take))

    def _request_for_root(self, base: Base, root: Item, operation: Operation, manner: RequestOptions) -> ItemReply:
        if not root.deleting:
            return self._request_for_tree(base, root, operation, manner)
        if operation is Operation.RETRY:
            return self._clean_up(base, root, manner)
        return self._reply_being_deleted(base, root, operation, manner)

    def build_requests(
        self, base: Base, items: Iterable[ItemWithStatus], action: Action, manner: RequestOptions
    ) -> list[list[Request]]:
        """Return what an action asks about each of these items, whatever stands below them; not for a delete."""
        specs = self._adder.slot_specs(base)
        return [_build_item_requests(base.key, one, action, specs, manner) for one in items]

    def _roots(self, base: Base, ids: Iterable[int]) -> list[Item]:
        wanted = list(ids)
        if not wanted:
            return []
        with self._store.database.reading() as tx:
            return select_outermost(tx, base, wanted)

    def _reindex(self, base: Base, root: Item, manner: RequestOptions) -> ItemReply:
        """Ask for one root; that all of it is at rest is seen in the transaction that admits the first of its work."""
        refused: list[ItemReply] = []
        more: list[Request] = []

        def write(tx: Transaction) -> list[Request]:
            refused.clear()
            now = lock_open_base(tx, base, building=True)
            require_unchanged(tx, now, root, manner.unless_changed)
            tree = read_subtree(tx, root.id)
            reason = _find_reindex_obstacle(tree)
            if not reason:
                requests = _build_reindex_requests(now.key, tree, self._adder.slot_specs(now), manner)
                more[:] = requests[LARGEST_BATCH:]
                return requests[:LARGEST_BATCH]
            status = derive_tree_status(tree)
            job = _find_active_job(tx, now, tree)
            refused.append(
                ItemReply(verdict=Verdict.REJECTED, reason=reason, status=status, name=root.name, item=root.id, job=job)
            )
            _record(tx, now, refused[0], Operation.REINDEX, manner)
            return []

        answers = self._store.admit_with(write)
        if refused:
            return refused[0]
        answers += admit_live_requests(self._store, base, more, building=True)
        return combine_answers(root, answers)

    def _reply_being_deleted(self, base: Base, root: Item, operation: Operation, manner: RequestOptions) -> ItemReply:
        """Answer, of an item that is being deleted, what makes no new work."""
        told = build_already_deleting_reply(root)
        if operation is not Operation.RETRY:
            told = replace(told, verdict=Verdict.REJECTED, reason="being_deleted")

        def write(tx: Transaction) -> None:
            now = lock_open_base(tx, base, building=False)
            require_unchanged(tx, now, root, manner.unless_changed)
            _record(tx, now, told, operation, manner)

        self._store.database.write(write, durable=False)
        return told

    def _clean_up(self, base: Base, root: Item, manner: RequestOptions) -> ItemReply:
        """Try the clean-up of a deleted item again now, with that of all that stands below it."""
        with self._store.database.reading() as tx:
            ids = [one.item.id for one in read_subtree(tx, root.id)]
        answers: list[AdmissionResult] = []
        for first in range(0, len(ids), ITEMS_PER_CLEAN_UP):
            portion = ids[first : first + ITEMS_PER_CLEAN_UP]

            def write(tx: Transaction, portion: Sequence[int] = portion) -> Sequence[Request]:
                now = lock_open_base(tx, base, building=False)
                if portion[0] == root.id:
                    require_unchanged(tx, now, root, manner.unless_changed)
                return [request for _, request in build_clean_up_requests(tx, portion, manner)]

            answers += self._store.admit_with(write)
        return build_clean_up_reply(root, answers) or self._reply_being_deleted(base, root, Operation.RETRY, manner)

    def _admit_for_root(self, base: Base, root: Item, requests: Sequence[Request], manner: RequestOptions) -> ItemReply:
        def write(tx: Transaction) -> Sequence[Request]:
            require_unchanged(tx, lock_open_base(tx, base, building=True), root, manner.unless_changed)
            return select_live_requests(tx, requests)

        return combine_answers(root, self._store.admit_with(write))

    def _request_for_tree(self, base: Base, root: Item, operation: Operation, manner: RequestOptions) -> ItemReply:
        """Ask the same of a root and of all that stands below it."""
        with self._store.database.reading() as tx:
            tree = read_subtree(tx, root.id)
            current = read_base(tx, base.id) or base
        requests = [one for some in self.build_requests(current, tree, Action(operation), manner) for one in some]
        building = operation is not Operation.CANCEL

        def first(tx: Transaction) -> Sequence[Request]:
            require_unchanged(tx, lock_open_base(tx, base, building=building), root, manner.unless_changed)
            return select_live_requests(tx, requests[:LARGEST_BATCH])

        asks = requests or manner.unless_changed is not None
        answers = self._store.admit_with(first) if asks else []
        answers += admit_live_requests(self._store, base, requests[LARGEST_BATCH:], building=building)
        return combine_answers(root, answers)


def _request(
    base: str,
    owner: str,
    operation: Operation,
    slots: tuple[SlotSpec, ...],
    manner: RequestOptions,
    *,
    payload: str | None = None,
) -> Request:
    return Request(
        base=base,
        owner=owner,
        operation=operation,
        slots=slots,
        requester=manner.requester,
        priority=manner.priority,
        cause=manner.cause,
        payload=payload,
    )


def _build_refresh_request(
    base: str, item: Item, manner: RequestOptions, operation: Operation = Operation.FORCE, payload: str | None = None
) -> Request:
    return _request(base, item.source_key, operation, (SlotSpec(SOURCE_SLOT),), manner, payload=payload)


def _build_item_requests(
    base: str, one: ItemWithStatus, action: Action, specs: tuple[SlotSpec, ...], manner: RequestOptions
) -> list[Request]:
    """Return what an action asks about one item."""
    if action is Action.REFRESH:
        return [_build_refresh_request(base, one.item, manner)] if one.item.source is not None else []
    if action is Action.REINDEX:
        return _build_reindex_requests(base, [one], specs, manner)
    operation = Operation(action)
    return [
        _request(base, owner, operation, () if operation is Operation.CANCEL else wanted, manner)
        for owner, wanted in _owners(one, specs, operation)
    ]


def _build_reindex_requests(
    base: str, tree: Sequence[ItemWithStatus], specs: tuple[SlotSpec, ...], manner: RequestOptions
) -> list[Request]:
    """Ask for a tree to be built again; what a source brought is left to a look at it."""
    bringing: dict[int, frozenset[ItemKind]] = {}
    requests: list[Request] = []
    for item, document, _ in tree:  # containers before what stands in them
        brought = item.source is not None and item.kind in bringing.get(item.parent, ())
        looks = item.source is not None and (item.is_container or item.kind is ItemKind.URL)
        if looks:
            bringing[item.id] = KINDS_FROM_SOURCE.get(item.kind, frozenset())
        if brought:
            continue
        if looks:
            requests.append(_build_refresh_request(base, item, manner, payload=REINDEX_UNCHANGED))
        elif item.digest is not None:
            operation = Operation.INDEX if document is None else Operation.REINDEX
            requests.append(_request(base, item.key, operation, specs, manner))
    return requests


def build_clean_up_requests(tx: Transaction, ids: Sequence[int], manner: RequestOptions) -> list[tuple[int, Request]]:
    """Ask for the clean-up of deleted items once more, or for the first time where nobody has; name each item.

    An owner that is being deleted never becomes anything else, so a retry brings nothing back.
    """
    return [
        (id_, _request(base, owner, Operation.RETRY if status == Status.DELETING else Operation.DELETE, (), manner))
        for id_, base, owner, status in tx.run(sql.OWNERS_OF_DELETED, [[id_] for id_ in ids])
    ]


def build_clean_up_reply(root: Item, answers: Sequence[AdmissionResult]) -> ItemReply | None:
    """Tell what came of a clean-up that is tried again; None where it has no slots any more, and goes by itself."""
    left = [answer for answer in answers if answer.reason != "unknown_owner"]
    return combine_answers(root, left) if left else None


def build_already_deleting_reply(root: Item) -> ItemReply:
    """Tell that an item is being deleted already."""
    return ItemReply(
        verdict=Verdict.JOINED, reason="already_deleting", status=Status.DELETING, name=root.name, item=root.id
    )


def _record(tx: Transaction, base: Base, told: ItemReply, operation: Operation, manner: RequestOptions) -> None:
    """Note what was refused, and to whom."""
    row = [base.key, str(told.item), str(operation), str(told.verdict), told.reason, None, manner.requester, 0.0]
    record_refusals(tx, [row])


def _find_active_job(tx: Transaction, base: Base, tree: Sequence[ItemWithStatus]) -> JobId | None:
    """Name the job that stands in the way of a tree, or one of them."""
    names = [[name] for one in tree if one.status not in TERMINAL for name in (one.item.key, one.item.source_key)]
    found = tx.run(sql.ACTIVE_JOBS, names[:LARGEST_BATCH], base=base.key) if names else []
    return JobId(found[0][0]) if found else None


def _find_reindex_obstacle(tree: Sequence[ItemWithStatus]) -> str:
    """Tell why a tree cannot be reindexed; nothing if it can."""
    if not tree or any(one.item.deleting for one in tree):
        return "being_deleted"
    return "not_terminal" if any(one.status not in TERMINAL for one in tree) else ""


def _owners(
    one: ItemWithStatus, specs: tuple[SlotSpec, ...], operation: Operation
) -> list[tuple[str, tuple[SlotSpec, ...]]]:
    """Return the owners of an item that can be asked, each with what it should have."""
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
    """Tell what came of a root: the first new work, or else what the first answer says."""
    best = next((one for one in answers if one.accepted), answers[0] if answers else None)
    if best is None:
        return ItemReply(verdict=Verdict.SKIPPED, reason="nothing_to_do", name=root.name, item=root.id)
    return ItemReply.from_admission(root.name, root.id, best)
