"""The bytes of documents: one file a blob, named by its hash and an id of its own, never written twice.

A row names a blob only after its bytes are safe on the disk, and a file is removed only after the row is gone for good,
so a row never names a file that is not there. Equal bytes of two documents are two files: removing one never asks
who else has it.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

from holdfast.errors import BadRequest

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

BLOCK = 1 << 20
SHARD = 1  # letters of the hash that name a folder: few, because each is synced for a batch of blobs
NAME = re.compile(r"[0-9a-f]{64}-[0-9a-f]{16}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Blob:
    """Bytes that are safe on the disk."""

    name: str
    digest: str
    size: int


class Blobs:
    """A folder of blobs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, sources: Iterable[BinaryIO]) -> list[Blob]:
        """Copy the bytes of each source into a new blob; when this returns they survive a power cut."""
        self._folder.mkdir(parents=True, exist_ok=True)
        blobs: list[Blob] = []
        try:
            blobs.extend(map(self._written, sources))
            for folder in {self.path(blob.name).parent for blob in blobs} | {self._folder}:
                _sync(folder)
        except BaseException:
            for blob in blobs:
                self.remove(blob.name)
            raise
        return blobs

    def _written(self, source: BinaryIO) -> Blob:
        """Write one blob; its name is not safe yet."""
        unfinished = self._folder / f"{secrets.token_hex(8)}.part"
        digest, size = hashlib.sha256(), 0
        try:
            with unfinished.open("xb") as file:
                while block := source.read(BLOCK):
                    digest.update(block)
                    size += len(block)
                    file.write(block)
                file.flush()
                os.fsync(file.fileno())
            name = f"{digest.hexdigest()}-{secrets.token_hex(8)}"
            target = self.path(name)
            target.parent.mkdir(exist_ok=True)
            unfinished.rename(target)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise
        return Blob(name=name, digest=digest.hexdigest(), size=size)

    def path(self, name: str) -> Path:
        """Return where a blob is; what is no name of a blob leads nowhere."""
        if not NAME.fullmatch(name):
            raise BadRequest(f"{name!r} is not the name of a blob; it was not given out by `put`.")
        return self._folder / name[:SHARD] / name

    def remove(self, name: str) -> None:
        """Remove a blob that no row names any more."""
        with suppress(FileNotFoundError):
            self.path(name).unlink()


def _sync(folder: Path) -> None:
    """Make the names in a folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
