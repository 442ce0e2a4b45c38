"""A private folder in which a sandboxed reader starts.

kreuzberg contains PDFium (7.8 MB). On first use it writes PDFium below `TMPDIR` and loads it from there. Each reader
process does this once, in a private folder, before its limits apply, and the folder is removed when the process is
ready. So two processes never write the same file, no process loads a file that an earlier crash truncated, and no other
user of the machine can place a library for us in the common temporary folder.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path

MIN_FREE_BYTES = 32 << 20  # unpacking needs less
NOEXEC_FLAG = getattr(os, "ST_NOEXEC", 0)  # a mount option that also forbids loading libraries; unknown outside Linux


def create_reader_folder(spare: Path | None) -> tempfile.TemporaryDirectory[str]:
    """Create a folder that only this user can enter; a context manager that removes the folder.

    The folder lies in the temporary folder, or in `spare` if libraries cannot be written to and loaded from there.
    Raises `OSError` if neither folder is writable.
    """
    return tempfile.TemporaryDirectory(prefix="holdfast-reader-", dir=_parent(spare), ignore_cleanup_errors=True)


def _parent(spare: Path | None) -> Path | None:
    """Return the first suitable folder, else the first writable one."""
    folders = [
        folder for folder in (_temporary(), spare) if folder is not None and os.access(folder, os.W_OK | os.X_OK)
    ]
    return next(filter(_loads_libraries, folders), folders[0] if folders else None)


def _temporary() -> Path | None:
    with suppress(OSError):
        return Path(tempfile.gettempdir())
    return None


def _loads_libraries(folder: Path) -> bool:
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize >= MIN_FREE_BYTES and not disk.f_flag & NOEXEC_FLAG
