"""Stored files keep their bytes, a crash leaves no named file, and no name reaches outside the folder."""

from __future__ import annotations

import hashlib
import io
import os
from pathlib import Path

import pytest

from holdfast.blobs.base import BLOCK_BYTES, Blob, parse_blob_id
from holdfast.blobs.folder import FolderBlobStore
from holdfast.errors import BadRequest


@pytest.fixture
def blobs(tmp_path: Path) -> FolderBlobStore:
    return FolderBlobStore(tmp_path / "data" / "blobs")


def put(blobs: FolderBlobStore, *sources: io.BytesIO) -> list[Blob]:
    with blobs.write_batch() as put_one:
        return [put_one(source) for source in sources]


@pytest.fixture
def synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Path, int]]:
    """What was synced, in order, each with the number of complete files at that time."""
    found: list[tuple[Path, int]] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        complete = [path for path in files(tmp_path) if path.suffix != ".part"]
        found.append((Path(f"/proc/self/fd/{descriptor}").readlink(), len(complete)))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    return found


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

    blobs.remove([put(blobs, io.BytesIO(b"kelp"))[0].name])  # so that the folders exist
    where: object = os if step == "fsync" else type(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(where, step, crash)
        patch.setattr(type(tmp_path), "unlink", lambda *_, **__: None)  # a crashed process cannot clean up
        with pytest.raises(Crash):
            put(blobs, io.BytesIO(b"krill"))
    assert [path.suffix for path in files(tmp_path)] == [".part"]


def test_bytes_are_synced_before_the_rename_and_folders_before_the_write_returns(
    blobs: FolderBlobStore, tmp_path: Path, synced: list[tuple[Path, int]]
) -> None:
    (blob,) = put(blobs, io.BytesIO(b"krill"))
    folder, shard = tmp_path / "data" / "blobs", blobs.path(blob.name).parent
    before = [path for path, named in synced if not named]
    assert [path.suffix for path in before].count(".part") == 1
    assert {tmp_path, tmp_path / "data", folder} <= set(before)  # they have the names of the new folders
    assert {path for path, named in synced if named} == {folder, shard}


def test_the_first_write_of_a_process_syncs_the_name_of_a_folder_that_another_process_created(
    blobs: FolderBlobStore, tmp_path: Path, synced: list[tuple[Path, int]]
) -> None:
    (tmp_path / "data" / "blobs").mkdir(parents=True)
    put(blobs, io.BytesIO(b"krill"))
    put(blobs, io.BytesIO(b"kelp"))
    assert [path for path, _ in synced].count(tmp_path / "data") == 1


def test_a_file_is_removed_durably_because_its_record_is_deleted_next(
    blobs: FolderBlobStore, synced: list[tuple[Path, int]]
) -> None:
    one, two = put(blobs, io.BytesIO(b"krill"), io.BytesIO(b"kelp"))
    shards = [blobs.path(blob.name).parent for blob in (one, two)]
    for _ in range(2):  # the second time, as after a process that was killed before it synced
        synced.clear()
        blobs.remove([one.name])
        assert synced == [(shards[0], 1)]
    synced.clear()
    blobs.remove_ids({parse_blob_id(two.name)})
    assert set(synced) == {(folder, 0) for folder in (*shards, shards[0].parent)}


def test_an_interrupted_upload_is_removed_durably(
    blobs: FolderBlobStore, tmp_path: Path, synced: list[tuple[Path, int]]
) -> None:
    source = io.BytesIO()
    source.close()
    with pytest.raises(ValueError, match="closed"):
        put(blobs, source)
    assert files(tmp_path) == []
    assert synced[-1] == (tmp_path / "data" / "blobs", 0)


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
