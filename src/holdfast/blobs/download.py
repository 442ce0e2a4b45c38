"""Private temporary files with the bytes of a blob, for readers that need a path.

A process holds a lock on its file as long as it uses the file. A file without a lock was left by a process that was
killed; the next process that downloads a blob removes it, so no copy of a deleted document stays on the disk.
"""

from __future__ import annotations

import fcntl
import logging
import os
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.blobs.base import BLOCK_BYTES
from holdfast.disk import IN_TEMPORARY_FOLDER, reporting_full_disk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.blobs.base import ByteReader

log = logging.getLogger("holdfast")

PREFIX = "holdfast-blob-"
LOCKED_WITHIN_SECONDS = 60  # a younger file may not be locked yet


@contextmanager
def download_to_file(reader: ByteReader) -> Iterator[Path]:
    with tempfile.NamedTemporaryFile(prefix=PREFIX) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with reporting_full_disk(IN_TEMPORARY_FOLDER):
            while block := reader.read(BLOCK_BYTES):
                file.write(block)
            file.flush()
        yield Path(file.name)


def remove_abandoned_files() -> None:
    """Remove the files that killed processes of this user have left in the temporary folder."""
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with suppress(OSError), path.open("rb") as file:  # a locked file raises `BlockingIOError`
            status = os.fstat(file.fileno())
            if status.st_uid == os.getuid() and status.st_mtime < time.time() - LOCKED_WITHIN_SECONDS:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
                log.info("blobs.download_removed path=%s", path)
