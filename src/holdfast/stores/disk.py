"""Reports a full disk as `StoreFull`, wherever this program writes a file."""

from __future__ import annotations

import errno
from contextlib import contextmanager
from typing import TYPE_CHECKING

from holdfast.errors import StoreFull

if TYPE_CHECKING:
    from collections.abc import Iterator

# No space, a quota, or a limit on the size of one file: in each case the disk does not accept the bytes.
FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
DATA = "in the data folder (HOLDFAST_DATA)"
TEMPORARY = "in the temporary folder (TMPDIR)"


@contextmanager
def reporting_full_disk(place: str) -> Iterator[None]:
    """Raise `StoreFull` if the operating system refuses bytes for lack of space in `place`."""
    try:
        yield
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise disk_full(error, place) from error


def disk_full(error: OSError, place: str = "") -> StoreFull:
    """Describe a full disk; the caller guarantees that nothing was written."""
    where = f" {place}" if place else ""
    return StoreFull(f"The disk is full. Nothing was written; free some space{where} and try again. ({error.strerror})")
