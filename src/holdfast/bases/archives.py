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
from holdfast.bases.archive_reader import ArchiveLimits, Unpacker
from holdfast.bases.archive_writer import Packer
from holdfast.bases.lifecycle import RESTORING
from holdfast.catalog import BLOCK, OnDuplicate, about, base_of
from holdfast.disk import TEMPORARY, reporting_full_disk
from holdfast.documents import TOGETHER, Terms, Upload, locked, still_there
from holdfast.engine import Fault, Operation, Request, Verdict
from holdfast.engine.liveness import holder_name, known_dead
from holdfast.engine.store import LARGEST_BATCH, record
from holdfast.errors import BadArchive, HoldfastError, NotNow, UnknownBase
from holdfast.llm import Held, Holding
from holdfast.url_secrets import masked
from holdfast.wellformed import nfc

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import IO, BinaryIO

    from holdfast.bases.archive_reader import Manifest, Read
    from holdfast.bases.lifecycle import Bases
    from holdfast.catalog import Base, Blobs
    from holdfast.db import Transaction
    from holdfast.documents import Adding, Reply
    from holdfast.engine.store import SqlStore

IMPORT = "import"  # the cause of what is asked for
USUAL = ArchiveLimits()
MEMORY = 8 << 20  # bytes of paid answers that are written in one transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveContents:
    """What is in an archive."""

    documents: int
    bytes: int  # of the archive
    memos: int
    left_out: int  # documents that were deleted or changed between being listed and being read


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """A base that was made from a file."""

    base: str
    documents: int
    memos: int  # answers that were paid for before
    skipped: int  # documents that the quota of the base keeps from being indexed today


@dataclass(frozen=True, slots=True, kw_only=True)
class Restoring:
    """How an archive is restored."""

    memos: bool = True  # believe the paid answers in it
    index: bool | None = None  # at once; None: as the base has it
    requester: str = ""
    limits: ArchiveLimits = USUAL


class Parts(NamedTuple):
    """What archives are made from and restored into."""

    store: SqlStore
    blobs: Blobs
    bases: Bases
    adding: Adding
    version: str  # of this program


class Archives:
    """Writes bases into archives, and reads them out again."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._holding = Holding(parts.store.database)

    # ------------------------------------------------------------ out

    def export(self, base: Base, target: Path | BinaryIO, *, memos: bool = True) -> ArchiveContents:
        """Write a base into one file, or whatever can be written to.

        Each item is there as it is when its turn comes; what is deleted before is left out. A file is there when it
        is whole, and not before.
        """
        store, blobs, bases, _, version = self._parts
        now = bases.read(base)
        if now.problem is not None and now.problem.code == RESTORING:
            raise NotNow(RESTORING, f"{now.name!r} is not whole. {now.problem.params['message']}")
        with reporting_full_disk("for the archive and in the temporary folder (TMPDIR)"), _written(target) as file:
            counted = _Counted(file)
            packed = Packer(store.database, blobs, now, counted).pack(version, memos=memos)  # type: ignore[arg-type]
        return ArchiveContents(
            documents=packed.documents, bytes=counted.count, memos=packed.memos, left_out=packed.left_out
        )

    # ------------------------------------------------------------ in

    def restore(
        self, archive: Path | BinaryIO, *, name: str | None = None, manner: Restoring | None = None
    ) -> Restored:
        """Make a new base of an archive, under its old name or another; all of it or nothing.

        Its documents are indexed in the background. What comes from elsewhere is not looked at before somebody asks.
        """
        how = manner or Restoring()
        with _opened(archive) as file, Unpacker(file, how.limits) as unpacker:
            manifest = unpacker.manifest()
            base = self._parts.bases.create(name or manifest.name, manifest.settings, _being_restored())
            try:
                return _Restore(self._parts, self._holding, unpacker, manifest, base, how).run()
            except BaseException as error:
                self._give_up(base, error)
                raise

    def _give_up(self, base: Base, error: BaseException) -> None:
        """Delete what was made; if that fails too, it is deleted when this process has ended."""
        try:
            self._parts.bases.delete(base)
        except UnknownBase:
            error.add_note(f"Somebody deleted the base {base.name!r} while it was being restored.")
        except HoldfastError as failure:
            error.add_note(f"What was restored of {base.name!r} could not be deleted: {failure} Delete it.")

    def finish(self, limit: int = LARGEST_BATCH) -> int:
        """Go on with what restored documents are owed, and delete what nobody restores any more; return how much."""
        left = [
            base
            for base in self._parts.bases.list()
            if base.problem is not None
            and base.problem.code == RESTORING
            and known_dead(base.problem.params.get("holder", ""))
        ]
        for base in left:
            self._parts.bases.delete(base)
        return len(left) + self._holding.settle(limit)


@dataclass(slots=True)
class _Restore:
    """One archive on its way into one base."""

    parts: Parts
    holding: Holding
    unpacker: Unpacker
    manifest: Manifest
    base: Base
    how: Restoring
    numbers: dict[int, int] = field(default_factory=dict)  # of the archive -> of this database
    documents: list[int] = field(default_factory=list)  # that can be indexed
    respelled: set[tuple[int, str]] = field(default_factory=set)  # places of names that had another Unicode spelling

    def run(self) -> Restored:
        """Write items, then what was paid for them, then ask for them, and open the base last."""
        self._items()
        memos = self._memos() if self.how.memos else 0
        self._rest()
        at_once = self.manifest.settings.auto_index if self.how.index is None else self.how.index
        skipped = self._ask() if at_once else 0
        return Restored(base=self._open().name, documents=self.manifest.documents, memos=memos, skipped=skipped)

    # ------------------------------------------------------------ items

    def _items(self) -> None:
        """Add the tree in bounded transactions; what stands in a container waits until that is there."""
        waiting: dict[int, Read] = {}
        count = documents = 0
        for item in self.unpacker.items():
            if len(waiting) == TOGETHER or item.parent in waiting:
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

    def _add(self, some: dict[int, Read]) -> None:
        terms = Terms(distinct=False, index=False, requester=self.how.requester, cause=IMPORT, restoring=True)
        replies = self.parts.adding.add(self.base, [self._upload(item) for item in some.values()], terms)
        for item, given in zip(some.values(), replies, strict=True):
            reply = self._renamed(item, terms) if self._respelled(item) and given.reason == "name_taken" else given
            if reply.item is None or reply.reason not in ("added", "renamed", item.problem and item.problem.code):
                raise BadArchive(f"The archive has {item.name!r} twice in one place. Nothing was restored.")
            self.numbers[item.id] = reply.item
            if item.digest is not None and item.problem is None:
                self.documents.append(reply.item)

    def _respelled(self, item: Read) -> bool:
        """Tell whether this or an earlier item got this name only because names now have one Unicode spelling.

        Older versions took both spellings for two names, so an archive of theirs may have both beside each other.
        """
        place = (item.parent, nfc(item.name))
        if place[1] != item.name:
            self.respelled.add(place)
        return place in self.respelled

    def _renamed(self, item: Read, terms: Terms) -> Reply:
        (reply,) = self.parts.adding.add(
            self.base, [self._upload(item)], replace(terms, on_duplicate=OnDuplicate.RENAME)
        )
        return reply

    def _upload(self, item: Read) -> Upload:
        return Upload(
            item.name,
            partial(self.unpacker.blob, item.digest) if item.digest else None,
            item.metadata,
            item.kind,
            item.source and masked(item.source),
            item.seen,
            item.every,
            item.problem,
            self.numbers[item.parent] if item.parent else 0,
        )

    # ------------------------------------------------------------ memos

    def _memos(self) -> int:
        """Hold paid answers for the documents; return how many."""
        some: list[Held] = []
        size = count = 0
        for memo in self.unpacker.memos():
            if memo.item not in self.numbers:
                raise BadArchive(f"The archive has paid answers for an item {memo.item} that is not in it.")
            some.append(Held(self.numbers[memo.item], *memo[1:]))
            size += len(memo.value or b"")
            count += memo.value is not None
            if size >= MEMORY or sum(len(one.chunks) for one in some) >= LARGEST_BATCH:
                self.holding.hold(self.base, some)
                some, size = [], 0
        self.holding.hold(self.base, some)
        if count != self.manifest.memos:
            raise BadArchive(f"The archive says that it has {self.manifest.memos} paid answers, and has {count}.")
        return count

    # ------------------------------------------------------------ the end

    def _rest(self) -> None:
        """Let no schedule look at sources of another machine before somebody has asked."""
        rest = partial(self._run, statement=sql.REST_SOURCES)
        while self.parts.store.database.write(rest, durable=False):
            pass

    def _run(self, tx: Transaction, statement: object) -> int:
        return len(tx.run(statement, base_id=self.base.id, limit=LARGEST_BATCH))  # type: ignore[arg-type]

    def _ask(self) -> int:
        """Ask for all documents, in bounded transactions; return how many the quota keeps out."""
        specs = self.parts.adding.slots(self.base)
        held = 0
        for first in range(0, len(self.documents), TOGETHER):
            portion = [
                Request(
                    base=self.base.key,
                    owner=str(item),
                    operation=Operation.INDEX,
                    slots=specs,
                    requester=self.how.requester,
                    cause=IMPORT,
                )
                for item in self.documents[first : first + TOGETHER]
            ]

            def write(tx: Transaction, portion: list[Request] = portion) -> list[Request]:
                locked(tx, self.base, building=False)
                return still_there(tx, portion)

            answers = self.parts.store.admit_with(write)
            held += sum(answer.verdict is Verdict.REJECTED for answer in answers)
        return held

    def _open(self) -> Base:
        """Open the base, if all that was put into it is still there."""

        def write(tx: Transaction) -> Base:
            now = locked(tx, self.base, building=False)
            ((count,),) = tx.run(sql.COUNT_ITEMS, base_id=now.id)
            if count != self.manifest.items:
                raise NotNow(RESTORING, f"Somebody deleted items of {now.name!r} while it was being restored.")
            opened = base_of(tx.run(item_statements.MEND_BASE, id=now.id)[0])
            record(tx, [about("repaired", opened)])
            return opened

        return self.parts.store.database.write(write, durable=True)


def _being_restored() -> Fault:
    """Say why a base is not open yet, and who is at it."""
    message = "It is being restored from an archive, or that was interrupted; if nobody is at it, delete it."
    return Fault(RESTORING, {"message": message, "holder": holder_name()})


class _Counted:
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
def _written(target: Path | BinaryIO) -> Iterator[IO[bytes]]:
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
            with reporting_full_disk(TEMPORARY):
                shutil.copyfileobj(archive, copy, BLOCK)
                copy.flush()
            yield copy
