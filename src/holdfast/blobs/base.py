"""The contract of blob stores. A blob holds the bytes of one document; it is never written twice.

The name of a blob is its SHA-256 and a unique id. A row references a blob only after its bytes are durable, and a blob
is removed only after a durable intent. So a row never references a missing blob. Two documents with equal bytes have
two blobs, so removing one needs no reference count.

A store is found by the scheme of its address, under the entry point `holdfast.blobs`: `file` and `s3` are built in.
"""

from __future__ import annotations

import re
import secrets
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol
from urllib.parse import unquote, urlsplit

from holdfast.errors import BadRequest, BadSettings, Outage, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from contextlib import AbstractContextManager

ENTRY_POINT_GROUP = "holdfast.blobs"
FILE_SCHEME = "file"
UNREACHABLE = "bucket_unreachable"  # the subcode of an error that ends when the server answers again
BLOCK_BYTES = 1 << 20
UNFINISHED_SUFFIX = ".part"  # of a file that is being written
DIGEST_LENGTH = 64  # characters of the hash at the start of a name
ID_LENGTH = 16  # characters of the unique id at the end of a name
NAME_PATTERN = re.compile(rf"[0-9a-f]{{{DIGEST_LENGTH}}}-[0-9a-f]{{{ID_LENGTH}}}")


class ByteReader(Protocol):
    def read(self, size: int, /) -> bytes:
        """Read up to `size` bytes; empty at the end."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Blob:
    """A blob whose bytes are durable."""

    name: str
    digest: str
    size: int


class StoredBlob(NamedTuple):
    """A blob in a listing of the store; `written_at` is a Unix time by the clock of the store."""

    name: str
    written_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobLocation:
    """Where blobs are. Each store uses the fields that it needs."""

    address: str  # a path, or an address with a scheme, as in HOLDFAST_DATA
    own_paths: Sequence[Path] = ()  # files and folders of Holdfast that are not blobs
    s3_endpoint: str = ""


class BlobStore(Protocol):
    """Keeps blobs. `tests/contract/test_blob_stores.py` checks each implementation.

    If the store cannot be reached or refuses, a method raises `StoreUnavailable`, `StoreReadOnly` or `StoreFull`.
    """

    def check(self) -> None:
        """Raise the error that any use of the store would raise now."""
        ...

    def write_batch(
        self, next_id: Callable[[], str] = ..., on_block: Callable[[], None] = ...
    ) -> AbstractContextManager[Callable[[ByteReader], Blob]]:
        """Write blobs that are all durable when the `with` block ends, or all removed if it fails.

        Yields a function that copies bytes into a new blob. `next_id` returns the id of each blob. `on_block` is
        called in the thread of the caller, at least once for each block and once per second while it waits. If the
        store was lost and blobs may remain, the error is `StoreUnavailable`.

            with blobs.write_batch() as put:
                blob = put(file)
        """
        ...

    def open(self, name: str, start: int = 0) -> AbstractContextManager[ByteReader]:
        """Read a blob from a position; raise `FileNotFoundError` if it is gone."""
        ...

    def local_file(self, name: str) -> AbstractContextManager[Path]:
        """Return a local file with the bytes of a blob, for readers that need a path. Do not change the file.

        A store without local files downloads the blob to a private temporary file and removes it afterwards. Raises
        `FileNotFoundError` if the blob is gone.
        """
        ...

    def list_blobs(self, after: str, limit: int) -> list[StoredBlob]:
        """Return up to `limit` blobs that follow the blob `after`, in the order of the store; all if it is empty.

        A blob is listed as long as any part of it is left, such as an old version in a versioned bucket.
        """
        ...

    def list_foreign_files(self) -> list[str]:
        """Return what else is in the store and was not written by Holdfast."""
        ...

    def find_missing(self, names: Collection[str]) -> set[str]:
        """Return those names whose blob does not exist."""
        ...

    def digest(self, name: str) -> str | None:
        """Return the SHA-256 of the bytes as they are now; None if the blob is gone."""
        ...

    def unfinished(self, before: float = ...) -> list[str]:
        """Return the names of unfinished files that were last written before `before`."""
        ...

    def remove_unfinished(self, name: str) -> None: ...

    def remove(self, names: Collection[str]) -> None:
        """Remove blobs that no row references, durably. A blob that is gone is no error."""
        ...

    def remove_ids(self, ids: Collection[str]) -> None:
        """Remove the blobs with these ids, finished or not, durably."""
        ...


@contextmanager
def waiting_for_blobs() -> Iterator[None]:
    """Raise errors of a blob store as `Outage`: the work is repeated later, and this attempt is not counted."""
    try:
        yield
    except StoreError as error:
        raise Outage(error.subcode or error.code, params=error.params) from error


def new_id() -> str:
    return secrets.token_hex(ID_LENGTH // 2)


def parse_blob_id(name: str) -> str:
    """Return the unique id at the end of a blob's name."""
    return name[-ID_LENGTH:]


def check_name(name: str) -> str:
    """Return the name; raise `BadRequest` for anything that is not the name of a blob."""
    if not NAME_PATTERN.fullmatch(name):
        raise BadRequest("blob_name", name=name)
    return name


def find_data_folder(address: str) -> Path | None:
    """Return the folder of an address; None if the blobs are not in a folder of this machine."""
    if "://" not in address:
        return Path(address)
    url = urlsplit(address)
    return Path(unquote(url.path)) if url.scheme == FILE_SCHEME and url.path and not url.netloc else None


def open_blob_store(location: BlobLocation) -> BlobStore:
    """Open the store at a location. Built-in stores use the same entry point as others."""
    scheme, separator, _ = location.address.partition("://")
    installed = entry_points(group=ENTRY_POINT_GROUP)
    name = scheme if separator else FILE_SCHEME
    if name not in installed.names:
        known = ", ".join(sorted(installed.names))
        raise BadSettings(
            "unknown_blob_store", value=location.address, scheme=name, known=known, group=ENTRY_POINT_GROUP
        )
    store: BlobStore = installed[name].load().open_location(location)
    return store
