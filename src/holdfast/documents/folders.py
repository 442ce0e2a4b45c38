"""Compares a folder with the items below it, and updates the items that differ.

A file is read only if its stamp changed, and indexed only if its bytes changed. A file that could not be listed is not
treated as removed.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.catalog import ItemKind, OnDuplicate
from holdfast.clock import Moment
from holdfast.documents import statements as sql
from holdfast.documents.add import pause_for_quota
from holdfast.documents.operations import KINDS_FROM_SOURCE
from holdfast.documents.requests import AddOptions, Upload
from holdfast.errors import WorkError
from holdfast.sources import FoundFile, SkipReason, open_found, scan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from holdfast.catalog import Base
    from holdfast.db import Database
    from holdfast.documents.add import DocumentAdder
    from holdfast.documents.remove import DocumentRemover
    from holdfast.engine.task import Task
    from holdfast.sources import FolderRules, Skipped, Stamp

ITEMS_PER_CHECKPOINT = 100  # files or items
BLOCK = 1 << 20
FOLDER_PRIORITY = 6  # of documents in a folder: after documents that a user added


class KnownItem(NamedTuple):
    """An item below a folder, as it was at the last sync."""

    id: int
    kind: str
    path: str
    stamp: str | None
    failed: bool
    digest: str | None = None

    @property
    def is_container(self) -> bool:
        return self.kind == ItemKind.DIRECTORY


@dataclass(slots=True)
class Difference:
    """The difference between a folder and the items below it."""

    new: list[FoundFile] = field(default_factory=list)
    touched: list[FoundFile] = field(default_factory=list)  # the stamp changed, so the content may have changed
    kept: list[KnownItem] = field(default_factory=list)  # unchanged
    gone: list[KnownItem] = field(default_factory=list)  # items to remove, files and folders
    folders: list[str] = field(default_factory=list)  # new folders, outer ones first
    skipped: dict[SkipReason, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncPreview:
    """What a sync of a folder would do, as paths relative to the folder."""

    added: list[str]
    changed: list[str]
    removed: list[str]
    unchanged: int
    skipped: dict[str, int]  # number of files that are left out, by reason


class FolderPart(NamedTuple):
    """A folder on the disk, the rules for reading it, and the subfolder that an item is (empty: the whole folder)."""

    root: Path
    rules: FolderRules
    within: str = ""


class SyncResult(NamedTuple):
    """The result of a sync."""

    difference: Difference
    same: list[int]  # ids of items whose content did not change


def compare(known: Iterable[KnownItem], entries: Iterable[FoundFile | Skipped], within: str = "") -> Difference:
    """Compare a folder with its items, whose sources are their paths.

    `within` limits the comparison to a subfolder. Items are removed only if the listing was complete.
    """
    items = {item.path: item for item in known}
    difference = Difference()
    files: set[str] = set()
    unseen: list[str] = []
    for entry in entries:
        if within and not _within(entry.path, within):
            continue
        if isinstance(entry, FoundFile):
            files.add(entry.path)
            item = items.get(entry.path)
            if item is None or item.is_container:
                difference.new.append(entry)
            elif item.stamp == _stamp_to_text(entry.stamp) and not item.failed:
                difference.kept.append(item)
            else:
                difference.touched.append(entry)
        else:
            difference.skipped[entry.reason] = difference.skipped.get(entry.reason, 0) + 1
            unseen += [entry.path] if entry.unseen else []
    folders = _parents(files)
    whole = SkipReason.TOO_MANY not in difference.skipped
    for path, item in items.items():
        replaced = path in (files if item.is_container else folders)
        seen = path in (folders if item.is_container else files)
        if replaced or (whole and not seen and not any(_within(path, hidden) for hidden in unseen)):
            difference.gone.append(item)
    made = {path for path, item in items.items() if item.is_container}
    wanted = {path for path in folders - made if not within or (_within(path, within) and path != within)}
    difference.folders = sorted(wanted, key=lambda path: (path.count("/"), path))
    return difference


def _parents(paths: Iterable[str]) -> set[str]:
    """Return all parent folders of these paths."""
    found: set[str] = set()
    for path in paths:
        while (path := path.rpartition("/")[0]) and path not in found:
            found.add(path)
    return found


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")


def _stamp_to_text(stamp: Stamp) -> str:
    return f"{stamp.size} {stamp.modified_ns} {stamp.changed_ns} {stamp.inode}"


def preview(database: Database, item: int | None, root: Path, rules: FolderRules) -> SyncPreview:
    """Return what a sync would do, without writing anything; `item` is None before the first sync."""
    known = {entry.path: entry for entry in _known(database, item)} if item is not None else {}
    difference = compare(known.values(), scan(root, rules))
    touched = {file.path: digest_of(root, file, rules) for file in difference.touched}
    changed = [path for path, digest in touched.items() if digest != known[path].digest]
    return SyncPreview(
        added=sorted(file.path for file in difference.new),
        changed=sorted(changed),
        removed=sorted(entry.path for entry in difference.gone if not entry.is_container),
        unchanged=len(difference.kept) + len(touched) - len(changed),
        skipped={str(reason): number for reason, number in difference.skipped.items()},
    )


class FolderUpdater:
    """Updates the items below a folder."""

    def __init__(self, database: Database, adder: DocumentAdder, remover: DocumentRemover) -> None:
        self._database = database
        self._adder = adder
        self._remover = remover

    def sync(self, task: Task, base: Base, item: int, part: FolderPart) -> SyncResult:
        """Scan the folder, and add, change and remove the items below `item`, which is this part of it."""
        root, rules, within = part
        task.checkpoint(stage="scanning")
        now = Moment(time.time_ns() // 1000)
        known = _known(self._database, item)
        difference = compare(known, scan(root, rules), within)
        options = AddOptions(
            on_duplicate=OnDuplicate.REPLACE,
            refuse_copies=False,
            priority=FOLDER_PRIORITY,
            cause="sync",
            ticket=task.ticket,
        )
        for portion in _portions([item.id for item in difference.gone]):
            task.checkpoint(stage="removing")
            self._remover.delete(base, portion, ticket=task.ticket)
        gone = {entry.id for entry in difference.gone}
        places = {entry.path: entry.id for entry in known if entry.is_container and entry.id not in gone} | {
            within: item
        }
        self._make(base, difference, options, places)
        opener = partial(open_found, root, limits=rules.limits)
        uploads = self._uploads(task, difference, opener, places, now)
        replies = self._adder.add(base, uploads, options)
        pause_for_quota(base, held=any(reply.quota_exhausted for reply in replies))
        same = [reply.item for reply in replies if reply.item is not None and not reply.accepted]
        return SyncResult(difference, [*(item.id for item in difference.kept), *same])

    def _make(self, base: Base, difference: Difference, options: AddOptions, places: dict[str, int]) -> None:
        """Create items for new folders, outer ones first, and add their ids to `places`."""
        depths: dict[int, list[str]] = {}
        for path in difference.folders:
            depths.setdefault(path.count("/"), []).append(path)
        for paths in depths.values():
            uploads = [
                Upload(name, kind=ItemKind.DIRECTORY, source=path, parent=places[above])
                for path in paths
                for above, _, name in [path.rpartition("/")]
            ]
            replies = self._adder.add(base, uploads, replace(options, index=False))
            places |= {path: reply.item for path, reply in zip(paths, replies, strict=True) if reply.item is not None}

    def _uploads(
        self, task: Task, difference: Difference, opener: Callable[[str], Any], places: dict[str, int], now: Moment
    ) -> Iterator[Upload]:
        """Yield the files to read, with a checkpoint every `ITEMS_PER_CHECKPOINT` files."""
        found = [*difference.new, *difference.touched]
        for number, entry in enumerate(found):
            if number % ITEMS_PER_CHECKPOINT == 0:
                task.checkpoint(stage="adding", done=number, total=len(found))
            above, _, name = entry.path.rpartition("/")
            yield Upload(
                name,
                partial(opener, entry.real_path),
                source=entry.path,
                seen=_stamp_to_text(entry.stamp) if entry.stamp.settled(now) else None,
                parent=places[above],
            )


def digest_of(root: Path, found: FoundFile, rules: FolderRules) -> str | None:
    """Return the SHA-256 of a file; None if it cannot be read now."""
    digest = sha256()
    try:
        with open_found(root, found.real_path, rules.limits) as file:
            while block := file.read(BLOCK):
                digest.update(block)
    except WorkError:
        return None
    return digest.hexdigest()


def _portions(ids: Sequence[int]) -> Iterator[Sequence[int]]:
    return (ids[first : first + ITEMS_PER_CHECKPOINT] for first in range(0, len(ids), ITEMS_PER_CHECKPOINT))


def _known(database: Database, item: int) -> list[KnownItem]:
    """Read the items that earlier syncs added below an item; items that users added there have no path."""
    with database.reading() as tx:
        found = [KnownItem(*row) for row in tx.run(sql.READ_SOURCE_ITEMS_BELOW, [[item]]) if row[0] != item]
    kinds = KINDS_FROM_SOURCE[ItemKind.DIRECTORY]
    return [entry for entry in found if entry.path is not None and entry.kind in kinds]
