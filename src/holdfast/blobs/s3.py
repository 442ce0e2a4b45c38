"""Stores blobs in a bucket of S3-compatible object storage.

The key of a blob is `{prefix}{id}-{digest}`. It begins with the id, because an abandoned upload is known by its id
only. A blob is sent with one PUT, which S3 applies completely or not at all. So a bucket contains no unfinished files,
and a blob is durable when the server has acknowledged its PUT.

A versioned bucket keeps deleted objects as versions. Removing a blob removes all its versions and delete markers.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
import threading
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, NamedTuple, TypeVar
from urllib.parse import urlsplit

from holdfast.blobs.base import (
    BLOCK_BYTES,
    DIGEST_LENGTH,
    ID_LENGTH,
    Blob,
    StoredBlob,
    check_name,
    new_id,
    parse_blob_id,
)
from holdfast.blobs.download import download_to_file, remove_abandoned_files
from holdfast.blobs.hashed_copy import copy_and_hash
from holdfast.errors import BadSettings, StoreError, StoreReadOnly, StoreUnavailable
from holdfast.extras import require_extra

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from concurrent.futures import Future
    from pathlib import Path

    from holdfast.blobs.base import BlobLocation, ByteReader
    from holdfast.blobs.hashed_copy import HashedCopy
    from holdfast.blobs.s3_bucket import Bucket

T = TypeVar("T")

PARALLEL_REQUESTS = 8
POLL_SECONDS = 1.0  # between two calls of `on_block`
KEY_PATTERN = re.compile(rf"([0-9a-f]{{{ID_LENGTH}}})-([0-9a-f]{{{DIGEST_LENGTH}}})")
BUCKET_PATTERN = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")


class S3BlobStore:
    """The blobs below one prefix of a bucket."""

    def __init__(self, bucket: str, prefix: str = "", endpoint: str = "") -> None:
        self._bucket_name = bucket
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        self._endpoint = endpoint
        self._opening = threading.Lock()
        self._opened: tuple[int, Bucket] | None = None  # the process, and its connections
        self._downloads_removed = False  # those of killed processes

    @classmethod
    def open_location(cls, location: BlobLocation) -> S3BlobStore:
        require_extra("s3")
        url = urlsplit(location.address)
        if not BUCKET_PATTERN.fullmatch(url.netloc) or url.query or url.fragment:
            raise BadSettings("blob_bucket", value=location.address)
        endpoint = urlsplit(location.s3_endpoint)
        if location.s3_endpoint and (endpoint.scheme not in {"http", "https"} or not endpoint.hostname):
            raise BadSettings("blob_endpoint", value=location.s3_endpoint)
        return cls(url.netloc, url.path, location.s3_endpoint)

    @property
    def _bucket(self) -> Bucket:
        """The bucket. It is opened at the first request, and again after a fork, because sockets cannot be shared."""
        with self._opening:
            if self._opened is None or self._opened[0] != os.getpid():
                from holdfast.blobs.s3_bucket import Bucket  # noqa: PLC0415 - importing boto3 takes almost a second

                self._opened = (os.getpid(), Bucket(self._bucket_name, self._endpoint))
            return self._opened[1]

    def check(self) -> None:
        self._bucket.check(self._prefix)

    @contextmanager
    def write_batch(
        self, next_id: Callable[[], str] = new_id, on_block: Callable[[], None] = lambda: None
    ) -> Iterator[Callable[[ByteReader], Blob]]:
        """Send small blobs in parallel and large ones one by one, so that temporary files need little space."""
        uploads: list[_Upload] = []

        def put(source: ByteReader) -> Blob:
            copy = copy_and_hash(source, on_block)
            blob = Blob(name=f"{copy.digest}-{next_id()}", digest=copy.digest, size=copy.size)
            uploads.append(_Upload(blob.name, copy, threads.submit(self._send, blob.name, copy)))
            _await_uploads(uploads, on_block, at_most=PARALLEL_REQUESTS - 1 if copy.in_memory else 0)
            return blob

        with ThreadPoolExecutor(PARALLEL_REQUESTS, "holdfast-s3") as threads:
            try:
                yield put
                _await_uploads(uploads, on_block, at_most=0)
            except BaseException as error:
                self._undo(uploads, error)
                raise

    def _send(self, name: str, copy: HashedCopy) -> None:
        with copy.file:
            try:
                self._bucket.put(self._key(name), copy)
            except StoreReadOnly:
                self.check()  # some servers forbid writing to a bucket that does not exist
                raise

    def _undo(self, uploads: Sequence[_Upload], cause: BaseException) -> None:
        """Remove the blobs of a failed batch. If this fails, raise `StoreUnavailable`: blobs may remain."""
        for upload in uploads:
            if upload.future.cancel():
                upload.copy.file.close()
        wait([upload.future for upload in uploads])
        try:
            self.remove([upload.name for upload in uploads if upload.may_be_stored])
        except StoreUnavailable:
            raise
        except StoreError as error:
            raise StoreUnavailable(error.subcode, **error.params) from cause

    @contextmanager
    def open(self, name: str, start: int = 0) -> Iterator[ByteReader]:
        with closing(self._bucket.open(self._key(name), start)) as reader:
            yield reader

    @contextmanager
    def local_file(self, name: str) -> Iterator[Path]:
        if not self._downloads_removed:
            self._downloads_removed = True
            remove_abandoned_files()
        with self.open(name) as reader, download_to_file(reader) as path:
            yield path

    def list_blobs(self, after: str, limit: int) -> list[StoredBlob]:
        """Return blobs in the order of their ids."""
        found: dict[str, float] = {}
        for version in self._bucket.list_versions(self._prefix, after=self._key(after) if after else ""):
            name = self._name(version.key)
            if name is not None and name not in found:
                if len(found) == limit:
                    break
                found[name] = version.written_at  # of the newest version
        return [StoredBlob(name, written_at) for name, written_at in found.items()]

    def list_foreign_files(self) -> list[str]:
        keys = {version.key for version in self._bucket.list_versions(self._prefix)}
        return sorted(key for key in keys if self._name(key) is None)

    def find_missing(self, names: Collection[str]) -> set[str]:
        found = _in_parallel(lambda name: self._bucket.exists(self._key(name)), names)
        missing = {name for name, exists in found.items() if not exists}
        if missing:
            self.check()  # raises if the bucket itself is missing, which says nothing about its objects
        return missing

    def digest(self, name: str) -> str | None:
        found = hashlib.sha256()
        try:
            with self.open(name) as reader:
                while block := reader.read(BLOCK_BYTES):
                    found.update(block)
        except FileNotFoundError:
            return None
        return found.hexdigest()

    def unfinished(self, before: float = math.inf) -> list[str]:  # noqa: ARG002 - there are none at any time
        return []

    def remove_unfinished(self, name: str) -> None:
        """Do nothing: a bucket has no unfinished files."""

    def remove(self, names: Collection[str]) -> None:
        self._remove_versions(self._bucket.delete([self._key(name) for name in names]))

    def remove_ids(self, ids: Collection[str]) -> None:
        self._remove_versions([f"{self._prefix}{id_}-" for id_ in ids])

    def _remove_versions(self, prefixes: Collection[str]) -> None:
        """Remove all versions and delete markers of the blobs whose keys begin with these prefixes."""
        found = _in_parallel(lambda prefix: list(self._bucket.list_versions(prefix)), prefixes)
        self._bucket.delete_versions([one for some in found.values() for one in some if self._name(one.key)])

    def _key(self, name: str) -> str:
        digest = check_name(name)[:DIGEST_LENGTH]
        return f"{self._prefix}{parse_blob_id(name)}-{digest}"

    def _name(self, key: str) -> str | None:
        """Return the name of the blob with this key; None if Holdfast did not write it."""
        found = KEY_PATTERN.fullmatch(key, len(self._prefix))
        return f"{found[2]}-{found[1]}" if found else None


class _Upload(NamedTuple):
    """A blob that a thread sends."""

    name: str
    copy: HashedCopy
    future: Future[None]

    @property
    def may_be_stored(self) -> bool:
        """Whether the server has stored the blob, or may have done so before its answer was lost."""
        return not self.future.cancelled() and isinstance(self.future.exception(), StoreUnavailable | None)


def _await_uploads(uploads: Sequence[_Upload], on_block: Callable[[], None], *, at_most: int) -> None:
    """Wait until at most this many uploads are running; raise the error of an upload that failed."""
    while True:
        running = [upload.future for upload in uploads if not upload.future.done()]
        for upload in uploads:
            if upload.future not in running:
                upload.future.result()
        if len(running) <= at_most:
            return
        wait(running, POLL_SECONDS, FIRST_COMPLETED)
        on_block()


def _in_parallel(work: Callable[[str], T], items: Collection[str]) -> dict[str, T]:
    if len(items) < 2:  # noqa: PLR2004 - needs no thread
        return {item: work(item) for item in items}
    with ThreadPoolExecutor(PARALLEL_REQUESTS, "holdfast-s3") as threads:
        return dict(zip(items, threads.map(work, items), strict=True))
