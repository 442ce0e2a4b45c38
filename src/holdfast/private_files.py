"""Files and folders that only their owner can read, whatever the umask is and whoever created them."""

from __future__ import annotations

import logging
import os
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

log = logging.getLogger("holdfast")

FOLDER, FILE = 0o700, 0o600
OTHERS = 0o077


def private_folder(path: Path) -> None:
    """Create a folder of ours for its owner alone, or close one that is open to others."""
    path.mkdir(mode=FOLDER, parents=True, exist_ok=True)
    close_to_others(path)


def private_file(path: str | Path, flags: int) -> int:
    """Open a file, as `opener` of `open` does; a new one is for its owner alone."""
    descriptor = os.open(path, flags | os.O_CLOEXEC, FILE)
    if os.fstat(descriptor).st_mode & OTHERS:
        try:
            os.fchmod(descriptor, FILE)
        except PermissionError:
            _warn(path)
    return descriptor


def close_to_others(path: Path) -> None:
    """Take away the rights of other users; a folder that all users share (with the sticky bit) stays as it is.

    The file is not opened: closing a database file would drop the locks that SQLite holds on it.
    """
    try:
        mode = path.stat().st_mode
    except OSError:
        return
    if not mode & OTHERS or mode & stat.S_ISVTX:
        return
    try:
        path.chmod(stat.S_IMODE(mode) & ~OTHERS)
    except PermissionError:
        _warn(path)


def _warn(path: str | Path) -> None:
    log.warning("files.open_to_others path=%s: it belongs to another user, who must run chmod go= on it", path)
