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
# names of folders in the message: the environment variables that set them
IN_DATA_FOLDER = "HOLDFAST_DATA"
IN_HOME_FOLDER = "HOLDFAST_HOME"
IN_TEMPORARY_FOLDER = "TMPDIR"


@contextmanager
def reporting_full_disk(place: str) -> Iterator[None]:
    """Turn an `OSError` about missing space into `StoreFull`.

    The message says that nothing was written; the caller must ensure that. `place` names the file or folder in the
    message, as the user knows it: a path, or an environment variable.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in DISK_FULL_ERRNOS:
            raise
        raise StoreFull(place=place) from error


def sync_folder(folder: Path) -> None:
    """Sync the entries of a folder, so that new and renamed files survive a power failure."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
