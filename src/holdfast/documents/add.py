"""Adds files, notes, pages and folders to a base, and replies for each item.

Files are recorded before they are written (`catalog.file_records`), and synced before a row references them. The
duplicate check runs under the lock of the base, in the transaction that writes the rows and admits the work. So if many
callers add the same thing at once, one creates it and the others get a reply that names it.
"""

from __future__ import annotations

import io
import json
import math
from contextlib import nullcontext
from datetime import timedelta
from hashlib import sha256
from itertools import count
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from holdfast.blobs import parse_blob_id
from holdfast.catalog import (
    SOURCE_PREFIX,
    Item,
    ItemKind,
    OnDuplicate,
    UploadExpired,
    fault_to_json,
    fold_name,
    item_from_row,
    read_items,
    read_items_by_location,
    refuse_condemned,
    release_file_records,
)
from holdfast.documents import statements as documents_sql
from holdfast.documents.requests import DEFAULT_ADD_OPTIONS, SOURCE_SLOT, AddOptions, ItemReply, Opener, Upload
from holdfast.documents.selection import lock_open_base, select_items_with_slots
from holdfast.engine import (
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
from holdfast.errors import (
    BadRequest,
    HoldfastError,
    RetryLater,
    StoreError,
    StoreFull,
    StoreUnavailable,
    UnknownItem,
    WorkError,
)
from holdfast.indexes import CONTENT
from holdfast.llm import release_holds
from holdfast.wellformed import to_nfc

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from holdfast.blobs import Blob, ByteReader
    from holdfast.catalog import Base, Catalog, FileRecords, Location
    from holdfast.db import Transaction
    from holdfast.engine import AdmissionResult
    from holdfast.engine.store import SqlStore
    from holdfast.indexes import CostEstimator, IndexRegistry

ITEMS_PER_TRANSACTION = 100
LONGEST_NAME = 1_000
SHOWN_NAME_CHARACTERS = 100  # of an invalid name, in the error
QUOTA_RETRY_AFTER = timedelta(minutes=10)  # when the quota is checked again


class StaleLookup(Exception):
    """An item changed between the lookup and the transaction."""


class DocumentAdder:
    def __init__(self, store: SqlStore, catalog: Catalog, files: FileRecords, indexes: IndexRegistry) -> None:
        self._store = store
        self._catalog = catalog
        self._files = files
        self._indexes = indexes
        self._costs = indexes.cost_estimator

    def add(self, base: Base, uploads: Iterable[Upload], options: AddOptions = DEFAULT_ADD_OPTIONS) -> list[ItemReply]:
        """Add items, and return a reply for each, in order.

        `on_duplicate` of the options, or else of the base, decides about names and contents that already exist.

        Example:
            (reply,) = adder.add(base, [Upload("note.md", b"# Notes")])
        """
        replies: list[ItemReply] = []
        for portion in _portions(uploads):
            try:
                replies += self._add(base, portion, options)
            except StoreFull as error:
                if not replies:
                    raise
                raise StoreFull("disk_full_partway", done=len(replies), place=error.params["place"]) from error
        return replies

    def put(self, base: Base, uploads: Iterable[Upload], *, requester: str = "", priority: int = 5) -> list[ItemReply]:
        """Add items, or replace the content of items with the same name."""
        options = AddOptions(
            on_duplicate=OnDuplicate.REPLACE, refuse_copies=False, requester=requester, priority=priority
        )
        return self.add(base, uploads, options)

    def slot_specs(self, base: Base) -> tuple[SlotSpec, ...]:
        """Return the slots that a document of this base should have."""
        can, _ = self._indexes.check_enabled(base)
        return (SlotSpec(CONTENT), *(SlotSpec(kind, CONTENT) for kind in can))

    def _add(self, base: Base, uploads: Sequence[Upload], options: AddOptions) -> list[ItemReply]:
        """Add items with distinct locations; bytes that the item already has are not written again."""
        try:
            return self._write_batch(base, options, uploads, self._find_unchanged_digests(base, uploads))
        except StaleLookup:  # an item was changed or deleted after the lookup
            return self._write_batch(base, options, uploads, {})

    def _write_batch(
        self, base: Base, options: AddOptions, uploads: Sequence[Upload], same: Mapping[Location, str]
    ) -> list[ItemReply]:
        """Write and sync the files, then write the rows and admit the work in one transaction."""
        pending = [PendingUpload(upload, same.get(upload.location)) for upload in uploads]
        recorded = self._files.record(sum(case.has_bytes for case in pending))
        batch = UploadBatch(base, options, self.slot_specs, pending, files=self._files, costs=self._costs)
        unused: list[str] = []
        try:
            with self._files.blobs.write_batch(recorded.next_id, recorded.extend) as put:
                unused += [blob.name for case in pending for blob in case.take_bytes(put)]
        except BaseException as error:  # the database was not touched, and `write_batch` removed the files
            if not isinstance(error, StoreUnavailable):  # else files may remain, until their records expire
                self._files.remove([], recorded.ids)
            raise
        try:
            answers = self._store.admit_with(batch.write)
        except (HoldfastError, StaleLookup) as error:
            # After other database errors the outcome may be unknown; then the records are settled when they expire.
            if isinstance(error, UploadExpired | StoreFull) or not isinstance(error, StoreError):
                self._files.remove([*unused, *(case.blob.name for case in pending if case.blob)], recorded.ids)
            raise
        self._files.remove([*unused, *batch.unused_blobs], set(recorded.ids) - batch.named)
        return batch.replies(answers)

    def _find_unchanged_digests(self, base: Base, uploads: Sequence[Upload]) -> dict[Location, str]:
        """Return the digests of uploads whose item already has the same bytes, by location."""
        given = {one.location: one.content for one in uploads if isinstance(one.content, bytes)}
        known = self._catalog.find_items(base, list(given)) if given else {}
        digests = {place: sha256(given[place]).hexdigest() for place in known}
        return {place: digest for place, digest in digests.items() if known[place].digest == digest}


class PendingUpload:
    """One upload of a batch, and the decision about it."""

    def __init__(self, upload: Upload, same: str | None) -> None:
        self.upload = upload
        self.blob: Blob | None = None
        self.digest = same  # of the bytes that the item already has, or of the bytes just written
        self.name = upload.name  # the name in the base, after renaming
        self.verdict, self.reason = Verdict.ACCEPTED, "added"
        # The item it changes or conflicts with; a `PendingUpload` is an item of the same batch.
        self.item: Item | PendingUpload | None = None
        self.id: int | None = None

    @property
    def has_bytes(self) -> bool:
        return self.upload.content is not None and self.digest is None

    def take_bytes(self, put: Callable[[ByteReader], Blob]) -> Iterator[Blob]:
        """Write the bytes, unless the item already has them; yield a blob that was written for nothing.

        A file that cannot be read becomes a failed item.
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
        """Decide what happens, given the item with its name and another item with its content."""
        self.name, self.verdict, self.reason = self.upload.name, Verdict.ACCEPTED, "added"
        self.item = there or copy
        if there is not None and self.upload.problem is not None:
            self.verdict, self.reason = Verdict.REJECTED, self.upload.problem.code  # the existing item is kept
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
        """It becomes a new item."""
        return self.reason in ("added", "renamed")

    @property
    def written(self) -> bool:
        """A row references its bytes."""
        return self.new or self.reason == "changed"

    @property
    def item_id(self) -> int | None:
        """The item that it became or that conflicts with it."""
        return self.id if self.item is None else self.item.id


class UploadBatch:
    """Uploads with distinct locations that are written in one transaction."""

    def __init__(
        self,
        base: Base,
        options: AddOptions,
        slots: Callable[[Base], tuple[SlotSpec, ...]],
        pending: Sequence[PendingUpload],
        *,
        files: FileRecords,
        costs: CostEstimator,
    ) -> None:
        self.base = base
        self._costs = costs
        self.options = options
        self.slot_specs_of = slots
        self.specs: tuple[SlotSpec, ...] = ()  # read under the lock of the base
        self.uploads = pending
        self.unused_blobs: list[str] = []  # blobs that no row references after the commit
        self.named: set[str] = set()  # ids of the blobs that rows reference after the commit
        self._files = files
        self._requested: list[PendingUpload] = []

    def write(self, tx: Transaction) -> list[Request]:
        """Decide about each upload, write the rows, and return the requests to admit."""
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
        requests = [(case, self._request(tx, case)) for case in self.uploads]
        self._requested = [case for case, request in requests if request is not None]
        return [request for _, request in requests if request is not None]

    def replies(self, answers: Sequence[AdmissionResult]) -> list[ItemReply]:
        """Return a reply for each upload, in order; `answers` are the results of the requests."""
        admitted = dict(zip(map(id, self._requested), answers, strict=True))
        return [self._reply(case, admitted.get(id(case))) for case in self.uploads]

    def _lock_and_check_parents(self, tx: Transaction) -> Base:
        """Lock the base, and check that the parents exist and can hold the uploads."""
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
                raise BadRequest("synced_folder", name=above.name)
        for item in found.values():
            if not item.is_container:
                raise BadRequest("not_a_container", name=item.name)
        return base

    def _distinct(self, case: PendingUpload) -> bool:
        """Return whether no other item may have the same content."""
        return self.options.refuse_copies and case.upload.source is None and case.digest is not None

    def _copies(self, tx: Transaction) -> dict[str, Item | PendingUpload]:
        """Find existing items with the content of an upload, by digest."""
        wanted = {case.digest for case in self.uploads if self._distinct(case)}
        found = map(item_from_row, tx.run(documents_sql.FIND_COPIES, [[self.base.id, digest] for digest in wanted]))
        return {item.digest or "": item for item in found}

    def _refuse_beyond_quota(self, tx: Transaction) -> None:
        """Refuse uploads beyond the quota of the base. They are not stored, so the caller can add them again later."""
        written = [case for case in self.uploads if case.written]
        building = [case for case in written if case.upload.problem is None and self._is_indexed_now(tx, case)]
        left = read_remaining_quota(tx, self.base.key) if building else math.inf
        if len(building) <= left:
            return
        for case in building[int(left) :]:
            case.verdict, case.reason = Verdict.REJECTED, QUOTA_EXHAUSTED.reason
        for case in self.uploads:
            if isinstance(case.item, PendingUpload) and not case.item.written:  # a copy of a refused upload
                case.item, case.reason = None, QUOTA_EXHAUSTED.reason

    def _audit(self, tx: Transaction, refused: Sequence[PendingUpload]) -> None:
        """Record refused uploads: the requester, the conflicting item and the avoided cost."""
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
        """Estimate the avoided cost; for a copy, that is the cost of the existing item."""
        if case.reason == "content_exists":
            return known.get((self.base.key, str(case.item_id)), 0.0)
        return self._costs.estimate_file(self.base, case.name, case.blob.size) if case.blob else 0.0

    def _is_indexed_now(self, tx: Transaction, case: PendingUpload) -> bool:
        """Return whether it is indexed now. An item that was indexed once is always kept up to date."""
        if case.upload.content is None and case.upload.source is None:  # a folder without a source
            return False
        if self.base.settings.auto_index if self.options.index is None else self.options.index:
            return True
        return not case.new and bool(select_items_with_slots(tx, [case.item_id or 0]))

    def _find_free_name(self, tx: Transaction, place: Location, taken: set[Location]) -> str:
        """Return the name with the first free number, as in `report (2).pdf`."""
        parent, name = place
        path = PurePath(name)
        stem, ending = (path.stem, path.suffix) if path.name == name else (name, "")
        for number in count(2):
            free = f"{stem} ({number}){ending}"
            if (parent, free) not in taken and not read_items_by_location(tx, self.base, [(parent, free)]):
                taken.add((parent, free))
                return free
        raise AssertionError("unreachable: numbers do not end")

    def _create(self, tx: Transaction, pending: Sequence[PendingUpload]) -> None:
        rows = [_new_item(self.base, case) for case in pending]
        cells = [[row[name] for name in documents_sql.NEW_ITEM_COLUMNS] for row in rows]
        ids = {(parent, name): id_ for id_, parent, name in tx.run(documents_sql.CREATE_ITEMS, cells)}
        for case in pending:
            case.id = ids[case.upload.parent, case.name]
        record_events(tx, [_event("added", self.base, case) for case in pending])

    def _change(self, tx: Transaction, pending: Sequence[PendingUpload]) -> None:
        """Write the rows of items that get new content; their old files are removed later."""
        replaced = []
        for case in pending:
            assert isinstance(case.item, Item)  # noqa: S101 - only an existing item is changed
            replaced += [case.item.blob] if case.item.blob else []
        self._files.remove_later(tx, replaced)
        self.unused_blobs += replaced
        tx.run(
            documents_sql.CHANGE_ITEMS,
            [
                [case.item_id, *_content_columns(case).values(), case.upload.source, case.upload.seen]
                for case in pending
            ],
        )
        release_holds(tx, [case.item_id for case in pending if case.item_id is not None])
        record_events(tx, [_event("changed", self.base, case) for case in pending])

    def _record_seen_sources(self, tx: Transaction, pending: Sequence[PendingUpload]) -> None:
        """Record the new state of the source of items whose content did not change."""
        tx.run(
            documents_sql.RECORD_SEEN_SOURCES,
            [[case.item_id, case.upload.seen] for case in pending if case.upload.seen is not None],
        )

    def _request(self, tx: Transaction, case: PendingUpload) -> Request | None:
        """Return the request for an upload; None if it needs no work now."""
        upload, options = case.upload, self.options
        if case.verdict is Verdict.REJECTED or upload.problem is not None:
            return None
        if not self._is_indexed_now(tx, case):
            return None
        looks = upload.content is None
        return Request(
            base=self.base.key,
            owner=f"{SOURCE_PREFIX}{case.item_id}" if looks else str(case.item_id),
            operation=_operation(case),
            slots=(SlotSpec(SOURCE_SLOT),) if looks else self.specs,
            fingerprint=case.digest,
            requester=options.requester,
            priority=options.priority,
            cause=options.cause,
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


def pause_for_quota(base: Base, *, held: bool) -> None:
    """Pause the calling work if the quota of its base is exhausted; it continues when a new day allows more."""
    if held:
        raise RetryLater("daily_quota", params={"base": base.name}, retry_after=QUOTA_RETRY_AFTER)


def _is_disk_folder(upload: Upload) -> bool:
    """Return whether it is a folder of the disk itself, not a subfolder, which has a relative path."""
    return upload.kind is ItemKind.DIRECTORY and (upload.source or "").startswith("/")


def _operation(case: PendingUpload) -> Operation:
    """Return the operation: CHANGE for new content; INDEX to read a source, or FORCE if the source changed."""
    if case.upload.content is not None:
        return Operation.CHANGE
    return Operation.FORCE if case.reason == "changed" else Operation.INDEX


def _event(what: str, base: Base, case: PendingUpload) -> Event:
    """Return an event without the item's name, because events outlive a deleted item."""
    data: dict[str, Any] = {"kind": str(case.upload.kind), "parent": case.upload.parent or None}
    if case.upload.problem is not None:
        data["error"] = case.upload.problem.code
    return Event(f"document.{what}", base.key, str(case.item_id), data=json.dumps(data))


def _new_item(base: Base, case: PendingUpload) -> dict[str, Any]:
    """Return the columns of a new item."""
    upload = case.upload
    return {
        "base_id": base.id,
        "parent_id": upload.parent,
        "kind": str(upload.kind),
        "name": case.name,
        **_content_columns(case),
        "source": upload.source,
        "seen": upload.seen,
        "every": upload.every,
        "problem": upload.problem and fault_to_json(upload.problem),
        "folded": fold_name(case.name),
        "local": int(upload.local),
    }


def _content_columns(case: PendingUpload) -> dict[str, Any]:
    blob = case.blob
    return {
        "blob": blob and blob.name,
        "digest": blob and blob.digest,
        "size": blob.size if blob else 0,
        "metadata": json.dumps(dict(case.upload.metadata), ensure_ascii=False),
    }


def _check(upload: Upload) -> None:
    if not upload.name.strip() or len(upload.name) > LONGEST_NAME or make_storable(upload.name) != upload.name:
        raise BadRequest("document_name", name=make_storable(upload.name[:SHOWN_NAME_CHARACTERS]), longest=LONGEST_NAME)


def _portions(uploads: Iterable[Upload]) -> Iterator[list[Upload]]:
    """Split uploads into bounded transactions with distinct locations; normalise names to NFC."""
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
