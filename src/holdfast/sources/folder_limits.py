"""Decides which folders may be read: never the data of Holdfast itself, and only below the roots that are allowed.

Open files and folders are compared by device and inode, not by path. So links, second names and folders that are
replaced after the check make no difference.
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
PARENT_FLAGS = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC  # needs no read permission


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderLimits:
    own_folders: tuple[Path, ...] = ()  # folders of Holdfast; never read, with everything in them
    own_files: tuple[Path, ...] = ()  # files of Holdfast, with their companions: `-wal`, `-shm`
    allowed_roots: tuple[Path, ...] | None = None  # a scan must be below one of these; None: anywhere

    def is_below_roots(self, folder: Path) -> bool:
        """Return whether a path is below an allowed root; the path need not exist."""
        real = Path(os.path.realpath(folder))
        return self.allowed_roots is None or any(
            real.is_relative_to(os.path.realpath(root)) for root in self.allowed_roots
        )

    def is_own(self, path: str) -> bool:
        """Return whether a path leads to data of Holdfast, judging only by the path."""
        real = os.path.realpath(path)
        return any(Path(real).is_relative_to(os.path.realpath(folder)) for folder in self.own_folders) or any(
            _belongs(real, os.path.realpath(file)) for file in self.own_files
        )


NO_LIMITS = FolderLimits()


class ResolvedLimits:
    """The limits as devices and inodes that exist now."""

    def __init__(self, limits: FolderLimits) -> None:
        self._own = frozenset(_existing_identities([*limits.own_folders, *limits.own_files]))
        # SQLite follows links, so its companion files lie beside the target.
        files = {path for file in limits.own_files for path in (file, Path(os.path.realpath(file)))}
        self._beside = [(folder, file.name) for file in files for folder in _existing_identities([file.parent])]
        self._roots = None if limits.allowed_roots is None else frozenset(_existing_identities(limits.allowed_roots))

    def require_allowed(self, descriptor: int) -> None:
        """Raise `Permanent` if an open folder is or lies in a folder of Holdfast, or below no allowed root."""
        lineage = list(_lineage(descriptor))
        if not self._own.isdisjoint(lineage):
            raise errors.own_data()
        if self._roots is not None and self._roots.isdisjoint(lineage):
            raise errors.folder_not_allowed()

    def is_own(self, status: os.stat_result) -> bool:
        return _identity(status) in self._own

    def own_names(self, descriptor: int) -> list[str]:
        """Return the names of the files of Holdfast in an open folder."""
        here = _identity(os.fstat(descriptor)) if self._beside else None
        return [name for folder, name in self._beside if folder == here]


def is_own_name(name: str, own: Iterable[str]) -> bool:
    """Return whether a name is that of a file of Holdfast or of its companion files."""
    return any(_belongs(name, file) for file in own)


def _belongs(name: str, own: str) -> bool:
    return name == own or name.startswith(f"{own}-")


def _identity(status: os.stat_result) -> Identity:
    return status.st_dev, status.st_ino


def _existing_identities(paths: Iterable[Path]) -> Iterator[Identity]:
    """Yield the identities of the paths that exist; a scan cannot reach the others."""
    for path in paths:
        with suppress(OSError, ValueError):
            yield _identity(path.stat())


def _lineage(descriptor: int) -> Iterator[Identity]:
    """Yield the identities of an open folder and of all its parents."""
    here = os.dup(descriptor)
    try:
        while True:
            before = _identity(os.fstat(here))
            yield before
            try:
                above = os.open("..", PARENT_FLAGS, dir_fd=here)
            except OSError:  # an inaccessible parent is neither a folder of Holdfast nor an allowed root
                return
            os.close(here)
            here = above
            if _identity(os.fstat(here)) == before:
                return
    finally:
        os.close(here)
