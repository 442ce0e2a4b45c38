"""Stores the bytes of documents. A blob is one file, named by its hash and a unique id, and is never written twice.

A row references a blob only after its bytes are synced to the disk, and a file is removed only after its row. So a row
never references a missing file. Two documents with equal bytes have two files, so removing one needs no reference
count.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
import secrets
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from holdfast.disk import IN_DATA_FOLDER, reporting_full_disk, sync_folder
from holdfast.errors import BadRequest
from holdfast.private_files import make_private_folder, open_private_file

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from pathlib import Path

BLOCK_BYTES = 1 << 20
UNFINISHED_SUFFIX = ".part"  # of a file that is being written
SHARD = 1  # leading characters of the hash that name a folder; a batch syncs each folder, so there are few
ID_LENGTH = 16  # characters of the unique id at the end of a name
SHARD_NAME = re.compile(rf"[0-9a-f]{{{SHARD}}}")
NAME_PATTERN = re.compile(r"[0-9a-f]{64}-[0-9a-f]{16}")


def new_id() -> str:
    return secrets.token_hex(ID_LENGTH // 2)


class ByteReader(Protocol):
    def read(self, size: int, /) -> bytes:
        """Read up to `size` bytes; empty at the end."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Blob:
    """A written and synced file."""

    name: str
    digest: str
    size: int


class BlobStore:
    """A folder of blobs; `alone` is false if it also holds other files of Holdfast, such as the database."""

    def __init__(self, folder: Path, *, alone: bool = True) -> None:
        self._folder = folder
        self._alone = alone

    @contextmanager
    def write_batch(
        self, next_id: Callable[[], str] = new_id, on_block: Callable[[], None] = lambda: None
    ) -> Iterator[Callable[[ByteReader], Blob]]:
        """Write blobs that are all synced when the `with` block ends, or all removed if it fails.

        Yields a function that copies bytes into a new blob. Raises `StoreFull` on a full disk. `next_id` returns the
        id of each blob; `on_block` is called after each block of bytes.

            with blobs.write_batch() as put:
                blob = put(file)
        """
        with reporting_full_disk(IN_DATA_FOLDER), self._write_batch(next_id, on_block) as put:
            yield put

    @contextmanager
    def _write_batch(
        self, next_id: Callable[[], str], on_block: Callable[[], None]
    ) -> Iterator[Callable[[ByteReader], Blob]]:
        make_private_folder(self._folder)
        blobs: list[Blob] = []

        def put(source: ByteReader) -> Blob:
            blobs.append(self._write_blob(source, next_id(), on_block))
            return blobs[-1]

        try:
            yield put
            for folder in {self.path(blob.name).parent for blob in blobs} | {self._folder}:
                sync_folder(folder)
        except BaseException:
            for blob in blobs:
                self.remove(blob.name)
            raise

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
        if not NAME_PATTERN.fullmatch(name):
            raise BadRequest("blob_name", name=name)
        return self._folder.joinpath(name[:SHARD], name)

    def names(self, after: str, limit: int) -> list[str]:
        """Return the names of up to `limit` blobs after the name `after`, in order."""
        found: list[str] = []
        for shard in sorted(_listed(self._folder)):
            if shard >= after[:SHARD] and len(shard) == SHARD and len(found) < limit:
                found += sorted(
                    name for name in _listed(self._folder / shard) if name > after and NAME_PATTERN.fullmatch(name)
                )
        return found[:limit]

    def written_at(self, name: str) -> float | None:
        """Return when a blob was written, by the clock of its disk; None if it is gone."""
        with suppress(FileNotFoundError):
            return self.path(name).stat().st_mtime
        return None

    def digest(self, name: str) -> str | None:
        """Return the SHA-256 of the file as it is now; None if it is gone."""
        with suppress(FileNotFoundError), self.path(name).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
        return None

    def unfinished(self, before: float = math.inf) -> list[str]:
        """Return the names of unfinished files that were last written before `before`."""
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
        """Remove the blobs with these ids, finished or not."""
        for id_ in ids:
            self.remove_unfinished(f"{id_}{UNFINISHED_SUFFIX}")
        for shard in _listed(self._folder):
            if len(shard) == SHARD:
                for name in _listed(self._folder / shard):
                    if name[-ID_LENGTH:] in ids and NAME_PATTERN.fullmatch(name):
                        self.remove(name)

    def remove(self, name: str) -> None:
        """Remove a blob that no row references."""
        with suppress(FileNotFoundError):
            self.path(name).unlink()


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
