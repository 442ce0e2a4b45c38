"""Writes a backup of an installation that is in use, and restores it into an empty one of any kind.

A backup is consistent: all its rows are from one snapshot, and it has every file that this snapshot names, because no
process removes files until they are copied. Restoring is a move whose source is a folder.
"""

from __future__ import annotations

import secrets
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.blobs import BlobLocation, open_blob_store
from holdfast.clock import Moment, SystemClock
from holdfast.db import closing
from holdfast.db.closing import MoveState
from holdfast.db.migrate import find_head
from holdfast.errors import BadBackup, StoreError
from holdfast.indexes import IndexTable
from holdfast.moving.backup_format import (
    FILES,
    FILES_FOLDER,
    MANIFEST,
    ROWS_FOLDER,
    Manifest,
    PartEntry,
    compute_digest,
    read_rows,
    rows_path,
    write_rows,
)
from holdfast.moving.copying import Copy, CopyResult
from holdfast.moving.files import copy_files
from holdfast.moving.source import FILES_PER_BATCH, DatabaseSource, Part, RowBatch
from holdfast.moving.tables import ROWS, copied_tables
from holdfast.private_files import make_private_folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from holdfast.blobs import BlobStore
    from holdfast.moving.installation import Installation
    from holdfast.moving.target import Report


class BackupResult(NamedTuple):
    rows: int
    files: int
    missing_files: int


def write_backup(
    installation: Installation, folder: Path, program: str, report: Report = lambda *_: None
) -> BackupResult:
    """Write a backup into a new or empty folder. `program` is the version of Holdfast."""
    installation.require_current()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise BadBackup("backup_target_not_empty", path=folder)
    make_private_folder(folder / ROWS_FOLDER)
    library = installation.library
    with library.file_holds.holding():
        created_at = SystemClock().now()
        counters, parts = _write_snapshot(installation, folder, report)
        files = open_files(folder)
        copied, named = 0, 0
        names = (name for (name,) in read_rows(rows_path(folder, FILES)))
        while batch := list(islice(names, FILES_PER_BATCH)):
            copied, named = copied + copy_files(batch, library.blobs, files), named + len(batch)
            report(FILES, copied, 0)
    Manifest(
        id=secrets.token_hex(8),
        holdfast=program,
        version=find_head(),
        created_at=created_at,
        counters=counters,
        parts=parts,
        missing_files=named - copied,
    ).write(folder)
    return BackupResult(sum(part.rows for part in parts if part.name != FILES), copied, named - copied)


def _write_snapshot(installation: Installation, folder: Path, report: Report) -> tuple[dict[str, int], list[PartEntry]]:
    """Write all rows, and the names of the files, from one snapshot."""
    entries = []
    with installation.database.shared_reading():
        source = DatabaseSource(installation.database, Moment(0))
        counters = dict(source.counters)
        for part in (*source.tables(), *source.indexes()):
            total = source.count(part)
            count, digest = write_rows(rows_path(folder, part.name), (batch.rows for batch in source.read(part, None)))
            report(part.name, count, total)
            index = part.rows_of
            entries.append(
                PartEntry(part.name, count, digest)
                if index is None
                else PartEntry(part.name, count, digest, index.prefix, index.recipe)
            )
        names = ([[name] for name in batch] for _, batch in source.list_blobs())
        entries.append(PartEntry(FILES, *write_rows(rows_path(folder, FILES), names)))
    return counters, entries


def open_files(folder: Path) -> BlobStore:
    """Return the store of the files in a backup."""
    return open_blob_store(BlobLocation(address=str(folder / FILES_FOLDER)))


class BackupSource:
    """The rows of a backup."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self._folder = folder
        self._manifest = manifest
        self._entries = {entry.name: entry for entry in manifest.parts}

    @property
    def counters(self) -> dict[str, int]:
        return self._manifest.counters

    def tables(self) -> Sequence[Part]:
        return [Part(table.name, table) for table in copied_tables()]

    def indexes(self) -> Sequence[Part]:
        return [
            Part(entry.name, rows_of=IndexTable(entry.prefix, entry.recipe))
            for entry in self._manifest.parts
            if entry.prefix
        ]

    def read(self, part: Part, after: Sequence[Any] | None) -> Iterator[RowBatch]:
        line = after[0] if after else 0
        rows = read_rows(rows_path(self._folder, part.name), line)
        while batch := list(islice(rows, ROWS)):
            line += len(batch)
            yield RowBatch(batch, [line])

    def count(self, part: Part) -> int:
        return self._entries[part.name].rows

    def list_blobs(self, after: int = 0) -> Iterator[tuple[int, list[str]]]:
        """Yield the names of files in batches, with the number of names so far."""
        names = (name for (name,) in read_rows(rows_path(self._folder, FILES), after))
        while batch := list(islice(names, FILES_PER_BATCH)):
            after += len(batch)
            yield after, batch


def check_backup(folder: Path) -> Manifest:
    """Read everything in a backup and compare it with the manifest; raise `BadBackup` if something is wrong."""
    manifest = Manifest.read(folder)
    if manifest.version != find_head():
        raise BadBackup("backup_version", path=folder, version=manifest.version, needed=find_head())
    missing = {table.name for table in copied_tables()} - {entry.name for entry in manifest.parts}
    for entry in manifest.parts:
        if compute_digest(rows_path(folder, entry.name)) != entry.digest:
            missing.add(entry.name)
    if missing:
        raise BadBackup("backup_damaged", path=folder, entry=min(missing))
    files, lacking = open_files(folder), 0
    for (name,) in read_rows(rows_path(folder, FILES)):
        digest = files.digest(name)
        lacking += digest is None
        if digest is not None and not name.startswith(digest):
            raise BadBackup("backup_damaged", path=folder, entry=name)
    if lacking != manifest.missing_files:
        raise BadBackup("backup_damaged", path=folder, entry=FILES_FOLDER)
    return manifest


def restore_backup(target: Installation, folder: Path, report: Report = lambda *_: None) -> CopyResult:
    """Check a backup, and restore it into an empty installation. An interrupted restore can be repeated."""
    manifest = check_backup(folder)
    source = BackupSource(folder, manifest)
    copy = Copy(target, source, report)
    if not copy.prepare(manifest.id) and target.library.blobs.list_blobs("", 1):
        raise StoreError("restore_files_not_empty", data=target.data)
    copy.begin(MoveState(manifest.id, closing.TARGET, str(folder / MANIFEST), manifest.version, "{}"))
    copy.copy_files(open_files(folder), source.list_blobs)
    result = copy.run()
    copy.verify(deep=True, allowed={"file_lacks"} if manifest.missing_files else frozenset())
    copy.open()
    return result
