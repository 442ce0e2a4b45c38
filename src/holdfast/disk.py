"""Helpers for writing files: report a full disk as `StoreFull`, and sync a folder."""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from holdfast.errors import StoreFull

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# no space left, quota exceeded, file too large
DISK_FULL_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
IN_DATA_FOLDER = "in the data folder (HOLDFAST_DATA)"
IN_TEMPORARY_FOLDER = "in the temporary folder (TMPDIR)"


@contextmanager
def reporting_full_disk(place: str) -> Iterator[None]:
    """Turn an `OSError` about missing space into `StoreFull`. `place` names the folder in the message."""
    try:
        yield
    except OSError as error:
        if error.errno not in DISK_FULL_ERRNOS:
            raise
        raise make_disk_full_error(error, place) from error


def make_disk_full_error(error: OSError, place: str = "") -> StoreFull:
    """Describe a full disk. The message says that nothing was written; the caller must ensure that."""
    where = f" {place}" if place else ""
    return StoreFull(f"The disk is full. Nothing was written; free some space{where} and try again. ({error.strerror})")


def sync_folder(folder: Path) -> None:
    """Sync the entries of a folder, so that new and renamed files survive a power failure."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
