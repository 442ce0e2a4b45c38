"""Stores blobs in a folder: each blob is a file, synced to the disk before a row references it."""

from __future__ import annotations

import hashlib
import math
import os
import re
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from holdfast.blobs.base import (
    BLOCK_BYTES,
    NAME_PATTERN,
    UNFINISHED_SUFFIX,
    Blob,
    StoredBlob,
    check_name,
    find_data_folder,
    new_id,
    parse_blob_id,
)
from holdfast.disk import IN_DATA_FOLDER, reporting_full_disk, sync_folder
from holdfast.errors import BadSettings
from holdfast.private_files import make_private_folder, open_private_file, sync_name

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from pathlib import Path
    from typing import BinaryIO

    from holdfast.blobs.base import BlobLocation, ByteReader

SHARD = 1  # leading characters of the hash that name a folder; a batch syncs each folder, so there are few
SHARD_NAME = re.compile(rf"[0-9a-f]{{{SHARD}}}")


class FolderBlobStore:
    """A folder of blobs; `alone` is false if it also holds other files of Holdfast, such as the database."""

    def __init__(self, folder: Path, *, alone: bool = True) -> None:
        self._folder = folder
        self._alone = alone
        self._name_synced = False

    @classmethod
    def open_location(cls, location: BlobLocation) -> FolderBlobStore:
        folder = find_data_folder(location.address)
        if folder is None:
            raise BadSettings("blob_folder", value=location.address)
        inside = folder.absolute()
        return cls(folder, alone=not any(path.is_relative_to(inside) for path in location.own_paths))

    def check(self) -> None:
        """Do nothing: the folder is created when it is first written to."""

    @contextmanager
    def write_batch(
        self, next_id: Callable[[], str] = new_id, on_block: Callable[[], None] = lambda: None
    ) -> Iterator[Callable[[ByteReader], Blob]]:
        with reporting_full_disk(IN_DATA_FOLDER), self._write_batch(next_id, on_block) as put:
            yield put

    @contextmanager
    def _write_batch(
        self, next_id: Callable[[], str], on_block: Callable[[], None]
    ) -> Iterator[Callable[[ByteReader], Blob]]:
        self._make_folder()
        blobs: list[Blob] = []

        def put(source: ByteReader) -> Blob:
            blobs.append(self._write_blob(source, next_id(), on_block))
            return blobs[-1]

        try:
            yield put
            for folder in {self.path(blob.name).parent for blob in blobs} | {self._folder}:
                sync_folder(folder)
        except BaseException:
            self.remove([blob.name for blob in blobs])
            with suppress(OSError):  # the error of the upload is more important
                sync_folder(self._folder)  # the unfinished file was removed from it
            raise

    def _make_folder(self) -> None:
        """Create the folder durably. Another process may have created it just now, and not have synced it yet."""
        make_private_folder(self._folder)
        if not self._name_synced:
            sync_name(self._folder)
            self._name_synced = True

    def _write_blob(self, source: ByteReader, id_: str, on_block: Callable[[], None]) -> Blob:
        """Write one blob. Its directory entry is not synced yet."""
        unfinished = self._folder / f"{id_}{UNFINISHED_SUFFIX}"
        digest, size = hashlib.sha256(), 0
        try:
            with open(unfinished, "xb", opener=open_private_file) as file:
                while block := source.read(BLOCK_BYTES):
                    digest.update(block)
                    size += len(block)
                    file.write(block)
                    on_block()
                file.flush()
                os.fsync(file.fileno())
            name = f"{digest.hexdigest()}-{id_}"
            _rename(unfinished, self.path(name))
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise
        return Blob(name=name, digest=digest.hexdigest(), size=size)

    def path(self, name: str) -> Path:
        """Return the path of a blob; raise `BadRequest` for anything that is not the name of a blob."""
        return self._folder.joinpath(check_name(name)[:SHARD], name)

    @contextmanager
    def open(self, name: str, start: int = 0) -> Iterator[BinaryIO]:
        with self.path(name).open("rb") as file:
            file.seek(start)
            yield file

    @contextmanager
    def local_file(self, name: str) -> Iterator[Path]:
        path = self.path(name)
        path.stat()  # raises `FileNotFoundError`
        yield path

    def list_blobs(self, after: str, limit: int) -> list[StoredBlob]:
        """Return blobs in the order of their names."""
        return [StoredBlob(name, self._written_at(name)) for name in self._list_names(after, limit)]

    def _written_at(self, name: str) -> float:
        """Return when a file was written; a file that was just removed counts as just written."""
        try:
            return self.path(name).stat().st_mtime
        except FileNotFoundError:
            return math.inf

    def _list_names(self, after: str, limit: int) -> list[str]:
        found: list[str] = []
        for shard in sorted(_listed(self._folder)):
            if shard >= after[:SHARD] and len(shard) == SHARD and len(found) < limit:
                found += sorted(
                    name for name in _listed(self._folder / shard) if name > after and NAME_PATTERN.fullmatch(name)
                )
        return found[:limit]

    def find_missing(self, names: Collection[str]) -> set[str]:
        return {name for name in names if not self.path(name).exists()}

    def digest(self, name: str) -> str | None:
        with suppress(FileNotFoundError), self.path(name).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
        return None

    def unfinished(self, before: float = math.inf) -> list[str]:
        found = []
        for name in _listed(self._folder):
            with suppress(FileNotFoundError):
                if name.endswith(UNFINISHED_SUFFIX) and (self._folder / name).stat().st_mtime < before:
                    found.append(name)
        return found

    def list_foreign_files(self) -> list[str]:
        """Return files and folders that Holdfast did not write, as paths relative to the folder."""
        found = []
        for name in _listed(self._folder):
            if SHARD_NAME.fullmatch(name) and (self._folder / name).is_dir():
                inside = _listed(self._folder / name)
                found += [
                    f"{name}/{file}" for file in inside if not (NAME_PATTERN.fullmatch(file) and file.startswith(name))
                ]
            elif self._alone and not name.endswith(UNFINISHED_SUFFIX):
                found.append(name)
        return sorted(found)

    def remove_unfinished(self, name: str) -> None:
        (self._folder / name).unlink(missing_ok=True)

    def remove_ids(self, ids: Collection[str]) -> None:
        paths = [self._folder / f"{id_}{UNFINISHED_SUFFIX}" for id_ in ids]
        shards = [self._folder / name for name in _listed(self._folder) if len(name) == SHARD]
        for shard in shards:
            paths += [
                shard / name for name in _listed(shard) if parse_blob_id(name) in ids and NAME_PATTERN.fullmatch(name)
            ]
        _remove_files(paths, {self._folder, *shards})

    def remove(self, names: Collection[str]) -> None:
        paths = [self.path(name) for name in names]
        _remove_files(paths, {path.parent for path in paths})


def _remove_files(paths: Collection[Path], folders: Collection[Path]) -> None:
    """Remove files durably, because the records of the files are deleted next.

    All folders are synced, also those without a file left: a process that was killed may have removed it just now.
    """
    for path in paths:
        path.unlink(missing_ok=True)
    for folder in folders:
        with suppress(FileNotFoundError):
            sync_folder(folder)


def _listed(folder: Path) -> list[str]:
    """List a folder; empty if it does not exist."""
    try:
        return os.listdir(folder)  # noqa: PTH208 - names only, without a Path object for each
    except (FileNotFoundError, NotADirectoryError):
        return []


def _rename(file: Path, target: Path) -> None:
    """Rename a file; create the target folder if it does not exist."""
    try:
        file.rename(target)
    except FileNotFoundError:
        make_private_folder(target.parent)
        file.rename(target)
