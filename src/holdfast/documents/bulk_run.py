"""Applies a bulk operation batch by batch.

Each batch is one transaction, which selects the items, requests their work, and stores the progress.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from holdfast.catalog import base_event
from holdfast.documents import statements as sql
from holdfast.documents.operations import (
    ITEMS_PER_CLEAN_UP,
    build_already_deleting_reply,
    build_clean_up_reply,
    build_clean_up_requests,
    combine_answers,
)
from holdfast.documents.requests import DEFAULT_REQUEST_OPTIONS, Action
from holdfast.documents.selection import (
    item_with_status_from_row,
    lock_open_base,
    read_subtree,
    select_live_requests,
)
from holdfast.engine import BULK, Verdict
from holdfast.engine.store import record_events, require_held, write_payload

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.catalog import Base, Item
    from holdfast.db import Transaction
    from holdfast.documents.bulk import Answer, BulkOperation
    from holdfast.documents.operations import DocumentOperations
    from holdfast.documents.remove import DocumentRemover
    from holdfast.documents.requests import ItemReply
    from holdfast.documents.selection import ItemWithStatus
    from holdfast.engine import AdmissionResult, Request, Ticket
    from holdfast.engine.store import QueuedOwner, SqlStore


class BulkRun:
    """Applies an operation step by step; each step is one transaction.

    With the ticket of a job, each transaction checks that the worker still holds the slot, and stores the progress.
    """

    def __init__(  # noqa: PLR0917 - the parts of `BulkOperations`, which alone creates it
        self,
        store: SqlStore,
        operations: DocumentOperations,
        remover: DocumentRemover,
        base: Base,
        operation: BulkOperation,
        ticket: Ticket | None = None,
    ) -> None:
        self.operation = operation
        self._store = store
        self._operations = operations
        self._remover = remover
        self._base = base
        self._ticket = ticket
        self._options = DEFAULT_REQUEST_OPTIONS._replace(requester=operation.requester, priority=operation.priority)
        self._plan: list[PlannedItem] = []  # of the container in progress

    def step(self) -> list[ItemReply]:
        """Process the next batch, or the next part of a container; return the replies for finished items."""
        if self.operation.queue:
            return self._request_in_queue()
        if self.operation.waiting:
            return self._continue_container()
        return self._delete_batch() if self.operation.action is Action.DELETE else self._request_batch()

    def _delete_batch(self) -> list[ItemReply]:
        """Delete the next items with everything below them."""
        batch, after = ItemBatch(), self.operation

        def record(tx: Transaction, replies: Sequence[ItemReply], hidden: int) -> None:
            nonlocal after
            after = self.operation.advance(batch, replies, below=max(0, hidden - batch.matches))
            if self.operation.everything and after.finished:
                record_events(tx, [base_event("cleared", self._base)])
            self._save(tx, after)

        def choose(tx: Transaction) -> list[Item]:
            self._require_held(tx)
            self._select(tx, batch)
            return [one.item for one in batch.items]

        replies = self._remover.delete_with(self._base, choose, requester=self._options.requester, record=record)
        self.operation = after
        return replies

    def _request_batch(self) -> list[ItemReply]:
        """Request the work of the next documents. Containers follow in steps of their own."""
        batch, after = ItemBatch(), self.operation
        replies: list[ItemReply] = []
        owned: list[int] = []

        def write(tx: Transaction) -> list[Request]:
            now = self._lock(tx)
            self._select(tx, batch)
            planned = self._plan_requests(tx, now, batch.single)
            owned[:] = [one.entry.item.id for one in planned for _ in one.requests]
            return [request for one in planned for request in one.requests]

        def record(tx: Transaction, answers: Sequence[AdmissionResult]) -> None:
            nonlocal after
            by_item = _grouped(owned, answers)
            replies[:] = [self._reply(one, by_item.get(one.item.id, [])) for one in batch.single]
            after = self.operation.advance(batch, replies, waiting=tuple(one.item.id for one in batch.containers))
            self._save(tx, after)

        self._store.admit_with(write, record)
        self.operation = after
        return replies

    def _request_in_queue(self) -> list[ItemReply]:
        """Cancel the jobs of the next owners, or retry these owners. They include owners without an item."""
        batch: list[QueuedOwner] = []
        after = before = self.operation

        def write(tx: Transaction) -> list[Request]:
            self._lock(tx)
            batch[:] = before.read_next_owners(tx, self._base, ITEMS_PER_CLEAN_UP)
            return [
                one.cancel_request(before.requester)
                if before.action is Action.CANCEL
                else one.retry_request(before.requester, before.priority)
                for one in batch
                if not one.owner.startswith(f"{BULK}:")  # see `bulk_queue.py`
            ]

        def record(tx: Transaction, answers: Sequence[AdmissionResult]) -> None:
            nonlocal after
            after = before.advance_in_queue(batch, answers)
            self._save(tx, after)

        self._store.admit_with(write, record)
        self.operation = after
        return []

    def _continue_container(self) -> list[ItemReply]:
        """Request the work of the next items of a container: as many as one transaction may contain."""
        before = after = self.operation
        container, begins = before.waiting[0], before.below == 0
        replies: list[ItemReply] = []
        part: list[PlannedItem] = []

        def write(tx: Transaction) -> list[Request]:
            now = self._lock(tx)
            replies.clear()
            if begins or not self._plan:
                tree = read_subtree(tx, container)
                if tree and begins and self.operation.action is Action.REINDEX:
                    replies[:] = self._operations.refuse_reindex(tx, now, tree, self._options)
                self._plan = [] if replies else self._plan_requests(tx, now, tree)
            part[:] = [one for one in self._plan if one.entry.item.id > before.below][:ITEMS_PER_CLEAN_UP]
            requests = [request for one in part for request in one.requests]
            return requests if part and part[0].entry.item.deleting else select_live_requests(tx, requests)

        def record(tx: Transaction, answers: Sequence[AdmissionResult]) -> None:
            nonlocal after
            ended = not part or part[-1] is self._plan[-1]
            best = _best_answer(before.best, answers)
            if ended and self._plan:
                replies[:] = [self._reply(self._plan[0].entry, answers, best)]
            after = replace(
                before,
                done=before.done + max(1, len(part)),
                total=before.total + (max(0, len(self._plan) - 1) if begins else 0),
                answers=before.count(replies),
                waiting=before.waiting[1:] if ended else before.waiting,
                below=0 if ended else part[-1].entry.item.id,
                best=None if ended else best,
            )
            self._save(tx, after)

        self._store.admit_with(write, record)
        self.operation = after
        if not after.below:
            self._plan = []
        return replies

    def _plan_requests(self, tx: Transaction, base: Base, items: Sequence[ItemWithStatus]) -> list[PlannedItem]:
        """Return the requests for each item. For an item that is being deleted, only its clean-up can be retried."""
        action = self.operation.action
        hidden = [one.item.id for one in items if one.item.deleting] if action is Action.RETRY else []
        clean_ups: dict[int, list[Request]] = {}
        for id_, request in build_clean_up_requests(tx, hidden, self._options):
            clean_ups.setdefault(id_, []).append(request)
        requests = self._operations.build_requests(base, items, action, self._options)
        return [
            PlannedItem(one, clean_ups.get(one.item.id, []) if one.item.deleting else some)
            for one, some in zip(items, requests, strict=True)
        ]

    def _reply(self, one: ItemWithStatus, answers: Sequence[AdmissionResult], best: Answer | None = None) -> ItemReply:
        item = one.item
        if item.deleting and self.operation.action is not Action.RETRY:
            return replace(build_already_deleting_reply(item), verdict=Verdict.REJECTED, reason="being_deleted")
        if item.deleting:
            return build_clean_up_reply(item, answers) or build_already_deleting_reply(item)
        reply = combine_answers(item, answers)
        return reply if best is None else replace(reply, verdict=best[0], reason=best[1])

    def _select(self, tx: Transaction, batch: ItemBatch) -> None:
        """Read the next batch, without items below a container that is requested as a whole."""
        op = self.operation
        ids = op.read_next_ids(tx, self._base, ITEMS_PER_CLEAN_UP)
        rows = tx.run(sql.READ_ITEMS_WITH_STATUS, [[id_] for id_ in ids])
        found = [item_with_status_from_row(row) for row in rows]
        if not op.filter.deleting:  # each hidden item is cleaned up by itself
            whole = op.whole | {one.item.id for one in found}
            above = tx.run(sql.READ_ANCESTORS, [[id_] for id_ in ids])
            inside = {item for item, ancestor in above if ancestor in whole}
            found = [one for one in found if one.item.id not in inside]
        batch.items, batch.matches = found, len(ids)
        batch.by_itself = op.filter.deleting
        batch.reached = ids[-1] if len(ids) == ITEMS_PER_CLEAN_UP else op.newest

    def _lock(self, tx: Transaction) -> Base:
        now = lock_open_base(tx, self._base, building=self.operation.builds)
        self._require_held(tx)
        return now

    def _require_held(self, tx: Transaction) -> None:
        if self._ticket is not None:
            require_held(tx, self._ticket)

    def _save(self, tx: Transaction, operation: BulkOperation) -> None:
        if self._ticket is not None:
            write_payload(tx, self._ticket, operation.to_json())


class PlannedItem(NamedTuple):
    """An item with its requests."""

    entry: ItemWithStatus
    requests: list[Request]


@dataclass(slots=True)
class ItemBatch:
    """The items of one transaction, which may run twice."""

    items: list[ItemWithStatus] = field(default_factory=list)  # without those below another match
    matches: int = 0
    reached: int = 0  # the last id of the batch
    by_itself: bool = False  # containers are requested without the items below them

    @property
    def containers(self) -> list[ItemWithStatus]:
        return [one for one in self.items if one.item.is_container and not self.by_itself]

    @property
    def single(self) -> list[ItemWithStatus]:
        return [one for one in self.items if not one.item.is_container or self.by_itself]


def _best_answer(before: Answer | None, answers: Sequence[AdmissionResult]) -> Answer | None:
    """Return the first accepted answer, or else the first one."""
    if before is not None and before[0] is Verdict.ACCEPTED:
        return before
    best = next((one for one in answers if one.accepted), None)
    if best is None and before is None and answers:
        best = answers[0]
    return before if best is None else (best.verdict, best.reason)


def _grouped(items: Sequence[int], answers: Sequence[AdmissionResult]) -> dict[int, list[AdmissionResult]]:
    found: dict[int, list[AdmissionResult]] = {}
    for item, answer in zip(items, answers, strict=True):
        found.setdefault(item, []).append(answer)
    return found
