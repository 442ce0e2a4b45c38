"""Writing files: a full disk is reported as `StoreFull`, and names are made to survive a power cut."""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from holdfast.errors import StoreFull

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# No space, a quota, or a limit on the size of one file: in each case the disk does not accept the bytes.
DISK_FULL_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
IN_DATA_FOLDER = "in the data folder (HOLDFAST_DATA)"
IN_TEMPORARY_FOLDER = "in the temporary folder (TMPDIR)"


@contextmanager
def reporting_full_disk(place: str) -> Iterator[None]:
    """Raise `StoreFull` if the operating system refuses bytes for lack of space in `place`."""
    try:
        yield
    except OSError as error:
        if error.errno not in DISK_FULL_ERRNOS:
            raise
        raise make_disk_full_error(error, place) from error


def make_disk_full_error(error: OSError, place: str = "") -> StoreFull:
    """Describe a full disk; the caller guarantees that nothing was written."""
    where = f" {place}" if place else ""
    return StoreFull(f"The disk is full. Nothing was written; free some space{where} and try again. ({error.strerror})")


def sync_folder(folder: Path) -> None:
    """Make the names in a folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
