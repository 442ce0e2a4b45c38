"""Reads documents: lists, statuses, counts, and the details of one document.

Each method reads one snapshot of a base that is not being deleted. Hidden items are left out, except in lists of items
that are being deleted.
"""

from __future__ import annotations

import json
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from holdfast.catalog import ID_LIMIT, SOURCE_PREFIX, item_from_row, parse_item_id, read_base
from holdfast.documents import list_statements as sql
from holdfast.documents import text as texts
from holdfast.documents.lists import (
    LARGEST_PAGE,
    NO_FILTER,
    NO_LIMIT,
    Order,
    parse_cursor,
    read_containers,
    read_ids,
)
from holdfast.documents.selection import require_open
from holdfast.documents.status import damage_of, derive_document_status, document_of, index_of
from holdfast.engine import Status, describe_reasons
from holdfast.engine.store import slot_from_row
from holdfast.errors import BadRequest, UnknownItem
from holdfast.indexes import CONTENT, describe_not_enabled
from holdfast.paging import MAX_COUNT, Page

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from holdfast.blobs import BlobStore
    from holdfast.catalog import Base, Item
    from holdfast.db import Transaction
    from holdfast.documents.lists import ContainerStatus, DocumentFilter
    from holdfast.documents.status import Document, DocumentStatus
    from holdfast.documents.text import DocumentText, OriginalFile, PassageInContext
    from holdfast.engine import Slot
    from holdfast.engine.store import Job, SqlStore
    from holdfast.indexes import NotEnabled

MAX_STATUSES_PER_CALL = 1_000
MAX_JOBS = 10  # shown for one item


class ListedItem(NamedTuple):
    """An item and its status."""

    item: Item
    status: DocumentStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentCounts:
    """The number of documents by status.

    A base may have millions of documents, so at most 10,000 of each status are counted, unless the caller wants exact
    numbers. `more` names the statuses that have at least as many documents as counted. Then `documents` is also a lower
    limit.
    """

    documents: int  # without containers
    by_status: dict[Status, int]
    containers: int  # at most 10,000 are counted
    bytes: int | None  # None: too many documents to add up
    more: list[Status]


class DocumentQueries:
    def __init__(
        self, store: SqlStore, blobs: BlobStore, find_not_enabled: Callable[[Base], Mapping[str, NotEnabled]]
    ) -> None:
        self._store = store
        self._find_not_enabled = find_not_enabled
        self._blobs = blobs

    def list(
        self,
        base: Base,
        filter_: DocumentFilter = NO_FILTER,
        *,
        order: Order = Order.ACTIVE,
        reverse: bool = False,
        cursor: str | None = None,
        page: int = 1,
        size: int = 50,
    ) -> Page[Document]:
        """Return a page of items, by its number or by the cursor of the page before it.

        Example:
            page = queries.list(base, DocumentFilter(states=["failed"]), order=Order.NAME)
        """
        offset = (page - 1) * size
        if not 1 <= size <= LARGEST_PAGE or not 0 <= offset < MAX_COUNT:
            raise BadRequest("bad_page", page=page, size=size, largest=LARGEST_PAGE, reach=MAX_COUNT)
        if reverse and (order is Order.ACTIVE or filter_.deleting):
            raise BadRequest("not_reversible")
        down = reverse if order in (Order.ACTIVE, Order.NAME) else not reverse
        place = None if cursor is None else parse_cursor(cursor, filter_, order, down=down)
        with self._reading(base) as (tx, now):
            if filter_.parent:
                self._read_item_with_slots(tx, now, filter_.parent)
            found = read_ids(tx, now, filter_, order, down=down, place=place, offset=offset, size=size)
            rows = self._rows(tx, now, found.ids, found.containers, deleting=filter_.deleting)
        return Page(
            items=[document_of(*rows[id_], now.name) for id_ in found.ids],
            next_cursor=found.cursor,
            total=found.total.number,
            total_is_exact=found.total.is_exact,
        )

    def names(self, ids: Iterable[int]) -> dict[int, str]:
        """Return the names of items of any base, also while they are being deleted; unknown items are left out."""
        with self._store.database.reading() as tx:
            return dict(tx.run(sql.READ_NAMES, ids=json.dumps(sorted(set(ids)))))

    def statuses(self, base: Base, ids: Iterable[int]) -> Sequence[DocumentStatus]:
        """Return the statuses of items in the given order; unknown and deleted items are left out."""
        wanted = list(dict.fromkeys(ids))
        if len(wanted) > MAX_STATUSES_PER_CALL:
            raise BadRequest("too_many_ids", count=len(wanted), most=MAX_STATUSES_PER_CALL)
        for id_ in wanted:
            if not 0 < id_ < ID_LIMIT:
                raise BadRequest("bad_document_id", document=id_)
        with self._reading(base) as (tx, now):
            rows = self._rows(tx, now, wanted)
            placed = self._add_queue_positions(tx, [row.status for row in rows.values()])
        return [placed[id_] for id_ in wanted if id_ in placed]

    def counts(self, base: Base, *, exact: bool = False) -> DocumentCounts:
        """Count the documents of a base. The time of an exact count grows with the base."""
        with self._reading(base) as (tx, now):
            return _read_counts(tx, [now.id], NO_LIMIT if exact else MAX_COUNT)[now.id]

    def counts_of_many(self, bases: Iterable[Base]) -> dict[int, DocumentCounts]:
        """Count the documents of several bases, by base id. Bases that were deleted meanwhile are left out."""
        with self._store.database.reading() as tx:
            return _read_counts(tx, [base.id for base in bases], MAX_COUNT)

    def read_document(self, base: Base, item: int) -> Document:
        """Return one document with all details; raise `StateConflict` if its row is damaged."""
        with self._reading(base) as (tx, now):
            row, slots = self._read_item_with_slots(tx, now, item)
            damaged = damage_of(row.item)
            if damaged is not None:
                raise damaged
            owners = {slot.owner: slot for slot in slots}
            (shown,) = self._add_queue_positions(tx, [row.status]).values()
            listed = {
                slot.owner_id: dict(tx.run(sql.COUNT_CHUNKS_BY_BUILD, owner_id=slot.owner_id))
                for slot in owners.values()
            }
            recipes = json.dumps([slot.recipe for slot in slots if slot.recipe is not None])
            specs = {id_: _describe_recipe(spec) for id_, spec in tx.run(sql.READ_SPECS, ids=recipes)}
            content = next((slot for slot in slots if slot.kind == CONTENT and slot.served), None)
            waits = [why for owner in owners for why in self._store.explain(now.key, owner)]
            return document_of(
                row.item,
                shown,
                now.name,
                waiting_for=describe_reasons(waits, now.name),
                chunks=listed[content.owner_id].get(content.source, 0) if content else 0,
                indexes=[
                    index_of(
                        slot,
                        attempts_max=self._store.rules.retry.max_attempts,
                        chunks=listed[slot.owner_id].get(slot.source, 0),
                        recipe=specs.get(slot.recipe),
                    )
                    for slot in slots
                ],
                not_enabled={} if row.item.is_container else describe_not_enabled(self._find_not_enabled(now)),
                jobs=[job.id for job in self._jobs(owners.values())],
            )

    def original(self, base: Base, item: int) -> OriginalFile:
        """Return the file of a document, as it was uploaded or fetched."""
        with self._reading(base) as (tx, now):
            found = self._read_item_with_slots(tx, now, item)[0].item
        return texts.describe_original(self._blobs, found)

    def text(self, base: Base, item: int, *, start: int = 0, limit: int = 50_000) -> DocumentText:
        """Return a part of the served text of a document."""
        with self._reading(base) as (tx, now):
            row, slots = self._read_item_with_slots(tx, now, item)
            return texts.read_text(tx, row.item, slots, start=start, limit=limit)

    def passage(self, base: Base, document: int, chunk: int, *, around: int = 1_000) -> PassageInContext:
        """Return a served chunk, such as a hit or a citation names it, with the text around it."""
        with self._reading(base) as (tx, now):
            row, _ = self._read_item_with_slots(tx, now, document)
            return texts.read_passage(tx, now, row.item, chunk, around=around)

    @contextmanager
    def open_item(self, base: Base, item: int) -> Iterator[tuple[Transaction, Item, Sequence[Slot]]]:
        """Open a snapshot in which a caller reads more about one item, with the item and its slots."""
        with self._reading(base) as (tx, now):
            row, slots = self._read_item_with_slots(tx, now, item)
            yield tx, row.item, slots

    @contextmanager
    def _reading(self, base: Base) -> Iterator[tuple[Transaction, Base]]:
        """Open a snapshot, with the base as it is in it."""
        with self._store.database.shared_reading() as tx:
            yield tx, require_open(read_base(tx, base.id), base.name)

    def _read_item_with_slots(self, tx: Transaction, base: Base, item: int) -> tuple[ListedItem, Sequence[Slot]]:
        if not 0 < item < ID_LIMIT:
            raise UnknownItem(base.name, [item])
        slots = _slots(tx, base, [item])
        rows = self._rows(tx, base, [item], slots=slots)
        if item not in rows:
            raise UnknownItem(base.name, [item])
        return rows[item], slots.get(item, [])

    def _rows(
        self,
        tx: Transaction,
        base: Base,
        ids: Sequence[int],
        known: Mapping[int, ContainerStatus] | None = None,
        *,
        deleting: bool = False,
        slots: Mapping[int, Sequence[Slot]] | None = None,
    ) -> dict[int, ListedItem]:
        """Read items with their statuses, in a constant number of statements.

        `deleting` selects hidden items instead of visible ones. `known` has the containers' statuses if the caller has
        read them.
        """
        rows = [
            (item_from_row(row[:-1]), row[-1])
            for row in tx.run(sql.READ_ITEMS_WITH_STATUS, base_id=base.id, ids=json.dumps(ids))
        ]
        there = [(item, status) for item, status in rows if item.deleting == deleting]
        holding = [item.id for item, _ in there if item.is_container]
        if known is None:
            known = read_containers(tx, base, holding) if holding and not deleting else {}
        slots_by_item = _slots(tx, base, ids) if slots is None else slots
        found: dict[int, ListedItem] = {}
        for item, status in there:
            container = None if deleting else known.get(item.id)
            current = container.status if container else Status(status or Status.NOT_INDEXED)
            shown = derive_document_status(
                item,
                Status.DELETING if deleting else current,
                slots_by_item.get(item.id, []),
                searchable=container.searchable if container else None,
            )
            found[item.id] = ListedItem(item=item, status=shown)
        return found

    def _add_queue_positions(self, tx: Transaction, statuses: Sequence[DocumentStatus]) -> dict[int, DocumentStatus]:
        """Return the statuses by id, with the queue position of queued items, counted up to `MAX_COUNT`."""
        jobs = [one.job for one in statuses if one.status is Status.QUEUED and one.job is not None]
        ahead = dict.fromkeys(jobs, MAX_COUNT)
        if jobs:
            ahead |= dict(tx.run(sql.COUNT_JOBS_AHEAD, jobs=json.dumps(jobs), limit=MAX_COUNT))
        return {
            one.id: replace(one, queue_position=ahead.get(one.job or "") if one.status is Status.QUEUED else None)
            for one in statuses
        }

    def _jobs(self, slots: Iterable[Slot]) -> Sequence[Job]:
        """Return the newest jobs of an item, of both its owners."""
        found = [job for slot in slots for job in self._store.list_jobs_of_owner(slot.owner_id, MAX_JOBS)]
        return sorted(found, key=lambda job: (job.created_at, job.id), reverse=True)[:MAX_JOBS]


def _slots(tx: Transaction, base: Base, ids: Sequence[int]) -> dict[int, list[Slot]]:
    """Read the slots of items, of both their owners."""
    owners = [name for id_ in ids for name in (str(id_), f"{SOURCE_PREFIX}{id_}")]
    found: dict[int, list[Slot]] = {}
    for *columns, key, owner in tx.run(sql.READ_SLOTS, base=base.key, owners=json.dumps(owners)):
        found.setdefault(parse_item_id(owner) or 0, []).append(slot_from_row(columns, key, owner))
    return found


def _read_counts(tx: Transaction, bases: Sequence[int], limit: int) -> dict[int, DocumentCounts]:
    """Count up to the limit for each status. Hidden items that are still counted raise the limit by their number."""
    hidden: dict[int, Counter[str | None]] = {base: Counter() for base in bases}
    for base, status, number in tx.run(sql.COUNT_HIDDEN_BY_STATUS, bases=json.dumps(bases)):
        hidden[base][status] = number
    raised = min(NO_LIMIT, limit + max((one.total() for one in hidden.values()), default=0))
    found: dict[int, DocumentCounts] = {}
    for base, *numbers in tx.run(sql.COUNT_BY_STATUS, bases=json.dumps(bases), limit=raised):
        counted = dict(zip(sql.COUNTED_STATUSES, numbers, strict=True))
        by_status = {status: min(limit, counted[status] - hidden[base][status]) for status in Status}
        found[base] = DocumentCounts(
            documents=sum(by_status.values()),
            by_status=by_status,
            containers=min(limit, counted[None] - hidden[base][None]),
            bytes=None,
            more=[status for status in Status if by_status[status] >= limit],
        )
    exact = [base for base, counts in found.items() if not counts.more]
    sizes: dict[int, int] = dict(tx.run(sql.SUM_SIZES, bases=json.dumps(exact)))
    return found | {base: replace(found[base], bytes=int(sizes.get(base, 0))) for base in exact}


def _describe_recipe(spec: str) -> str:
    """Return the parts of a recipe that have a value, as text."""
    parts = json.loads(spec)
    return ", ".join(f"{name} {value}" for name, value in parts.items() if value not in (None, "", [], {}))
