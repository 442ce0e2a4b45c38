"""Applies one action to many items, in batches: items by id, all that match a filter, or all in the queue.

Items are processed oldest first. Each batch is selected in the transaction that requests its work, so items that no
longer match are skipped. Items added after the start are not included. An action on a container covers everything below
it, so items below it are not requested a second time.

An operation on the queue cancels all active jobs of a base, or retries everything in it that failed, with its sources
and cards. It reads the owners of slots instead of items.

A small selection is processed at once. A larger one becomes a job: the request stores the operation as the payload of
the job, and a worker applies it (`bulk_slot.py`). The transaction of each batch also stores the progress, so a job that
continues after a crash requests nothing twice.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import Counter
from dataclasses import asdict, dataclass, field, fields, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from holdfast.catalog import CONTAINERS, ID_LIMIT, ItemKind, read_items
from holdfast.clock import Moment
from holdfast.documents import list_statements
from holdfast.documents import statements as sql
from holdfast.documents.bulk_run import BulkRun
from holdfast.documents.lists import NO_FILTER, DocumentFilter, count_ids, newest_id, read_ids_after
from holdfast.documents.operations import SUBTREE_ACTIONS
from holdfast.documents.remove import build_delete_request
from holdfast.documents.requests import DEFAULT_REQUEST_OPTIONS, Action
from holdfast.documents.selection import (
    lock_open_base,
    require_unchanged,
    select_outermost,
)
from holdfast.engine import BULK, BulkResult, Operation, Request, SlotSpec, Status, Verdict
from holdfast.engine.store import (
    find_existing_owners,
    read_cancellable_jobs,
    read_retryable_owners,
    split_by_size,
)
from holdfast.errors import BadRequest, StateConflict, UnknownItem

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from holdfast.catalog import Base
    from holdfast.db import Transaction
    from holdfast.documents.bulk_run import ItemBatch
    from holdfast.documents.operations import DocumentOperations
    from holdfast.documents.remove import DocumentRemover
    from holdfast.documents.requests import ItemReply, RequestOptions
    from holdfast.engine import AdmissionResult, Ticket
    from holdfast.engine.store import QueuedOwner, SqlStore

ITEMS_AT_ONCE = 250  # a larger selection becomes a job
MAX_ACTIVE_JOBS = 20  # in a base
OWNERS = tuple(f"{BULK}:{number}" for number in range(1, MAX_ACTIVE_JOBS + 1))  # used again when their job has ended
REQUESTING = "requesting"  # the stage of a bulk job
FIRST = 0  # priority of bulk jobs: a request must not wait for the work before it
NO_MOMENT = Moment(0)
Answer = tuple[Verdict, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkOperation:
    """An action on many items, and its progress. It is stored as JSON in the payload of its job."""

    action: Action
    ids: tuple[int, ...] | None = None  # in order; None: the items of the filter
    filter: DocumentFilter = field(default_factory=DocumentFilter)
    queue: bool = False  # owners of slots instead of items: a cancel of all active jobs, or a retry of all that failed
    began: Moment = NO_MOMENT  # a cancel of the queue ends the jobs that existed then
    priority: int = DEFAULT_REQUEST_OPTIONS.priority
    requester: str = ""
    found: int = 0  # items that matched at the start
    newest: int = 0  # the last of them
    place: int = 0  # the last item that was processed; on the queue: the last owner
    done: int = 0
    total: int = 0  # `found`, and everything below containers that were requested
    answers: Mapping[Answer, int] = field(default_factory=dict)
    whole: frozenset[int] = frozenset()  # containers that were requested with everything below them
    waiting: tuple[int, ...] = ()  # those of them that are not processed yet, the next one first
    below: int = 0  # the last item that was processed below the first of these
    best: Answer | None = None  # the answer for it so far

    @property
    def finished(self) -> bool:
        return self.place >= self.newest and not self.waiting

    @property
    def builds(self) -> bool:
        """Whether a failed base refuses it."""
        return self.action not in (Action.CANCEL, Action.DELETE) and not self.filter.deleting

    @property
    def everything(self) -> bool:
        """Whether it covers the whole base."""
        return self.ids is None and self.filter.empty

    @property
    def fingerprint(self) -> str:
        """A hash of the request. Equal requests join while one of them is active."""
        wanted = [self.action, self.ids, asdict(self.filter), self.queue, self.began, self.priority, self.newest]
        return sha256(json.dumps(wanted, default=sorted).encode()).hexdigest()

    def read_next_ids(self, tx: Transaction, base: Base, size: int) -> list[int]:
        """Return the items of the next batch."""
        if self.ids is not None:
            first = bisect_right(self.ids, self.place)
            return list(self.ids[first : first + size])
        found = read_ids_after(tx, base, self.filter, self.place, size)
        return [id_ for id_ in found if id_ <= self.newest]

    def read_next_owners(self, tx: Transaction, base: Base, size: int) -> list[QueuedOwner]:
        """Return the owners of the next batch of an operation on the queue."""
        if self.action is Action.CANCEL:
            found = read_cancellable_jobs(tx, base.key, began=self.began, after=self.place, limit=size)
        else:
            found = read_retryable_owners(tx, base.key, self.filter.statuses, after=self.place, limit=size)
        batch: list[QueuedOwner] = next(split_by_size((one, one.size) for one in found), [])
        return [one for one in batch if one.id <= self.newest]

    def count(self, replies: Sequence[ItemReply | AdmissionResult]) -> dict[Answer, int]:
        """Return the answers with those of more replies."""
        return dict(Counter(self.answers) + Counter((reply.verdict, reply.reason) for reply in replies))

    def advance(
        self, batch: ItemBatch, replies: Sequence[ItemReply], *, waiting: tuple[int, ...] = (), below: int = 0
    ) -> BulkOperation:
        """Return the operation after a batch; `below` items were processed with their containers."""
        done = self.done + batch.matches - len(waiting) + below
        return replace(
            self,
            place=batch.reached,
            done=done,
            # Items below that match the filter were counted at the start, and are not found again.
            total=max(self.total, done) if self.ids is None else self.total + below,
            answers=self.count(replies),
            whole=self.whole | {one.item.id for one in batch.containers},
            waiting=waiting,
        )

    def advance_in_queue(self, batch: Sequence[QueuedOwner], answers: Sequence[AdmissionResult]) -> BulkOperation:
        """Return the operation on the queue after a batch."""
        return replace(
            self,
            place=batch[-1].id if batch else self.newest,
            done=self.done + len(answers),
            answers=self.count(answers),
        )

    def to_json(self) -> str:
        # The job outlives its documents, so it does not keep the text of a filter that may be one of their names.
        filter_ = DocumentFilter() if self.finished else self.filter
        values = {part.name: getattr(self, part.name) for part in fields(self)} | {
            "filter": asdict(filter_),
            "ids": None if self.ids is None else self.ids[bisect_right(self.ids, self.place) :],
            "answers": [[*answer, number] for answer, number in self.answers.items()],
        }
        return json.dumps(values, default=sorted, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> BulkOperation:
        values: dict[str, Any] = json.loads(text)
        values |= {
            "action": Action(values["action"]),
            "ids": None if values["ids"] is None else tuple(values["ids"]),
            "filter": DocumentFilter(**values["filter"]),
            "answers": {(Verdict(verdict), reason): number for verdict, reason, number in values["answers"]},
            "whole": frozenset(values["whole"]),
            "waiting": tuple(values["waiting"]),
            "best": values["best"] and (Verdict(values["best"][0]), values["best"][1]),
        }
        return cls(**values)


def parse_bulk_job(owner: str, payload: str | None) -> BulkOperation | None:
    """Return the operation of a bulk job; None for other jobs."""
    return BulkOperation.from_json(payload) if owner in OWNERS and payload else None


class BulkOperations:
    """Prepares bulk operations, and applies them or starts their jobs."""

    def __init__(self, store: SqlStore, operations: DocumentOperations, remover: DocumentRemover) -> None:
        self._store = store
        self._operations = operations
        self._remover = remover

    def count(self, base: Base, action: Action, filter_: DocumentFilter) -> int:
        """Return how many items an action would affect."""
        return self._prepare_filter(base, action, filter_, DEFAULT_REQUEST_OPTIONS).found

    def request_matching(
        self, base: Base, action: Action, filter_: DocumentFilter, options: RequestOptions = DEFAULT_REQUEST_OPTIONS
    ) -> BulkResult:
        """Apply an action to all items that match a filter, or start the job that does.

        The result counts all matches, and the answers for matches that are below no other match.
        """
        operation = self._prepare_filter(base, action, filter_, options)
        if self._is_large(base, operation):
            return self.start(base, operation)
        answers = Counter((reply.verdict, reply.reason) for reply in self._apply(base, operation))
        return BulkResult(found=operation.found, answers=dict(answers))

    def request_ids(
        self, base: Base, action: Action, ids: Sequence[int], options: RequestOptions = DEFAULT_REQUEST_OPTIONS
    ) -> list[ItemReply] | BulkResult:
        """Apply an action to items, and return a reply for each item below no other one, or start the job that does."""
        operation = self._prepare_ids(base, action, ids, options)
        if self._is_large(base, operation):
            return self.start(base, operation, unless_changed=options.unless_changed)
        if len(ids) == 1:
            return self._request_one(base, action, ids[0], options)
        replies = {reply.item: reply for reply in self._apply(base, operation)}
        return [replies[id_] for id_ in dict.fromkeys(ids) if id_ in replies]

    def clear(
        self, base: Base, others: Sequence[str] = (), options: RequestOptions = DEFAULT_REQUEST_OPTIONS
    ) -> BulkResult:
        """Delete all items of a base, and the slots of `others` of its owners, or start the job that does.

        A small base is empty at once. The transaction that starts a job also removes the slots of `others`.
        """
        with self._store.database.reading() as tx:
            found, newest = count_ids(tx, base, NO_FILTER), newest_id(tx, base, NO_FILTER)
        if found > ITEMS_AT_ONCE:
            operation = make_operation(Action.DELETE, options, found=found, newest=newest)
            return self.start(base, operation, deleted_owners=others)
        self._remover.clear(base, others, requester=options.requester)
        return BulkResult(found=found, answers={(Verdict.ACCEPTED, "delete"): found} if found else {})

    def start(
        self,
        base: Base,
        operation: BulkOperation,
        *,
        unless_changed: Collection[int] | None = None,
        deleted_owners: Sequence[str] = (),
    ) -> BulkResult:
        """Store an operation as a job, or join an active job with the same operation."""

        def write(tx: Transaction) -> list[Request]:
            now = lock_open_base(tx, base, building=operation.builds)
            for item in read_items(tx, operation.ids or ()) if unless_changed is not None else ():
                require_unchanged(tx, now, item, unless_changed)
            job = _build_job_request(now, _choose_owner(tx, now, operation), operation)
            others = find_existing_owners(tx, now.key, deleted_owners)
            return [job, *(build_delete_request(now.key, owner, operation.requester) for owner in others)]

        started = self._store.admit_with(write)[0]
        return BulkResult(found=operation.found, job=started.job)

    def run(self, base: Base, operation: BulkOperation, ticket: Ticket | None = None) -> BulkRun:
        """Return an operation, ready to continue; `ticket` is the ticket of its job."""
        return BulkRun(self._store, self._operations, self._remover, base, operation, ticket)

    def _apply(self, base: Base, operation: BulkOperation) -> list[ItemReply]:
        run = self.run(base, operation)
        replies: list[ItemReply] = []
        while not run.operation.finished:
            replies += run.step()
        return replies

    def _request_one(self, base: Base, action: Action, id_: int, options: RequestOptions) -> list[ItemReply]:
        if action is Action.DELETE:
            return self._remover.delete(base, [id_], requester=options.requester, unless_changed=options.unless_changed)
        return self._operations.request(base, [id_], action, options)

    def _is_large(self, base: Base, operation: BulkOperation) -> bool:
        """Return whether an operation covers too many items to be applied in the request."""
        if operation.found > ITEMS_AT_ONCE:
            return True
        if operation.filter.deleting or not operation.found:
            return False
        with self._store.database.reading() as tx:
            ids = operation.ids or read_ids_after(tx, base, operation.filter, 0, ITEMS_AT_ONCE)
            values: dict[str, Any] = {"base_id": base.id, "ids": json.dumps(ids), "limit": ITEMS_AT_ONCE + 1}
            ((covered,),) = tx.run(list_statements.COUNT_COVERED, **values)
        return bool(covered > ITEMS_AT_ONCE)

    def _prepare_filter(
        self, base: Base, action: Action, filter_: DocumentFilter, options: RequestOptions
    ) -> BulkOperation:
        meant = _resolve_filter(action, filter_)
        with self._store.database.reading() as tx:
            if meant.parent and any(item.deleting for item in select_outermost(tx, base, [meant.parent])):
                raise UnknownItem(base.name, [meant.parent])
            found, newest = count_ids(tx, base, meant), newest_id(tx, base, meant)
        return make_operation(action, options, filter=meant, found=found, newest=newest)

    def _prepare_ids(self, base: Base, action: Action, ids: Sequence[int], options: RequestOptions) -> BulkOperation:
        """Check that all ids are items of the base, with one statement for any number of them."""
        wanted = tuple(sorted(set(ids)))
        known: dict[str, Any] = {"base_id": base.id, "ids": json.dumps([id_ for id_ in wanted if 0 < id_ < ID_LIMIT])}
        with self._store.database.reading() as tx:
            ((found, with_source),) = tx.run(list_statements.COUNT_SELECTED, **known)
            if found < len(wanted):
                there = {id_ for (id_,) in tx.run(list_statements.READ_SELECTED, **known)}
                raise UnknownItem(base.name, [id_ for id_ in dict.fromkeys(ids) if id_ not in there])
            if action is Action.REFRESH and with_source < found:
                ((name,),) = tx.run(list_statements.FIND_WITHOUT_SOURCE, **known)
                raise BadRequest("not_from_a_source", name=name)
        return make_operation(action, options, ids=wanted, found=found, newest=max(wanted, default=0))


def _build_job_request(base: Base, owner: str, operation: BulkOperation) -> Request:
    return Request(
        base=base.key,
        owner=owner,
        operation=Operation.FORCE,
        slots=(SlotSpec(BULK),),
        fingerprint=operation.fingerprint,
        priority=FIRST,
        requester=operation.requester,
        payload=operation.to_json(),
        uses_quota=False,
    )


def _choose_owner(tx: Transaction, base: Base, operation: BulkOperation) -> str:
    """Return the owner of an active job with the same operation, or else the first owner without an active job."""
    active = {Status.QUEUED, Status.INDEXING}
    rows = tx.run(sql.READ_OWNERS, [[owner] for owner in OWNERS], base=base.key)
    busy = {owner: mark for owner, mark, status in rows if status in active}
    same = next((owner for owner, mark in busy.items() if mark == operation.fingerprint), None)
    free = next((owner for owner in OWNERS if owner not in busy), None)
    if same is None and free is None:
        raise StateConflict("too_many_bulk_jobs", base=base.name, jobs=MAX_ACTIVE_JOBS)
    return same or free or ""


def make_operation(action: Action, options: RequestOptions, *, found: int, **selection: Any) -> BulkOperation:
    return BulkOperation(
        action=action,
        priority=options.priority,
        requester=options.requester,
        found=found,
        total=found,
        **selection,
    )


def _resolve_filter(action: Action, filter_: DocumentFilter) -> DocumentFilter:
    """Return the filter that the action applies; refuse combinations that make no sense."""
    if filter_.deleting and action is not Action.RETRY:
        raise BadRequest("only_retry")
    if action is Action.DELETE and filter_.empty:
        raise BadRequest("delete_needs_filter")
    if action in SUBTREE_ACTIONS and filter_.states is not None and filter_.kinds is None:
        return replace(filter_, kinds=frozenset(ItemKind) - CONTAINERS)
    return filter_
