"""A private folder in which a sandboxed reader starts.

kreuzberg carries PDFium (7.8 MB) inside its own library. On first use it writes PDFium below `TMPDIR` and loads it from
there. Each reader process does this once, in a private folder, before its limits apply, and the folder is removed when
the process is ready. So two processes never write the same file, no process loads a file that an earlier crash cut off,
and no other user of the machine can place a library for us in the common temporary folder.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

MIN_FREE_BYTES = 32 << 20  # free bytes that unpacking needs, with room to spare
NOEXEC_FLAG = getattr(os, "ST_NOEXEC", 0)  # a mount option that also forbids loading libraries; unknown outside Linux


@contextmanager
def create_reader_folder(spare: Path | None) -> Iterator[Path]:
    """Create a folder that only this user can enter, and remove it at the end.

    It is created in the temporary folder, or in `spare` if libraries cannot be written to and loaded from there.
    Raises `OSError` if neither folder can be written.
    """
    folder = Path(tempfile.mkdtemp(prefix="holdfast-reader-", dir=_parent(spare)))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _parent(spare: Path | None) -> Path | None:
    """Choose the first folder that is suitable, else the first that can be written."""
    folders = [
        folder for folder in (_temporary(), spare) if folder is not None and os.access(folder, os.W_OK | os.X_OK)
    ]
    return next(filter(_loads_libraries, folders), folders[0] if folders else None)


def _temporary() -> Path | None:
    with suppress(OSError):
        return Path(tempfile.gettempdir())
    return None


def _loads_libraries(folder: Path) -> bool:
    """Tell whether a library can be written to this folder and loaded from it."""
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize >= MIN_FREE_BYTES and not disk.f_flag & NOEXEC_FLAG
