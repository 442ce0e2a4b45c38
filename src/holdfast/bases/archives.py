"""A base as one file, and back: documents, settings and paid answers move elsewhere, and nothing is paid again.

A restored base is not open before it is whole: until then it is *failed* and says that it is being restored, so nobody
adds to it or repairs it. Whoever fails deletes it again. Whoever is killed leaves it as it is, and the next sweep on
the same machine sees that nobody is at it any more, and deletes it.
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
from typing import TYPE_CHECKING, NamedTuple

from holdfast.bases import archive_statements as sql
from holdfast.bases import statements as item_statements
from holdfast.bases.archive_reader import ArchiveLimits, ArchiveReader
from holdfast.bases.archive_writer import ArchiveWriter
from holdfast.bases.lifecycle import RESTORING
from holdfast.catalog import BLOCK_BYTES, OnDuplicate, base_event, base_from_row
from holdfast.disk import IN_TEMPORARY_FOLDER, reporting_full_disk
from holdfast.documents import ITEMS_PER_TRANSACTION, AddOptions, Upload, lock_open_base, select_live_requests
from holdfast.engine import Fault, Operation, Request, Verdict
from holdfast.engine.liveness import known_dead, make_holder_name
from holdfast.engine.store import LARGEST_BATCH, record_events
from holdfast.errors import BadArchive, HoldfastError, StateConflict, UnknownBase
from holdfast.llm import RestoredAnswer, resolve_holds, store_restored_answers
from holdfast.url_secrets import mask_secrets
from holdfast.wellformed import to_nfc

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import IO, BinaryIO

    from holdfast.bases.archive_reader import ArchivedItem, Manifest
    from holdfast.bases.lifecycle import Bases
    from holdfast.catalog import Base, BlobStore
    from holdfast.db import Transaction
    from holdfast.documents import DocumentAdder, ItemReply
    from holdfast.engine.store import SqlStore

IMPORT = "import"  # the cause of what is asked for
DEFAULT_LIMITS = ArchiveLimits()
PAID_ANSWER_BATCH_BYTES = 8 << 20  # bytes of paid answers that are written in one transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveContents:
    """What is in an archive."""

    documents: int
    bytes: int  # of the archive
    memos: int
    left_out: int  # documents that were deleted or changed between being listed and being read


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredBase:
    """A base that was made from a file."""

    base: str
    documents: int
    memos: int  # answers that were paid for before
    skipped: int  # documents that the quota of the base keeps from being indexed today


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreOptions:
    """How an archive is restored."""

    memos: bool = True  # believe the paid answers in it
    index: bool | None = None  # at once; None: as the base has it
    requester: str = ""
    limits: ArchiveLimits = DEFAULT_LIMITS


class ArchiveDependencies(NamedTuple):
    """What archives are made from and restored into."""

    store: SqlStore
    blobs: BlobStore
    bases: Bases
    adder: DocumentAdder
    version: str  # of this program


class Archives:
    """Writes bases into archives, and reads them out again."""

    def __init__(self, parts: ArchiveDependencies) -> None:
        self._dependencies = parts

    # ------------------------------------------------------------ out

    def export(self, base: Base, target: Path | BinaryIO, *, memos: bool = True) -> ArchiveContents:
        """Write a base into one file, or whatever can be written to.

        Each item is there as it is when its turn comes; what is deleted before is left out. A file is there when it
        is whole, and not before.
        """
        store, blobs, bases, _, version = self._dependencies
        now = bases.read(base)
        if now.problem is not None and now.problem.code == RESTORING:
            raise StateConflict(RESTORING, f"{now.name!r} is not whole. {now.problem.params['message']}")
        with reporting_full_disk("for the archive and in the temporary folder (TMPDIR)"), _open_target(target) as file:
            counted = _CountingWriter(file)
            packed = ArchiveWriter(store.database, blobs, now, counted).write(version, memos=memos)  # type: ignore[arg-type]
        return ArchiveContents(
            documents=packed.documents, bytes=counted.count, memos=packed.memos, left_out=packed.left_out
        )

    # ------------------------------------------------------------ in

    def restore(
        self, archive: Path | BinaryIO, *, name: str | None = None, manner: RestoreOptions | None = None
    ) -> RestoredBase:
        """Make a new base of an archive, under its old name or another; all of it or nothing.

        Its documents are indexed in the background. What comes from elsewhere is not looked at before somebody asks.
        """
        how = manner or RestoreOptions()
        with _opened(archive) as file, ArchiveReader(file, how.limits) as unpacker:
            manifest = unpacker.manifest()
            base = self._dependencies.bases.create(name or manifest.name, manifest.settings, _being_restored())
            try:
                return _Restore(self._dependencies, unpacker, manifest, base, how).run()
            except BaseException as error:
                self._give_up(base, error)
                raise

    def _give_up(self, base: Base, error: BaseException) -> None:
        """Delete what was made; if that fails too, it is deleted when this process has ended."""
        try:
            self._dependencies.bases.delete(base)
        except UnknownBase:
            error.add_note(f"Somebody deleted the base {base.name!r} while it was being restored.")
        except HoldfastError as failure:
            error.add_note(f"What was restored of {base.name!r} could not be deleted: {failure} Delete it.")

    def clean_up_restores(self, limit: int = LARGEST_BATCH) -> int:
        """Go on with what restored documents are owed, and delete what nobody restores any more; return how much."""
        left = [
            base
            for base in self._dependencies.bases.list()
            if base.problem is not None
            and base.problem.code == RESTORING
            and known_dead(base.problem.params.get("holder", ""))
        ]
        for base in left:
            self._dependencies.bases.delete(base)
        return len(left) + resolve_holds(self._dependencies.store.database, limit)


@dataclass(slots=True)
class _Restore:
    """One archive on its way into one base."""

    dependencies: ArchiveDependencies
    reader: ArchiveReader
    manifest: Manifest
    base: Base
    options: RestoreOptions
    item_ids: dict[int, int] = field(default_factory=dict)  # of the archive -> of this database
    documents: list[int] = field(default_factory=list)  # that can be indexed
    respelled: set[tuple[int, str]] = field(default_factory=set)  # places of names that had another Unicode spelling

    def run(self) -> RestoredBase:
        """Write items, then what was paid for them, then ask for them, and open the base last."""
        self._items()
        memos = self._hold_paid_answers() if self.options.memos else 0
        self._clear_source_schedules()
        at_once = self.manifest.settings.auto_index if self.options.index is None else self.options.index
        skipped = self._request_indexing() if at_once else 0
        return RestoredBase(base=self._open().name, documents=self.manifest.documents, memos=memos, skipped=skipped)

    # ------------------------------------------------------------ items

    def _items(self) -> None:
        """Add the tree in bounded transactions; what stands in a container waits until that is there."""
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
                f"The archive says that it has {self.manifest.items} items, {self.manifest.documents} of them "
                f"documents, and has {count} and {documents}. Nothing was restored."
            )

    def _add(self, some: dict[int, ArchivedItem]) -> None:
        terms = AddOptions(
            refuse_copies=False, index=False, requester=self.options.requester, cause=IMPORT, restoring=True
        )
        replies = self.dependencies.adder.add(self.base, [self._upload(item) for item in some.values()], terms)
        for item, given in zip(some.values(), replies, strict=True):
            reply = self._renamed(item, terms) if self._respelled(item) and given.reason == "name_taken" else given
            if reply.item is None or reply.reason not in ("added", "renamed", item.problem and item.problem.code):
                raise BadArchive(f"The archive has {item.name!r} twice in one place. Nothing was restored.")
            self.item_ids[item.id] = reply.item
            if item.digest is not None and item.problem is None:
                self.documents.append(reply.item)

    def _respelled(self, item: ArchivedItem) -> bool:
        """Tell whether this or an earlier item got this name only because names now have one Unicode spelling.

        Older versions took both spellings for two names, so an archive of theirs may have both beside each other.
        """
        place = (item.parent, to_nfc(item.name))
        if place[1] != item.name:
            self.respelled.add(place)
        return place in self.respelled

    def _renamed(self, item: ArchivedItem, terms: AddOptions) -> ItemReply:
        (reply,) = self.dependencies.adder.add(
            self.base, [self._upload(item)], replace(terms, on_duplicate=OnDuplicate.RENAME)
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

    # ------------------------------------------------------------ memos

    def _hold_paid_answers(self) -> int:
        """Hold paid answers for the documents; return how many."""
        some: list[RestoredAnswer] = []
        size = count = 0
        for memo in self.reader.read_paid_answers():
            if memo.item not in self.item_ids:
                raise BadArchive(f"The archive has paid answers for an item {memo.item} that is not in it.")
            some.append(memo._replace(item=self.item_ids[memo.item]))
            size += len(memo.value or b"")
            count += memo.value is not None
            if size >= PAID_ANSWER_BATCH_BYTES or sum(len(one.chunks) for one in some) >= LARGEST_BATCH:
                store_restored_answers(self.dependencies.store.database, self.base, some)
                some, size = [], 0
        store_restored_answers(self.dependencies.store.database, self.base, some)
        if count != self.manifest.memos:
            raise BadArchive(f"The archive says that it has {self.manifest.memos} paid answers, and has {count}.")
        return count

    # ------------------------------------------------------------ the end

    def _clear_source_schedules(self) -> None:
        """Let no schedule look at sources of another machine before somebody has asked."""
        rest = partial(self._run, statement=sql.CLEAR_SOURCE_SCHEDULES)
        while self.dependencies.store.database.write(rest, durable=False):
            pass

    def _run(self, tx: Transaction, statement: object) -> int:
        return len(tx.run(statement, base_id=self.base.id, limit=LARGEST_BATCH))  # type: ignore[arg-type]

    def _request_indexing(self) -> int:
        """Ask for all documents, in bounded transactions; return how many the quota keeps out."""
        specs = self.dependencies.adder.slot_specs(self.base)
        held = 0
        for first in range(0, len(self.documents), ITEMS_PER_TRANSACTION):
            portion = [
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

            def write(tx: Transaction, portion: list[Request] = portion) -> list[Request]:
                lock_open_base(tx, self.base, building=False)
                return select_live_requests(tx, portion)

            answers = self.dependencies.store.admit_with(write)
            held += sum(answer.verdict is Verdict.REJECTED for answer in answers)
        return held

    def _open(self) -> Base:
        """Open the base, if all that was put into it is still there."""

        def write(tx: Transaction) -> Base:
            now = lock_open_base(tx, self.base, building=False)
            ((count,),) = tx.run(sql.COUNT_ITEMS, base_id=now.id)
            if count != self.manifest.items:
                raise StateConflict(RESTORING, f"Somebody deleted items of {now.name!r} while it was being restored.")
            opened = base_from_row(tx.run(item_statements.CLEAR_BASE_PROBLEM, id=now.id)[0])
            record_events(tx, [base_event("repaired", opened)])
            return opened

        return self.dependencies.store.database.write(write, durable=True)


def _being_restored() -> Fault:
    """Say why a base is not open yet, and who is at it."""
    message = "It is being restored from an archive, or that was interrupted; if nobody is at it, delete it."
    return Fault(RESTORING, {"message": message, "holder": make_holder_name()})


class _CountingWriter:
    """Something that is written to, and how much that was; where it can go back, nobody does."""

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
    """Open what is written to; a file gets its name when it is whole and safe on the disk."""
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
    finally:
        unfinished.unlink(missing_ok=True)


@contextmanager
def _opened(archive: Path | BinaryIO) -> Iterator[BinaryIO]:
    """Open what is read; what cannot go back is copied to a file first."""
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
