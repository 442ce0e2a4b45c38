"""Exports a base to one file and restores it: documents, settings and paid answers, so nothing is paid again.

A base that is being restored has the problem `being_restored` until it is complete, so callers cannot add to it or
repair it. A restore that fails deletes the base. If the process is killed, the next clean-up on the same machine
detects that, and deletes the base.
"""

from __future__ import annotations

import os
import secrets
import shutil
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.bases import archive_statements as sql
from holdfast.bases import statements as base_statements
from holdfast.bases.archive_reader import ArchiveLimits, ArchiveReader
from holdfast.bases.archive_writer import ArchiveWriter
from holdfast.blobs import BLOCK_BYTES
from holdfast.catalog import OnDuplicate, base_event, base_from_row
from holdfast.disk import IN_TEMPORARY_FOLDER, reporting_full_disk
from holdfast.documents import ITEMS_PER_TRANSACTION, AddOptions, Upload, admit_live_requests, lock_open_base
from holdfast.engine import Fault, Operation, Request, Verdict
from holdfast.engine.liveness import known_dead, make_holder_name
from holdfast.engine.store import LARGEST_BATCH, record_events
from holdfast.errors import RESTORING, BadArchive, HoldfastError, StateConflict, UnknownBase
from holdfast.llm import RestoredAnswer, resolve_holds, store_restored_answers
from holdfast.private_files import sync_name
from holdfast.url_secrets import mask_secrets
from holdfast.wellformed import to_nfc

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import IO, BinaryIO

    from holdfast.bases.archive_reader import ArchivedItem, Manifest
    from holdfast.bases.archive_writer import ArchiveCounts
    from holdfast.bases.lifecycle import Bases
    from holdfast.blobs import BlobStore
    from holdfast.catalog import Base, Catalog
    from holdfast.db import Transaction
    from holdfast.documents import DocumentAdder, ItemReply
    from holdfast.engine.store import SqlStore

IMPORT = "import"  # the cause of requests
DEFAULT_LIMITS = ArchiveLimits()
PAID_ANSWER_BATCH_BYTES = 8 << 20  # of paid answers in one transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredBase:
    """The result of a restore."""

    base: str
    documents: int
    memos: int  # number of paid answers
    skipped: int  # documents that the quota of the base keeps from being indexed today


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreOptions:
    """Options for a restore."""

    memos: bool = True  # use its paid answers
    index: bool | None = None  # index at once; None: the setting of the base
    requester: str = ""
    limits: ArchiveLimits = DEFAULT_LIMITS


class ArchiveDependencies(NamedTuple):
    store: SqlStore
    blobs: BlobStore
    catalog: Catalog
    bases: Bases
    adder: DocumentAdder
    version: str  # of Holdfast


class Archives:
    def __init__(self, dependencies: ArchiveDependencies) -> None:
        self._dependencies = dependencies

    def export(self, base: Base, target: Path | BinaryIO, *, memos: bool = True) -> ArchiveCounts:
        """Write a base into a file or a writable stream.

        Each item is written in its state at that moment; items deleted before are left out. A file gets its name only
        when it is complete.
        """
        store, blobs, _, bases, _, version = self._dependencies
        now = bases.read(base)
        if now.problem is not None and now.problem.code == RESTORING:
            raise StateConflict(RESTORING, base=now.name)
        place = f"{target}, {IN_TEMPORARY_FOLDER}" if isinstance(target, Path) else IN_TEMPORARY_FOLDER
        with reporting_full_disk(place), _open_target(target) as file:
            counted = _CountingWriter(file)
            counts = ArchiveWriter(store.database, blobs, now, counted).write(version, memos=memos)  # type: ignore[arg-type]
        return counts._replace(bytes=counted.count)

    def restore(
        self, archive: Path | BinaryIO, *, name: str | None = None, options: RestoreOptions | None = None
    ) -> RestoredBase:
        """Create a base from an archive, under its old name or another; all of it or nothing.

        Its documents are indexed in the background. Sources are not read until a user requests it.
        """
        chosen = options or RestoreOptions()
        with _opened(archive) as file, ArchiveReader(file, chosen.limits) as reader:
            manifest = reader.manifest()
            problem = Fault(RESTORING, {"base": name or manifest.name, "holder": make_holder_name()})
            base = self._dependencies.bases.create(name or manifest.name, manifest.settings, problem)
            try:
                return _Restore(self._dependencies, reader, manifest, base, chosen).run()
            except BaseException as error:
                self._give_up(base, error)
                raise

    def _give_up(self, base: Base, error: BaseException) -> None:
        """Delete the incomplete base; if that fails too, the clean-up deletes it after this process has ended."""
        try:
            self._dependencies.bases.delete(base)
        except UnknownBase:
            error.add_note(f"Base {base.name!r} was deleted while it was being restored.")
        except HoldfastError as failure:
            error.add_note(f"The incomplete base {base.name!r} could not be deleted: {failure} Delete it.")

    def clean_up_restores(self, limit: int = LARGEST_BATCH) -> int:
        """Assign restored answers to their documents, and delete bases whose restore was killed; return how many."""
        left = [
            base
            for base in self._dependencies.catalog.bases()
            if base.problem is not None
            and base.problem.code == RESTORING
            and known_dead(base.problem.params.get("holder", ""))
        ]
        for base in left:
            self._dependencies.bases.delete(base)
        return len(left) + resolve_holds(self._dependencies.store.database, limit)


@dataclass(slots=True)
class _Restore:
    """The restore of one archive into one base."""

    dependencies: ArchiveDependencies
    reader: ArchiveReader
    manifest: Manifest
    base: Base
    options: RestoreOptions
    item_ids: dict[int, int] = field(default_factory=dict)  # id in the archive -> id in this database
    documents: list[int] = field(default_factory=list)  # ids of documents that can be indexed
    respelled: set[tuple[int, str]] = field(default_factory=set)  # locations whose names were normalised

    def run(self) -> RestoredBase:
        """Write items, then paid answers, then request indexing, and open the base last."""
        self._items()
        memos = self._hold_paid_answers() if self.options.memos else 0
        self._clear_source_schedules()
        index_now = self.manifest.settings.auto_index if self.options.index is None else self.options.index
        skipped = self._request_indexing() if index_now else 0
        return RestoredBase(base=self._open().name, documents=self.manifest.documents, memos=memos, skipped=skipped)

    def _items(self) -> None:
        """Add the items in bounded transactions; children after their container."""
        waiting: dict[int, ArchivedItem] = {}
        count = documents = 0
        for item in self.reader.items():
            if len(waiting) == ITEMS_PER_TRANSACTION or item.parent in waiting:
                self._add(waiting)
                waiting = {}
            waiting[item.id] = item
            count += 1
            documents += item.digest is not None
        self._add(waiting)
        if (count, documents) != (self.manifest.items, self.manifest.documents):
            raise BadArchive(
                "archive_item_count",
                items=self.manifest.items,
                documents=self.manifest.documents,
                found_items=count,
                found_documents=documents,
            )

    def _add(self, batch: dict[int, ArchivedItem]) -> None:
        add_options = AddOptions(
            refuse_copies=False, index=False, requester=self.options.requester, cause=IMPORT, restoring=True
        )
        replies = self.dependencies.adder.add(self.base, [self._upload(item) for item in batch.values()], add_options)
        for item, first_reply in zip(batch.values(), replies, strict=True):
            taken = self._respelled(item) and first_reply.reason == "name_taken"
            reply = self._renamed(item, add_options) if taken else first_reply
            if reply.item is None or reply.reason not in ("added", "renamed", item.problem and item.problem.code):
                raise BadArchive("archive_name_twice", name=item.name)
            self.item_ids[item.id] = reply.item
            if item.digest is not None and item.problem is None:
                self.documents.append(reply.item)

    def _respelled(self, item: ArchivedItem) -> bool:
        """Return whether this or an earlier item got this name by Unicode normalisation.

        Older versions did not normalise names, so their archives may have two spellings of one name in one place.
        """
        place = (item.parent, to_nfc(item.name))
        if place[1] != item.name:
            self.respelled.add(place)
        return place in self.respelled

    def _renamed(self, item: ArchivedItem, add_options: AddOptions) -> ItemReply:
        (reply,) = self.dependencies.adder.add(
            self.base, [self._upload(item)], replace(add_options, on_duplicate=OnDuplicate.RENAME)
        )
        return reply

    def _upload(self, item: ArchivedItem) -> Upload:
        return Upload(
            item.name,
            partial(self.reader.blob, item.digest) if item.digest else None,
            item.metadata,
            item.kind,
            item.source and mask_secrets(item.source),
            item.seen,
            item.every,
            item.problem,
            self.item_ids[item.parent] if item.parent else 0,
        )

    def _hold_paid_answers(self) -> int:
        """Store paid answers until the documents are chunked; return how many."""
        batch: list[RestoredAnswer] = []
        size = count = 0
        for answer in self.reader.read_paid_answers():
            if answer.item not in self.item_ids:
                raise BadArchive("archive_answer_item", item=answer.item)
            batch.append(answer._replace(item=self.item_ids[answer.item]))
            size += len(answer.value or b"")
            count += answer.value is not None
            if size >= PAID_ANSWER_BATCH_BYTES or sum(len(one.chunks) for one in batch) >= LARGEST_BATCH:
                store_restored_answers(self.dependencies.store.database, self.base, batch)
                batch, size = [], 0
        store_restored_answers(self.dependencies.store.database, self.base, batch)
        if count != self.manifest.memos:
            raise BadArchive("archive_answer_count", answers=self.manifest.memos, found=count)
        return count

    def _clear_source_schedules(self) -> None:
        """Clear all schedules, so that no source is read before a user requests it."""
        values: dict[str, Any] = {"base_id": self.base.id, "limit": LARGEST_BATCH}
        while self.dependencies.store.database.write(
            lambda tx: tx.run(sql.CLEAR_SOURCE_SCHEDULES, **values), durable=False
        ):
            pass

    def _request_indexing(self) -> int:
        """Request indexing of all documents; return how many the quota refuses."""
        specs = self.dependencies.adder.slot_specs(self.base)
        refused = 0
        for first in range(0, len(self.documents), ITEMS_PER_TRANSACTION):
            requests = [
                Request(
                    base=self.base.key,
                    owner=str(item),
                    operation=Operation.INDEX,
                    slots=specs,
                    requester=self.options.requester,
                    cause=IMPORT,
                )
                for item in self.documents[first : first + ITEMS_PER_TRANSACTION]
            ]
            results = admit_live_requests(self.dependencies.store, self.base, requests, building=False)
            refused += sum(result.verdict is Verdict.REJECTED for result in results)
        return refused

    def _open(self) -> Base:
        """Open the base if all restored items still exist."""

        def write(tx: Transaction) -> Base:
            now = lock_open_base(tx, self.base, building=False)
            ((count,),) = tx.run(sql.COUNT_ITEMS, base_id=now.id)
            if count != self.manifest.items:
                raise StateConflict("deleted_while_restored", base=now.name)
            opened = base_from_row(tx.run(base_statements.CLEAR_BASE_PROBLEM, id=now.id)[0])
            record_events(tx, [base_event("repaired", opened)])
            return opened

        return self.dependencies.store.database.write(write, durable=True)


class _CountingWriter:
    """Counts the bytes written. It cannot seek, so `zipfile` writes a stream."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.count = 0

    def write(self, block: bytes, /) -> int:
        self._file.write(block)
        self.count += len(block)
        return len(block)

    def flush(self) -> None:
        self._file.flush()


@contextmanager
def _open_target(target: Path | BinaryIO) -> Iterator[IO[bytes]]:
    """Open the target; a file gets its final name when it is complete and synced."""
    if not isinstance(target, Path):
        yield target
        return
    unfinished = target.with_name(f"{target.name}.{secrets.token_hex(4)}.part")
    try:
        with unfinished.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(target)
        sync_name(target)
    finally:
        unfinished.unlink(missing_ok=True)


@contextmanager
def _opened(archive: Path | BinaryIO) -> Iterator[BinaryIO]:
    """Open the archive; a stream that cannot seek is first copied to a temporary file."""
    with ExitStack() as stack:
        if isinstance(archive, Path):
            yield stack.enter_context(archive.open("rb"))
        elif archive.seekable():
            yield archive
        else:
            copy = stack.enter_context(TemporaryFile())
            with reporting_full_disk(IN_TEMPORARY_FOLDER):
                shutil.copyfileobj(archive, copy, BLOCK_BYTES)
                copy.flush()
            yield copy
