"""The bytes of documents: one file a blob, named by its hash and an id of its own, never written twice.

A row names a blob only after its bytes are safe on the disk, and a file is removed only after the row is gone for good,
so a row never names a file that is not there. Equal bytes of two documents are two files: removing one never asks
who else has it.
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
UNFINISHED_SUFFIX = ".part"  # how the name of a file ends that is being written
SHARD = 1  # letters of the hash that name a folder: few, because each is synced for a batch of blobs
ID_LENGTH = 16  # letters at the end of a name that no other blob has
SHARD_NAME = re.compile(rf"[0-9a-f]{{{SHARD}}}")
NAME_PATTERN = re.compile(r"[0-9a-f]{64}-[0-9a-f]{16}")


def new_id() -> str:
    """Return an id that no blob has."""
    return secrets.token_hex(ID_LENGTH // 2)


class ByteReader(Protocol):
    """What bytes are read from."""

    def read(self, size: int, /) -> bytes:
        """Read on, at most so many; nothing at the end."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Blob:
    """Bytes that are safe on the disk."""

    name: str
    digest: str
    size: int


class BlobStore:
    """A folder of blobs; `alone` is false if other files of ours are in it, such as the database."""

    def __init__(self, folder: Path, *, alone: bool = True) -> None:
        self._folder = folder
        self._alone = alone

    @contextmanager
    def write_batch(
        self, next_id: Callable[[], str] = new_id, go_on: Callable[[], None] = lambda: None
    ) -> Iterator[Callable[[ByteReader], Blob]]:
        """Give a function that copies bytes into a new blob; at the end of the block they all survive a power cut.

        A block that fails leaves none of them; on a full disk it raises `StoreFull`. `next_id` gives the id of each
        blob; `go_on` is called after each block of bytes.
        """
        with reporting_full_disk(IN_DATA_FOLDER), self._write_batch(next_id, go_on) as put:
            yield put

    @contextmanager
    def _write_batch(
        self, next_id: Callable[[], str], go_on: Callable[[], None]
    ) -> Iterator[Callable[[ByteReader], Blob]]:
        make_private_folder(self._folder)
        blobs: list[Blob] = []

        def put(source: ByteReader) -> Blob:
            blobs.append(self._write_blob(source, next_id(), go_on))
            return blobs[-1]

        try:
            yield put
            for folder in {self.path(blob.name).parent for blob in blobs} | {self._folder}:
                sync_folder(folder)
        except BaseException:
            for blob in blobs:
                self.remove(blob.name)
            raise

    def _write_blob(self, source: ByteReader, id_: str, go_on: Callable[[], None]) -> Blob:
        """Write one blob; its name is not safe yet."""
        unfinished = self._folder / f"{id_}{UNFINISHED_SUFFIX}"
        digest, size = hashlib.sha256(), 0
        try:
            with open(unfinished, "xb", opener=open_private_file) as file:
                while block := source.read(BLOCK_BYTES):
                    digest.update(block)
                    size += len(block)
                    file.write(block)
                    go_on()
                file.flush()
                os.fsync(file.fileno())
            name = f"{digest.hexdigest()}-{id_}"
            _rename(unfinished, self.path(name))
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise
        return Blob(name=name, digest=digest.hexdigest(), size=size)

    def path(self, name: str) -> Path:
        """Return where a blob is; what is no name of a blob leads nowhere."""
        if not NAME_PATTERN.fullmatch(name):
            raise BadRequest(f"{name!r} is not the name of a blob; it was not given out by `put`.")
        return self._folder.joinpath(name[:SHARD], name)

    def names(self, after: str, limit: int) -> list[str]:
        """Name the blobs there are, in order, from behind `after` on."""
        found: list[str] = []
        for shard in sorted(_listed(self._folder)):
            if shard >= after[:SHARD] and len(shard) == SHARD and len(found) < limit:
                found += sorted(
                    name for name in _listed(self._folder / shard) if name > after and NAME_PATTERN.fullmatch(name)
                )
        return found[:limit]

    def written_at(self, name: str) -> float | None:
        """Tell when a blob was written, by the clock of its disk; None if it is gone."""
        with suppress(FileNotFoundError):
            return self.path(name).stat().st_mtime
        return None

    def digest(self, name: str) -> str | None:
        """Return the SHA-256 of the bytes as they are now; None if they are gone."""
        with suppress(FileNotFoundError), self.path(name).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
        return None

    def unfinished(self, before: float = math.inf) -> list[str]:
        """Name the files that were begun, or those of them that were not written to since then."""
        found = []
        for name in _listed(self._folder):
            with suppress(FileNotFoundError):
                if name.endswith(UNFINISHED_SUFFIX) and (self._folder / name).stat().st_mtime < before:
                    found.append(name)
        return found

    def list_foreign_files(self) -> list[str]:
        """Name the files and folders that we did not write, by their paths in the folder."""
        found = []
        for name in _listed(self._folder):
            if SHARD_NAME.fullmatch(name) and (self._folder / name).is_dir():
                inside = _listed(self._folder / name)
                found += [
                    f"{name}/{one}" for one in inside if not (NAME_PATTERN.fullmatch(one) and one.startswith(name))
                ]
            elif self._alone and not name.endswith(UNFINISHED_SUFFIX):
                found.append(name)
        return sorted(found)

    def remove_unfinished(self, name: str) -> None:
        """Remove a file that was begun and not finished."""
        (self._folder / name).unlink(missing_ok=True)

    def remove_ids(self, ids: Collection[str]) -> None:
        """Remove the blobs that have these ids, whatever their bytes are, also those that were not finished."""
        for id_ in ids:
            self.remove_unfinished(f"{id_}{UNFINISHED_SUFFIX}")
        for shard in _listed(self._folder):
            if len(shard) == SHARD:
                for name in _listed(self._folder / shard):
                    if name[-ID_LENGTH:] in ids and NAME_PATTERN.fullmatch(name):
                        self.remove(name)

    def remove(self, name: str) -> None:
        """Remove a blob that no row names any more."""
        with suppress(FileNotFoundError):
            self.path(name).unlink()


def _listed(folder: Path) -> list[str]:
    """Name what is in a folder; nothing if it is not there."""
    try:
        return os.listdir(folder)  # noqa: PTH208 - names, and not a path for each
    except (FileNotFoundError, NotADirectoryError):
        return []


def _rename(file: Path, target: Path) -> None:
    """Rename a file into a folder, which is made for the first one in it."""
    try:
        file.rename(target)
    except FileNotFoundError:
        make_private_folder(target.parent)
        file.rename(target)
