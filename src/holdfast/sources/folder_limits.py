"""Which folders may be read: never our own data, and for keys only below folders that the operator allows.

Files and folders are told by device and inode of what was opened, never by their path: a link, a second name or a
folder that is swapped after a check leads to the same answer.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.sources import errors

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Identity = tuple[int, int]  # device and inode
PARENT_FLAGS = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC  # needs no permission to list


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderLimits:
    """What no scan reads, and where it has to stay."""

    own_folders: tuple[Path, ...] = ()  # our own, with all that lies in them
    own_files: tuple[Path, ...] = ()  # our own, with those beside them whose name continues theirs: `-wal`, `-shm`
    allowed_roots: tuple[Path, ...] | None = None  # a scan stays below one of these; None: anywhere

    def is_below_roots(self, folder: Path) -> bool:
        """Tell whether a path leads below an allowed folder, without telling whether anything is there."""
        real = Path(os.path.realpath(folder))
        return self.allowed_roots is None or any(
            real.is_relative_to(os.path.realpath(root)) for root in self.allowed_roots
        )

    def is_own(self, path: str) -> bool:
        """Tell whether a path leads to our own data, as far as a path can tell."""
        real = os.path.realpath(path)
        return any(Path(real).is_relative_to(os.path.realpath(folder)) for folder in self.own_folders) or any(
            _belongs(real, os.path.realpath(file)) for file in self.own_files
        )


NO_LIMITS = FolderLimits()


class ResolvedLimits:
    """Limits as they are on the disk at this moment."""

    def __init__(self, limits: FolderLimits) -> None:
        self._own = frozenset(_existing_identities([*limits.own_folders, *limits.own_files]))
        files = {
            path for one in limits.own_files for path in (one, Path(os.path.realpath(one)))
        }  # SQLite follows links
        self._beside = [(where, one.name) for one in files for where in _existing_identities([one.parent])]
        self._roots = None if limits.allowed_roots is None else frozenset(_existing_identities(limits.allowed_roots))

    def require_allowed(self, descriptor: int) -> None:
        """Refuse an open folder that is our own or lies in one, or lies below no allowed root."""
        lineage = list(_lineage(descriptor))
        if not self._own.isdisjoint(lineage):
            raise errors.own_data()
        if self._roots is not None and self._roots.isdisjoint(lineage):
            raise errors.folder_not_allowed()

    def is_own(self, status: os.stat_result) -> bool:
        """Tell whether an entry is our own file or folder."""
        return _identity(status) in self._own

    def own_names(self, descriptor: int) -> list[str]:
        """Return the names of our own files in an open folder."""
        here = _identity(os.fstat(descriptor)) if self._beside else None
        return [name for where, name in self._beside if where == here]


def is_own_name(name: str, own: Iterable[str]) -> bool:
    """Tell whether a name is that of one of our own files, or of what a database keeps beside it."""
    return any(_belongs(name, one) for one in own)


def _belongs(name: str, own: str) -> bool:
    return name == own or name.startswith(f"{own}-")


def _identity(status: os.stat_result) -> Identity:
    return status.st_dev, status.st_ino


def _existing_identities(paths: Iterable[Path]) -> Iterator[Identity]:
    """Return what paths lead to; what is not there can be reached by no scan."""
    for path in paths:
        with suppress(OSError, ValueError):
            yield _identity(path.stat())


def _lineage(descriptor: int) -> Iterator[Identity]:
    """Yield an open folder and all above it."""
    here = os.dup(descriptor)
    try:
        while True:
            before = _identity(os.fstat(here))
            yield before
            try:
                above = os.open("..", PARENT_FLAGS, dir_fd=here)
            except OSError:  # what is above cannot be seen: it is neither our own nor an allowed root
                return
            os.close(here)
            here = above
            if _identity(os.fstat(here)) == before:
                return
    finally:
        os.close(here)
