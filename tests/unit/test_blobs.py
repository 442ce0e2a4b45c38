"""Stored files keep their bytes, a crash leaves no named file, and no name reaches outside the folder."""

from __future__ import annotations

import hashlib
import io
import os
import stat
from typing import TYPE_CHECKING

import pytest

from holdfast.blobs.base import BLOCK_BYTES, Blob
from holdfast.blobs.folder import FolderBlobStore
from holdfast.errors import BadRequest

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def blobs(tmp_path: Path) -> FolderBlobStore:
    return FolderBlobStore(tmp_path / "data" / "blobs")


def put(blobs: FolderBlobStore, *sources: io.BytesIO) -> list[Blob]:
    with blobs.write_batch() as put_one:
        return [put_one(source) for source in sources]


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.mark.parametrize("content", [b"", b"krill", bytes(range(256)) * 10, b"x" * (2 * BLOCK_BYTES + 1)])
def test_a_file_is_read_back_as_it_was_written(blobs: FolderBlobStore, content: bytes) -> None:
    (blob,) = put(blobs, io.BytesIO(content))
    assert blobs.path(blob.name).read_bytes() == content
    assert (blob.digest, blob.size) == (hashlib.sha256(content).hexdigest(), len(content))


def test_equal_bytes_are_stored_in_two_independent_files(blobs: FolderBlobStore) -> None:
    one, two = put(blobs, io.BytesIO(b"krill"), io.BytesIO(b"krill"))
    assert one.digest == two.digest
    assert one.name != two.name
    blobs.remove([one.name])
    assert not blobs.path(one.name).exists()
    assert blobs.path(two.name).read_bytes() == b"krill"


def test_removing_twice_does_no_harm(blobs: FolderBlobStore, tmp_path: Path) -> None:
    (blob,) = put(blobs, io.BytesIO(b"krill"))
    blobs.remove([blob.name])
    blobs.remove([blob.name])
    assert files(tmp_path) == []


class Crash(BaseException):
    """Simulates the end of the process."""


class Broken(io.BytesIO):
    """A source that raises in the middle."""

    def read(self, size: int | None = -1) -> bytes:
        if self.tell():
            raise Crash
        return super().read(3 if size else 0)


def test_a_source_that_fails_midway_leaves_no_file(blobs: FolderBlobStore, tmp_path: Path) -> None:
    with pytest.raises(Crash):
        put(blobs, Broken(b"krill and whales"))
    assert files(tmp_path) == []


@pytest.mark.parametrize("step", ["fsync", "rename"])
def test_a_crash_before_the_bytes_are_synced_leaves_no_named_file(
    blobs: FolderBlobStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def crash(*_: object) -> None:
        raise Crash

    where: object = os if step == "fsync" else type(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(where, step, crash)
        patch.setattr(type(tmp_path), "unlink", lambda *_, **__: None)  # a crashed process cannot clean up
        with pytest.raises(Crash):
            put(blobs, io.BytesIO(b"krill"))
    assert [path.suffix for path in files(tmp_path)] == [".part"]


def test_bytes_are_synced_before_the_rename_and_folders_before_the_write_returns(
    blobs: FolderBlobStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        named = [path for path in files(tmp_path) if path.suffix != ".part"]
        synced.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "bytes")
        assert bool(named) == (synced[-1] == "folder")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    put(blobs, io.BytesIO(b"krill"))
    assert synced[0] == "bytes"
    assert synced.count("folder") >= 2  # the folder of the file and its parent


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "../secret", "../../etc/passwd", "/etc/passwd", "ab/../../../secret", "a\0b", "x" * 64 + "-1/../y"],
)
def test_no_name_reaches_outside_the_folder(blobs: FolderBlobStore, tmp_path: Path, name: str) -> None:
    secret = tmp_path / "secret"
    secret.write_text("keep")
    with pytest.raises(BadRequest):
        blobs.path(name)
    with pytest.raises(BadRequest):
        blobs.remove([name])
    assert secret.read_text() == "keep"
