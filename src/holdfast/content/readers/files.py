"""Opens files for readers: checks type and size, and translates errors of the file system."""

from __future__ import annotations

import errno
import io
import os
import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING

from holdfast.content import errors
from holdfast.errors import Permanent, Transient

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from holdfast.content.readers.base import ReadLimits

FIRST_READ_BYTES = 1 << 18  # most files are smaller; a larger buffer is allocated only if needed


class BoundedFile(io.BufferedReader):
    """A file that is read at positions which its own content names.

    The operating system reports a seek to an impossible position as an `OSError`, like an error of the disk. Here it
    is a `ValueError`, because only a damaged file names a position outside itself.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(io.FileIO(path))
        self.size = os.fstat(self.fileno()).st_size

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self.tell(), os.SEEK_END: self.size}[whence]
        if not 0 <= start + offset <= self.size:
            raise ValueError("the position is outside the file")
        return super().seek(offset, whence)


def check_size(path: Path, limits: ReadLimits) -> int:
    """Return the size of a file; refuse it unless it is a regular file, not empty and not too large."""
    try:
        status = path.stat()
    except ValueError:  # a NUL in the path
        raise errors.file_missing() from None
    if not stat.S_ISREG(status.st_mode):
        raise errors.not_a_file()
    if status.st_size > limits.bytes:
        raise errors.file_too_large(status.st_size, limits.bytes)
    if status.st_size == 0:
        raise errors.no_text()
    return status.st_size


def read_bytes(path: Path, limits: ReadLimits) -> bytes:
    """Return the bytes of a file; check its size again, since it may have grown."""
    with path.open("rb") as file:
        data = file.read(min(FIRST_READ_BYTES, limits.bytes + 1))
        if len(data) == FIRST_READ_BYTES:
            data += file.read(limits.bytes + 1 - FIRST_READ_BYTES)
    if len(data) > limits.bytes:
        raise errors.file_too_large(len(data), limits.bytes)
    return data


@contextmanager
def translate_os_errors() -> Iterator[None]:
    """Raise errors of the file system as `Permanent` or `Transient`."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError):
        raise errors.file_missing() from None
    except PermissionError:
        raise Permanent("not_permitted") from None
    except OSError as error:
        raise errors.not_a_file() if error.errno == errno.ELOOP else Transient("file_unavailable") from None
