"""Small disks that a run can fill or make read-only. They need a mount namespace of their own (`enter_namespace`)."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

PRIVATE = "CHAOS_PRIVATE_MOUNTS"
MEGABYTE = 1 << 20


def enter_namespace() -> None:
    """Run this program again in a mount namespace of its own, if this user may create one."""
    command = ["unshare", "--mount", "--propagation", "private"]
    if PRIVATE in os.environ or os.geteuid() != 0:
        return
    if subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0:
        os.execvpe(  # noqa: S606 - no shell is needed
            command[0], [*command, *sys.orig_argv], os.environ | {PRIVATE: "1"}
        )


def can_mount() -> bool:
    return PRIVATE in os.environ


class Disk:
    """A file system in memory with a fixed size, mounted at a folder. It runs inside `with`.

    Without a namespace it is an ordinary folder, and `can_mount` says so.
    """

    def __init__(self, folder: Path, megabytes: int) -> None:
        self.folder = folder
        self._megabytes = megabytes

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        if can_mount():
            _mount("-t", "tmpfs", "-o", f"size={self._megabytes}m,mode=0755", "tmpfs", str(self.folder))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if can_mount():
            subprocess.run(["umount", "--lazy", str(self.folder)], check=False)

    @property
    def _filler(self) -> Path:
        return self.folder / ".filler"

    def fill(self) -> bool:
        """Fill the disk; return whether it is full."""
        with self._filler.open("ab", buffering=0) as file:
            for size in (MEGABYTE, 4096):
                try:
                    while True:
                        file.write(bytes(size))
                except OSError:
                    pass
        return os.statvfs(self.folder).f_bavail == 0

    def free(self) -> None:
        self._filler.unlink(missing_ok=True)

    def make_read_only(self) -> bool:
        """Return whether it worked: it does not while a process has a file open for writing."""
        return _mount("-o", "remount,ro", str(self.folder))

    def make_writable(self) -> None:
        _mount("-o", "remount,rw", str(self.folder))


def _mount(*arguments: str) -> bool:
    return subprocess.run(["mount", *arguments], capture_output=True, check=False).returncode == 0
