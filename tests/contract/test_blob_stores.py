"""Every blob store keeps the same promises: a folder, a bucket, and a bucket with versions."""

from __future__ import annotations

import hashlib
import io
import math
import random
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from holdfast.blobs.base import BLOCK_BYTES, BlobLocation, new_id, open_blob_store, parse_blob_id
from holdfast.errors import BadRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.blobs.base import Blob, BlobStore
    from tests.support.object_storage import ObjectStorage

CONTENTS = [b"", b"krill", bytes(range(256)) * 10, random.Random(7).randbytes(2 * BLOCK_BYTES + 1)]


class Place(Protocol):
    """Where the store keeps its blobs, seen from the outside."""

    address: str
    endpoint: str

    def left(self) -> list[str]:
        """Return everything that is in the store, finished or not, in any version."""
        ...

    def add_foreign(self, name: str) -> None: ...

    def overwrite(self, blob: str, content: bytes) -> None: ...


class Folder:
    endpoint = ""

    def __init__(self, folder: Path) -> None:
        self.address = str(folder)
        self._folder = folder

    def left(self) -> list[str]:
        return sorted(str(path.relative_to(self._folder)) for path in self._folder.rglob("*") if path.is_file())

    def add_foreign(self, name: str) -> None:
        (self._folder / name).write_bytes(b"not ours")

    def overwrite(self, blob: str, content: bytes) -> None:
        (self._folder / blob[0] / blob).write_bytes(content)


class Bucket:
    def __init__(self, storage: ObjectStorage, *, versioned: bool) -> None:
        self._storage = storage
        self.name = storage.create_bucket(versioned=versioned)
        self.address = f"s3://{self.name}/documents"
        self.endpoint = storage.endpoint

    def left(self) -> list[str]:
        return self._storage.contents(self.name)

    def add_foreign(self, name: str) -> None:
        self._storage.admin.put_object(Bucket=self.name, Key=f"documents/{name}", Body=b"not ours")

    def overwrite(self, blob: str, content: bytes) -> None:
        digest, _, id_ = blob.partition("-")
        self._storage.admin.put_object(Bucket=self.name, Key=f"documents/{id_}-{digest}", Body=content)


@pytest.fixture(
    params=["folder", pytest.param("bucket", marks=pytest.mark.s3), pytest.param("versioned", marks=pytest.mark.s3)]
)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "folder":
        return Folder(tmp_path / "blobs")
    return Bucket(request.getfixturevalue("s3"), versioned=request.param == "versioned")


@pytest.fixture
def blobs(place: Place) -> BlobStore:
    return open_blob_store(BlobLocation(address=place.address, s3_endpoint=place.endpoint))


def put(blobs: BlobStore, *contents: bytes) -> list[Blob]:
    with blobs.write_batch() as write:
        return [write(io.BytesIO(content)) for content in contents]


def read(blobs: BlobStore, name: str, start: int = 0, size: int = BLOCK_BYTES) -> bytes:
    found = b""
    with blobs.open(name, start) as reader:
        while block := reader.read(size):
            found += block
    return found


def names(blobs: BlobStore) -> list[str]:
    return [one.name for one in blobs.list_blobs("", 1_000)]


def test_bytes_are_read_back_as_they_were_written(blobs: BlobStore) -> None:
    written = put(blobs, *CONTENTS)
    for blob, content in zip(written, CONTENTS, strict=True):
        digest = hashlib.sha256(content).hexdigest()
        assert (blob.digest, blob.size, blob.name) == (digest, len(content), f"{digest}-{parse_blob_id(blob.name)}")
        assert read(blobs, blob.name) == content
        assert blobs.digest(blob.name) == digest
        with blobs.local_file(blob.name) as path:
            assert path.read_bytes() == content


@pytest.mark.parametrize("start", [1, BLOCK_BYTES, 2 * BLOCK_BYTES, 2 * BLOCK_BYTES + 1])
def test_a_blob_is_read_from_any_position(blobs: BlobStore, start: int) -> None:
    (blob,) = put(blobs, CONTENTS[3])
    assert read(blobs, blob.name, start, size=100_000) == CONTENTS[3][start:]


def test_a_local_file_is_removed_or_stays_in_the_store(blobs: BlobStore, place: Place) -> None:
    (blob,) = put(blobs, b"krill")
    before = place.left()
    with blobs.local_file(blob.name) as path:
        assert path.stat().st_mode & 0o077 == 0
    assert place.left() == before
    assert path.exists() == (Path(place.address) in path.parents)


def test_equal_bytes_are_two_independent_blobs(blobs: BlobStore) -> None:
    one, two = put(blobs, b"krill", b"krill")
    assert one.digest == two.digest
    assert one.name != two.name
    blobs.remove([one.name])
    assert (blobs.find_missing([one.name, two.name]), names(blobs)) == ({one.name}, [two.name])
    assert read(blobs, two.name) == b"krill"


def test_a_removed_blob_leaves_nothing_and_can_be_removed_again(blobs: BlobStore, place: Place) -> None:
    written = put(blobs, *(str(number).encode() for number in range(30)))
    chosen = [blob.name for blob in written]
    for _ in range(2):
        blobs.remove(chosen)
        assert (place.left(), names(blobs)) == ([], [])
    assert blobs.find_missing(chosen) == set(chosen)
    assert blobs.digest(chosen[0]) is None
    for opened in (blobs.open(chosen[0]), blobs.local_file(chosen[0])):
        with pytest.raises(FileNotFoundError), opened:
            pass


def test_nothing_is_listed_or_missing_in_an_empty_store(blobs: BlobStore) -> None:
    blobs.check()
    blobs.remove([])
    blobs.remove_ids([new_id()])
    assert (names(blobs), blobs.list_foreign_files(), blobs.unfinished(), blobs.find_missing([])) == ([], [], [], set())


def test_a_blob_is_removed_by_its_id_alone(blobs: BlobStore, place: Place) -> None:
    one, two, three = put(blobs, b"krill", b"whales", b"krill")
    blobs.remove_ids({parse_blob_id(one.name), parse_blob_id(two.name), new_id()})
    assert names(blobs) == [three.name]
    assert len(place.left()) == 1


class Crash(BaseException):
    """Ends an upload."""


class Broken(io.BytesIO):
    """A source that fails in the middle."""

    def read(self, size: int | None = -1, /) -> bytes:
        if self.tell():
            raise Crash
        return super().read(3 if size else 0)


def test_a_batch_that_fails_leaves_nothing(blobs: BlobStore, place: Place) -> None:
    (kept,) = put(blobs, b"kept")

    def write(last: Callable[[Any], None]) -> None:
        with blobs.write_batch() as put_one:
            for number in range(20):
                put_one(io.BytesIO(b"%d" % number))
            last(put_one)

    def crash(_: object) -> None:
        raise Crash

    for last in (crash, lambda put_one: put_one(Broken(b"krill and whales"))):
        with pytest.raises(Crash):
            write(last)
        assert names(blobs) == [kept.name]
        assert len(place.left()) == 1


def test_the_ids_of_a_batch_are_the_given_ones(blobs: BlobStore) -> None:
    ids = [new_id() for _ in range(3)]
    given = iter(ids)
    with blobs.write_batch(lambda: next(given)) as write:
        written = [write(io.BytesIO(b"krill")) for _ in ids]
    assert [parse_blob_id(blob.name) for blob in written] == ids


def test_each_block_is_reported_while_it_is_written(blobs: BlobStore) -> None:
    seen: list[None] = []
    with blobs.write_batch(on_block=lambda: seen.append(None)) as write:
        write(io.BytesIO(CONTENTS[3]))
    assert len(seen) >= 3


def test_blobs_are_listed_in_batches_with_the_time_of_their_writing(blobs: BlobStore) -> None:
    before = time.time() - 2  # servers round to seconds
    written = {blob.name for blob in put(blobs, *(str(number).encode() for number in range(25)))}
    found, after = [], ""
    sizes = []
    while some := blobs.list_blobs(after, 10):
        found += some
        after = some[-1].name
        sizes.append(len(some))
    assert sizes == [10, 10, 5]
    assert {one.name for one in found} == written
    assert len(found) == 25
    assert all(before <= one.written_at <= time.time() + 2 < math.inf for one in found)


def test_files_of_others_are_reported_and_never_touched(blobs: BlobStore, place: Place) -> None:
    (blob,) = put(blobs, b"krill")
    place.add_foreign("notes.txt")
    place.add_foreign(f"{parse_blob_id(blob.name)}-extra")
    assert len(blobs.list_foreign_files()) == 2
    assert names(blobs) == [blob.name]
    blobs.remove_ids([parse_blob_id(blob.name)])
    assert names(blobs) == []
    assert len(place.left()) == 2


def test_changed_bytes_have_another_digest(blobs: BlobStore, place: Place) -> None:
    (blob,) = put(blobs, b"krill")
    place.overwrite(blob.name, b"whale")
    assert blobs.digest(blob.name) == hashlib.sha256(b"whale").hexdigest() != blob.digest
    blobs.remove([blob.name])  # a versioned bucket has both contents
    assert place.left() == []


@pytest.mark.parametrize("name", ["", "..", "../secret", "/etc/passwd", "x" * 64 + "-1/../y", "0" * 64])
def test_no_name_reaches_outside_the_store(blobs: BlobStore, name: str) -> None:
    for use in (lambda: blobs.remove([name]), lambda: blobs.digest(name), lambda: blobs.find_missing([name])):
        with pytest.raises(BadRequest):
            use()
    for opened in (lambda: blobs.open(name), lambda: blobs.local_file(name)):
        with pytest.raises(BadRequest), opened():
            pass
