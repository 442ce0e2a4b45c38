"""A private copy of an upload, made before it is sent to a bucket.

The key of a blob contains its hash, so the bytes are hashed before the first one is sent. A request that is repeated
needs the bytes a second time.
"""

from __future__ import annotations

import hashlib
import tempfile
from base64 import b64encode
from typing import TYPE_CHECKING, NamedTuple

from holdfast.blobs.base import BLOCK_BYTES
from holdfast.disk import IN_TEMPORARY_FOLDER, reporting_full_disk
from holdfast.errors import BadRequest

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import IO

    from holdfast.blobs.base import ByteReader

LARGEST_PUT = 5 * 2**30  # bytes; the limit of S3 for one request
IN_MEMORY_BYTES = BLOCK_BYTES  # a larger copy is in a temporary file without a name, so no crash leaves it behind


class HashedCopy(NamedTuple):
    file: IO[bytes]
    digest: str
    md5: str  # in base64; the server compares it with the bytes that it receives
    size: int

    @property
    def in_memory(self) -> bool:
        return self.size <= IN_MEMORY_BYTES


def copy_and_hash(source: ByteReader, on_block: Callable[[], None]) -> HashedCopy:
    """Copy all bytes of a source. The caller closes the file."""
    digest, md5, size = hashlib.sha256(), hashlib.md5(usedforsecurity=False), 0
    file = tempfile.SpooledTemporaryFile(IN_MEMORY_BYTES)  # noqa: SIM115 - the caller closes it
    try:
        while block := source.read(BLOCK_BYTES):
            size += len(block)
            _check_size(size)
            digest.update(block)
            md5.update(block)
            with reporting_full_disk(IN_TEMPORARY_FOLDER):
                file.write(block)
            on_block()
        file.seek(0)
    except BaseException:
        file.close()
        raise
    return HashedCopy(file, digest.hexdigest(), b64encode(md5.digest()).decode(), size)


def _check_size(size: int) -> None:
    if size > LARGEST_PUT:
        raise BadRequest("blob_too_large", limit=LARGEST_PUT // 2**30)
