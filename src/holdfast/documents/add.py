"""What people put in: files, notes, pages and folders, each with its own answer.

Bytes are safe on the disk before a row names them, and recorded before they are written (`catalog.file_records`).
Names and contents that are there already are found under the lock of the base, in the transaction that writes the rows
and admits the work: of many who add the same thing at once, one creates it and the others are told of it.
"""

from __future__ import annotations

import io
import json
import math
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from itertools import count
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from holdfast.catalog import (
    Item,
    ItemKind,
    OnDuplicate,
    UploadExpired,
    fault_to_json,
    fold_name,
    item_from_row,
    parse_blob_id,
    read_items,
    read_items_by_location,
    refuse_condemned,
    release_file_records,
)
from holdfast.catalog import conditions as sql
from holdfast.documents import statements as documents_sql
from holdfast.documents.selection import lock_open_base, select_items_with_slots
from holdfast.engine import (
    DEFAULT_PRIORITY,
    QUOTA_EXHAUSTED,
    Event,
    Fault,
    Operation,
    Request,
    SlotSpec,
    Status,
    Verdict,
)
from holdfast.engine.store import make_storable, read_remaining_quota, record_events, record_refusals, require_held
from holdfast.errors import BadRequest, HoldfastError, RetryLater, StoreError, StoreFull, UnknownItem, WorkError
from holdfast.indexes import CONTENT
from holdfast.llm import release_holds
from holdfast.wellformed import to_nfc

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from holdfast.catalog import Base, Blob, ByteReader, Catalog, FileRecords, Location
    from holdfast.db import Transaction
    from holdfast.engine import AdmissionResult, JobId, Ticket
    from holdfast.engine.store import SqlStore
    from holdfast.indexes import CostEstimator, IndexRegistry

ITEMS_PER_TRANSACTION = 100  # items added in one transaction
LONGEST_NAME = 1_000
QUOTA_RETRY_AFTER = timedelta(minutes=10)  # when it is seen whether the quota of a new day allows more
SOURCE_SLOT = "source"  # the kind of the slot that looks at where an item comes from


class Opener(Protocol):
    """Opens a file when it is its turn; it may refuse, and may say at the end that the file changed meanwhile."""

    def __call__(self) -> AbstractContextManager[ByteReader]:
        """Open it."""
        ...


class Upload(NamedTuple):
    """Something on its way in: bytes of our own, or the place where it comes from."""

    name: str
    content: bytes | ByteReader | Opener | None = None
    metadata: Mapping[str, Any] = {}
    kind: ItemKind = ItemKind.FILE
    source: str | None = None
    seen: str | None = None  # how the source looked when the bytes were read
    every: int | None = None  # seconds after which the source is looked at again
    problem: Fault | None = None  # why it cannot be indexed: it becomes a failed item, and no work
    parent: int = 0  # the container it stands in; 0: none
    local: bool = False  # the local user named this folder, so HOLDFAST_FOLDER_ROOTS does not limit it

    @property
    def location(self) -> tuple[int, str]:
        """Where it stands: only one thing can stand there."""
        return self.parent, self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemReply:
    """What came of one item of a request."""

    verdict: Verdict
    reason: str
    status: Status = Status.NOT_INDEXED
    name: str = ""
    item: int | None = None  # the one that was added, or that stands in the way
    job: JobId | None = None
    generation: int | None = None

    @classmethod
    def from_admission(cls, name: str, item: int | None, result: AdmissionResult) -> ItemReply:
        """Return the reply for an item whose request the engine has decided."""
        return cls(
            verdict=result.verdict,
            reason=result.reason,
            status=result.status,
            name=name,
            item=item,
            job=result.job,
            generation=result.generation,
        )

    @property
    def accepted(self) -> bool:
        """Something was written."""
        return self.verdict is Verdict.ACCEPTED

    @property
    def quota_exhausted(self) -> bool:
        """The quota of the base keeps it out today."""
        return self.reason == QUOTA_EXHAUSTED.reason


@dataclass(frozen=True, slots=True, kw_only=True)
class AddOptions:
    """How things are added."""

    on_duplicate: OnDuplicate | None = None  # None: as the base has it
    refuse_copies: bool = True  # what has no source is refused where its content is there already, under whatever name
    index: bool | None = None  # at once; None: as the base has it
    requester: str = ""
    priority: int = DEFAULT_PRIORITY
    cause: str = "user"
    ticket: Ticket | None = None  # of the work that adds this; nothing is added when it no longer holds
    restoring: bool = False  # into a base that is not open yet


DEFAULT_ADD_OPTIONS = AddOptions()


class StaleLookup(Exception):
    """What was there is not what it was when we looked."""


class DocumentAdder:
    """Adds items to bases."""

    def __init__(self, store: SqlStore, catalogue: Catalog, files: FileRecords, indexes: IndexRegistry) -> None:
        self._store = store
        self._catalog = catalogue
        self._files = files
        self._indexes = indexes
        self._costs = indexes.cost_estimator

    def add(self, base: Base, uploads: Iterable[Upload], terms: AddOptions = DEFAULT_ADD_OPTIONS) -> list[ItemReply]:
        """Add items; names and contents that are there already are treated as the base or the terms say.

        Each item has its own answer, in order.
        """
        replies: list[ItemReply] = []
        for portion in _portions(uploads):
            try:
                replies += self._add(base, portion, terms)
            except StoreFull as error:
                if not replies:
                    raise
                raise StoreFull(
                    f"The disk became full. The first {len(replies)} items of this request were processed, nothing of "
                    "the others was written; free some space and send those again."
                ) from error
        return replies

    def put(self, base: Base, uploads: Iterable[Upload], *, requester: str = "", priority: int = 5) -> list[ItemReply]:
        """Add items or change those of the same name, as whoever names them himself does."""
        terms = AddOptions(
            on_duplicate=OnDuplicate.REPLACE, refuse_copies=False, requester=requester, priority=priority
        )
        return self.add(base, uploads, terms)

    def slot_specs(self, base: Base) -> tuple[SlotSpec, ...]:
        """Return what a document of this base should have."""
        can, _ = self._indexes.check_enabled(base)
        return (SlotSpec(CONTENT), *(SlotSpec(kind, CONTENT) for kind in can))

    def _add(self, base: Base, uploads: Sequence[Upload], terms: AddOptions) -> list[ItemReply]:
        """Add items of different places; bytes that are there already are not written again."""
        try:
            return self._write_batch(base, terms, uploads, self._find_unchanged_digests(base, uploads))
        except StaleLookup:  # something was changed or deleted after we looked
            return self._write_batch(base, terms, uploads, {})

    def _write_batch(
        self, base: Base, terms: AddOptions, uploads: Sequence[Upload], same: Mapping[Location, str]
    ) -> list[ItemReply]:
        """Make bytes safe, then write rows and admit the work."""
        cases = [PendingUpload(upload, same.get(upload.location)) for upload in uploads]
        recorded = self._files.record(sum(case.has_bytes for case in cases))
        shipment = UploadBatch(base, terms, self.slot_specs, cases, files=self._files, costs=self._costs)
        vain: list[str] = []
        try:
            with self._files.blobs.write_batch(recorded.next_id, recorded.extend) as put:
                vain += [blob.name for case in cases for blob in case.take_bytes(put)]
        except BaseException:  # nothing was asked of the database, and no file is left
            self._files.remove([], recorded.ids)
            raise
        try:
            answers = self._store.admit_with(shipment.write)
        except (HoldfastError, StaleLookup) as error:
            # After other errors of the database the outcome may be unknown: the records are settled when they are due.
            if isinstance(error, UploadExpired | StoreFull) or not isinstance(error, StoreError):
                self._files.remove([*vain, *(case.blob.name for case in cases if case.blob)], recorded.ids)
            raise
        self._files.remove([*vain, *shipment.unused_blobs], set(recorded.ids) - shipment.named)
        return shipment.replies(answers)

    def _find_unchanged_digests(self, base: Base, uploads: Sequence[Upload]) -> dict[Location, str]:
        """Return the digests of those uploads whose bytes the item in that place has already."""
        given = {one.location: one.content for one in uploads if isinstance(one.content, bytes)}
        known = self._catalog.find_items(base, list(given)) if given else {}
        prints = {place: sha256(given[place]).hexdigest() for place in known}
        return {place: digest for place, digest in prints.items() if known[place].digest == digest}


class PendingUpload:
    """One upload on its way to an answer."""

    def __init__(self, upload: Upload, same: str | None) -> None:
        self.upload = upload
        self.blob: Blob | None = None
        self.digest = same  # of bytes that are there already, until there are others
        self.name = upload.name  # under which it stands, or would
        self.verdict, self.reason = Verdict.ACCEPTED, "added"
        self.item: Item | PendingUpload | None = (
            None  # the one it changes or that stands in its way; a case is not written yet
        )
        self.id: int | None = None

    @property
    def has_bytes(self) -> bool:
        """It brings bytes that are not there already."""
        return self.upload.content is not None and self.digest is None

    def take_bytes(self, put: Callable[[ByteReader], Blob]) -> Iterator[Blob]:
        """Make our bytes safe, unless they are there already; yield what was written in vain.

        What cannot be read becomes an item that says so.
        """
        if self.upload.content is None or not self.has_bytes:
            return
        blob: Blob | None = None
        try:
            with _opened(self.upload.content) as file:
                blob = put(file)
        except WorkError as error:
            self.upload = self.upload._replace(content=None, problem=Fault(error.code, error.params), seen=None)
            yield from [blob] if blob else []
        else:
            self.blob, self.digest = blob, blob.digest

    def decide(self, there: Item | None, copy: Item | PendingUpload | None, on_duplicate: OnDuplicate) -> None:
        """Tell what becomes of it, given the item of its name and another one of its content."""
        self.name, self.verdict, self.reason = self.upload.name, Verdict.ACCEPTED, "added"
        self.item = there or copy
        if there is not None and self.upload.problem is not None:
            self.verdict, self.reason = Verdict.REJECTED, self.upload.problem.code  # what is there is kept
        elif there is not None:
            alike = there.kind is self.upload.kind
            if alike and (self.digest, self.upload.source) == (there.digest, there.source):
                self.verdict, self.reason = Verdict.SKIPPED, "same_content"
            elif alike and on_duplicate is OnDuplicate.REPLACE:
                self.reason = "changed"
            elif on_duplicate is OnDuplicate.RENAME:
                self.item, self.reason = None, "renamed"
            else:
                self.verdict, self.reason = Verdict.REJECTED, "name_taken"
        elif copy is not None and on_duplicate is OnDuplicate.RENAME:
            self.item = None
        elif copy is not None:
            self.verdict, self.reason = Verdict.REJECTED, "content_exists"

    @property
    def new(self) -> bool:
        """It becomes an item of its own."""
        return self.reason in ("added", "renamed")

    @property
    def written(self) -> bool:
        """A row names its bytes."""
        return self.new or self.reason == "changed"

    @property
    def item_id(self) -> int | None:
        """The item it became, or that stands in its way."""
        return self.id if self.item is None else self.item.id


class UploadBatch:
    """Items of different names on their way into one transaction."""

    def __init__(
        self,
        base: Base,
        terms: AddOptions,
        slots: Callable[[Base], tuple[SlotSpec, ...]],
        cases: Sequence[PendingUpload],
        *,
        files: FileRecords,
        costs: CostEstimator,
    ) -> None:
        self.base = base
        self._costs = costs
        self.options = terms
        self.slot_specs_of = slots
        self.specs: tuple[SlotSpec, ...] = ()  # as the base wants them when it is our turn
        self.uploads = cases
        self.unused_blobs: list[str] = []  # blobs that no row names after the commit
        self.named: set[str] = set()  # ids of the blobs that rows name then
        self._files = files
        self._asked: list[PendingUpload] = []

    def write(self, tx: Transaction) -> list[Request]:
        """Decide about each upload, write the rows, and return what is asked for."""
        self.base = base = self._lock_and_check_parents(tx)
        self.specs = self.slot_specs_of(base)
        on_duplicate = self.options.on_duplicate or base.settings.on_duplicate
        known = read_items_by_location(tx, base, [case.upload.location for case in self.uploads])
        copies = self._copies(tx)
        taken = set(known) | {case.upload.location for case in self.uploads}
        for case in self.uploads:
            there = known.get(case.upload.location)
            if case.blob is None and case.digest is not None and (there is None or there.digest != case.digest):
                raise StaleLookup
            case.decide(there, copies.get(case.digest or ""), on_duplicate)
            if case.reason == "renamed":
                case.name = self._find_free_name(tx, case.upload.location, taken)
            if case.new and self._distinct(case):
                copies[case.digest or ""] = case
        self._refuse_beyond_quota(tx)
        blobs = [case.blob.name for case in self.uploads if case.blob and case.written]
        release_file_records(tx, blobs)
        refuse_condemned(tx, blobs)
        self.named = {parse_blob_id(name) for name in blobs}
        self._change(tx, [case for case in self.uploads if case.reason == "changed"])
        self._create(tx, [case for case in self.uploads if case.new])
        self._record_seen_sources(tx, [case for case in self.uploads if case.reason == "same_content"])
        self._audit(tx, [case for case in self.uploads if case.verdict is Verdict.REJECTED])
        self.unused_blobs += [case.blob.name for case in self.uploads if case.blob and not case.written]
        asked = [(case, self._request(tx, case)) for case in self.uploads]
        self._asked = [case for case, request in asked if request is not None]
        return [request for _, request in asked if request is not None]

    def replies(self, answers: Sequence[AdmissionResult]) -> list[ItemReply]:
        """Return what came of each, in order; `answers` belong to those who had a request."""
        admitted = dict(zip(map(id, self._asked), answers, strict=True))
        return [self._reply(case, admitted.get(id(case))) for case in self.uploads]

    def _lock_and_check_parents(self, tx: Transaction) -> Base:
        """Take the turn of the base, and see that what we add to is there."""
        self.unused_blobs.clear()
        base = lock_open_base(tx, self.base, building=not self.options.restoring)
        if self.options.ticket is not None:
            require_held(tx, self.options.ticket)
        parents = {case.upload.parent for case in self.uploads} - {0}
        found = {item.id: item for item in read_items(tx, parents) if item.base == base.id and not item.deleting}
        if parents - found.keys():
            raise UnknownItem(base.name, sorted(parents - found.keys()))
        for upload in (case.upload for case in self.uploads):
            above = found.get(upload.parent)
            if above is not None and above.kind is ItemKind.DIRECTORY and above.source and _is_disk_folder(upload):
                raise BadRequest(
                    f"{above.name!r} is a folder that is synced, and holds what lies in it; add the other beside it.",
                    "synced_folder",
                    name=above.name,
                )
        for item in found.values():
            if not item.is_container:
                raise BadRequest(
                    f"{item.name!r} is a {item.kind}; only a folder or a sitemap can hold others.",
                    "not_a_container",
                    name=item.name,
                )
        return base

    def _distinct(self, case: PendingUpload) -> bool:
        """Tell whether nothing else may have the content of this one."""
        return self.options.refuse_copies and case.upload.source is None and case.digest is not None

    def _copies(self, tx: Transaction) -> dict[str, Item | PendingUpload]:
        """Find what has the content of one of ours already, by its digest."""
        wanted = {case.digest for case in self.uploads if self._distinct(case)}
        found = map(item_from_row, tx.run(documents_sql.FIND_COPIES, [[self.base.id, digest] for digest in wanted]))
        return {item.digest or "": item for item in found}

    def _refuse_beyond_quota(self, tx: Transaction) -> None:
        """Refuse what is beyond the quota of the base: nothing of it is kept, so that it can simply come again."""
        written = [case for case in self.uploads if case.written]
        building = [case for case in written if case.upload.problem is None and self._is_indexed_now(tx, case)]
        left = read_remaining_quota(tx, self.base.key) if building else math.inf
        if len(building) <= left:
            return
        for case in building[int(left) :]:
            case.verdict, case.reason = Verdict.REJECTED, QUOTA_EXHAUSTED.reason
        for case in self.uploads:
            if (
                isinstance(case.item, PendingUpload) and not case.item.written
            ):  # the one it is a copy of stays out itself
                case.item, case.reason = None, QUOTA_EXHAUSTED.reason

    def _audit(self, tx: Transaction, refused: Sequence[PendingUpload]) -> None:
        """Record what was refused: who asked, what stood in its way, and what it would have cost."""
        copies = {str(case.item_id) for case in refused if case.reason == "content_exists"}
        known = self._costs(tx, [(self.base.key, number) for number in copies])
        rows = [
            [
                self.base.key, str(case.item_id or ""), str(_operation(case)), str(case.verdict),
                case.reason, None, self.options.requester, self._cost(case, known),
            ]
            for case in refused
        ]  # fmt: skip
        record_refusals(tx, rows)

    def _cost(self, case: PendingUpload, known: Mapping[tuple[str, str], float]) -> float:
        """Estimate what a refused upload would have cost; answers about the same content are known or on their way."""
        if case.reason == "content_exists":
            return known.get((self.base.key, str(case.item_id)), 0.0)
        return self._costs.estimate_file(self.base, case.name, case.blob.size) if case.blob else 0.0

    def _is_indexed_now(self, tx: Transaction, case: PendingUpload) -> bool:
        """Tell whether it is indexed now; what was indexed once is kept up to date."""
        if case.upload.content is None and case.upload.source is None:  # a folder that only people put things into
            return False
        if self.base.settings.auto_index if self.options.index is None else self.options.index:
            return True
        return not case.new and bool(select_items_with_slots(tx, [case.item_id or 0]))

    def _find_free_name(self, tx: Transaction, place: Location, taken: set[Location]) -> str:
        """Find a name that is free: that of the file with a number."""
        parent, name = place
        path = PurePath(name)
        stem, ending = (path.stem, path.suffix) if path.name == name else (name, "")
        for number in count(2):
            free = f"{stem} ({number}){ending}"
            if (parent, free) not in taken and not read_items_by_location(tx, self.base, [(parent, free)]):
                taken.add((parent, free))
                return free
        raise AssertionError("unreachable: numbers do not end")

    def _create(self, tx: Transaction, cases: Sequence[PendingUpload]) -> None:
        """Write the rows of new items."""
        rows = [
            [
                self.base.id, case.upload.parent, str(case.upload.kind), case.name, *_bytes(case),
                case.upload.source, case.upload.seen, case.upload.every,
                case.upload.problem and fault_to_json(case.upload.problem), fold_name(case.name),
                int(case.upload.local),
            ]
            for case in cases
        ]  # fmt: skip
        ids = {(parent, name): id_ for id_, parent, name in tx.run(documents_sql.CREATE_ITEMS, rows)}
        for case in cases:
            case.id = ids[case.upload.parent, case.name]
        record_events(tx, [_event("added", self.base, case) for case in cases])

    def _change(self, tx: Transaction, cases: Sequence[PendingUpload]) -> None:
        """Write the rows of items that get new content; their old bytes are useless."""
        replaced = []
        for case in cases:
            assert isinstance(case.item, Item)  # noqa: S101 - only an item that is there is changed
            replaced += [case.item.blob] if case.item.blob else []
        self._files.remove_later(tx, replaced)
        self.unused_blobs += replaced
        tx.run(
            documents_sql.CHANGE_ITEMS,
            [[case.item_id, *_bytes(case), case.upload.source, case.upload.seen] for case in cases],
        )
        release_holds(tx, [case.item_id for case in cases if case.item_id is not None])
        record_events(tx, [_event("changed", self.base, case) for case in cases])

    def _record_seen_sources(self, tx: Transaction, cases: Sequence[PendingUpload]) -> None:
        """Note how the sources of items look now whose content is the same."""
        tx.run(
            documents_sql.RECORD_SEEN_SOURCES,
            [[case.item_id, case.upload.seen] for case in cases if case.upload.seen is not None],
        )

    def _request(self, tx: Transaction, case: PendingUpload) -> Request | None:
        """Return what is to be done about an upload; None where nothing is, or not now."""
        upload, terms = case.upload, self.options
        if case.verdict is Verdict.REJECTED or upload.problem is not None:
            return None
        if not self._is_indexed_now(tx, case):
            return None
        looks = upload.content is None
        return Request(
            base=self.base.key,
            owner=f"{sql.SOURCE_PREFIX}{case.item_id}" if looks else str(case.item_id),
            operation=_operation(case),
            slots=(SlotSpec(SOURCE_SLOT),) if looks else self.specs,
            fingerprint=case.digest,
            requester=terms.requester,
            priority=terms.priority,
            cause=terms.cause,
        )

    def _reply(self, case: PendingUpload, answer: AdmissionResult | None) -> ItemReply:
        if answer is not None:
            return ItemReply.from_admission(case.name, case.item_id, answer)
        failed = case.upload.problem if case.new else None
        return ItemReply(
            verdict=Verdict.REJECTED if failed else case.verdict,
            reason=failed.code if failed else case.reason,
            status=Status.FAILED if failed else Status.NOT_INDEXED,
            name=case.name,
            item=case.item_id,
        )


def pause_for_quota(*, held: bool) -> None:
    """Pause work that the quota of its base holds up; it goes on when a new day allows more."""
    if held:
        raise RetryLater(
            "daily_quota",
            "The base has reached its limit of documents for today. The limit is the setting jobs_per_day.",
            retry_after=QUOTA_RETRY_AFTER,
        )


def _is_disk_folder(upload: Upload) -> bool:
    """Tell whether it is a folder of the disk of its own; one within another is named by its path in that."""
    return upload.kind is ItemKind.DIRECTORY and (upload.source or "").startswith("/")


def _operation(case: PendingUpload) -> Operation:
    """Return what is asked for: new content is told; a source is looked at, and again if it is another one."""
    if case.upload.content is not None:
        return Operation.CHANGE
    return Operation.FORCE if case.reason == "changed" else Operation.INDEX


def _event(what: str, base: Base, case: PendingUpload) -> Event:
    """Tell of an item that came or changed: what it is, never its name, which is gone from the disk when it is."""
    told: dict[str, Any] = {"kind": str(case.upload.kind), "parent": case.upload.parent or None}
    if case.upload.problem is not None:
        told["error"] = case.upload.problem.code
    return Event(f"document.{what}", base.key, str(case.item_id), data=json.dumps(told))


def _bytes(case: PendingUpload) -> list[Any]:
    """Return the cells that tell of the bytes of an upload, and what is known of them."""
    blob = case.blob
    metadata = json.dumps(dict(case.upload.metadata), ensure_ascii=False)
    return [blob and blob.name, blob and blob.digest, blob.size if blob else 0, metadata]


def _check(upload: Upload) -> None:
    """Refuse a name that nobody could ask for again."""
    if not upload.name.strip() or len(upload.name) > LONGEST_NAME or make_storable(upload.name) != upload.name:
        raise BadRequest(
            f"An item needs a name of 1 to {LONGEST_NAME} characters, without zero bytes and halves of characters.",
            "document_name",
            longest=LONGEST_NAME,
        )


def _portions(uploads: Iterable[Upload]) -> Iterator[list[Upload]]:
    """Split into transactions: bounded, and each place at most once in each; names get their one spelling."""
    portion: dict[Location, Upload] = {}
    for given in uploads:
        upload = given._replace(name=to_nfc(given.name))
        _check(upload)
        if upload.location in portion or len(portion) == ITEMS_PER_TRANSACTION:
            yield list(portion.values())
            portion = {}
        portion[upload.location] = upload
    if portion:
        yield list(portion.values())


def _opened(content: bytes | ByteReader | Opener) -> AbstractContextManager[ByteReader]:
    if isinstance(content, bytes):
        return nullcontext(io.BytesIO(content))
    return content() if callable(content) else nullcontext(content)
