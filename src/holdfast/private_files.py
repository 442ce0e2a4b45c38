"""Creates files and folders with access for their owner only, independent of the umask.

A sync of a folder makes the names in it durable, but not its own name in the folder above. So the folder above is
synced, too. Otherwise a power cut could remove the new folder with everything that was synced in it.
"""

from __future__ import annotations

import logging
import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING

from holdfast.disk import sync_folder

if TYPE_CHECKING:
    from pathlib import Path

log = logging.getLogger("holdfast")

FOLDER_MODE, FILE_MODE = 0o700, 0o600
OTHERS_MASK = 0o077


def make_private_folder(path: Path) -> None:
    """Create a folder that only its owner can access, durably. An existing folder is restricted, too."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    restrict_to_owner(path)
    for folder in reversed(missing):
        sync_name(folder)


def sync_name(path: Path) -> None:
    """Make the name of a file or folder durable, as far as this process may read the folder above."""
    with suppress(PermissionError):
        sync_folder(path.parent)


def open_private_file(path: str | Path, flags: int) -> int:
    """Open a file, as the `opener` of `open`. Only the owner of the file gets access."""
    descriptor = os.open(path, flags | os.O_CLOEXEC, FILE_MODE)
    if os.fstat(descriptor).st_mode & OTHERS_MASK:
        try:
            os.fchmod(descriptor, FILE_MODE)
        except PermissionError:
            _warn(path)
    return descriptor


def restrict_to_owner(path: Path) -> None:
    """Remove the access of other users. A shared folder (with the sticky bit) is not changed.

    The function does not open the file: closing a database file would release the locks that SQLite holds on it.
    """
    try:
        mode = path.stat().st_mode
    except OSError:
        return
    if not mode & OTHERS_MASK or mode & stat.S_ISVTX:
        return
    try:
        path.chmod(stat.S_IMODE(mode) & ~OTHERS_MASK)
    except PermissionError:
        _warn(path)


def _warn(path: str | Path) -> None:
    """Warn that other users have access. Only the owner, another user, can remove it: `chmod go= PATH`."""
    log.warning("files.open_to_others path=%s", path)
