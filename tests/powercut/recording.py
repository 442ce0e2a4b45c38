"""Runs the product so that everything it changes below a folder is recorded, in order.

LD_PRELOAD loads `recorder.c`, compiled, into the processes of the product. All processes append to one log. A position
in the log is a moment: a client that received an answer reads the position, and everything that the product synced
before it answered is before this position.
"""

from __future__ import annotations

import mmap
import os
import shutil
import struct
import subprocess
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCE = Path(__file__).with_name("recorder.c")
LOG_BYTES = 1 << 30  # of a sparse file
FIRST = 4096  # where the records begin; the header is before them
HEADER = struct.Struct("=QQQ")  # ready, end, size
RECORD = struct.Struct("=IIIIQQ")  # kind, lengths of path, target and data, inode, offset


class Kind(IntEnum):
    """What a record says, as in `recorder.c`."""

    CREATE = 1
    MKDIR = 2
    FIFO = 3
    WRITE = 4
    TRUNCATE = 5
    RENAME = 6
    LINK = 7
    REMOVE = 8
    SYNC = 9
    UNSUPPORTED = 10


class Record(NamedTuple):
    """One change, or one sync, of a file or a folder."""

    position: int  # where the log ends after this record
    kind: Kind
    inode: int
    offset: int  # of a write, or the new size
    path: str
    target: str
    data: bytes


class RecorderUnavailable(RuntimeError):
    """This machine cannot compile the recorder."""


def compile_recorder(folder: Path) -> Path:
    """Compile the library into a folder, and return its path."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or os.uname().sysname != "Linux":
        raise RecorderUnavailable("The test of power cuts needs Linux and a C compiler (`cc`): install gcc.")
    library = folder / "recorder.so"
    command = [compiler, "-Wall", "-Wextra", "-Werror", "-O2", "-shared", "-fPIC", "-pthread"]
    subprocess.run([*command, "-o", str(library), str(SOURCE), "-ldl"], check=True)
    return library


@dataclass
class Recording:
    """The log of one run, in a folder of its own. The product works in `root`."""

    folder: Path

    def __post_init__(self) -> None:
        self.root = self.folder / "disk"
        self.log = self.folder / "log"
        if not self.log.exists():
            self.root.mkdir(parents=True)
            with self.log.open("wb") as file:
                file.write(HEADER.pack(0, FIRST, LOG_BYTES))
                file.truncate(LOG_BYTES)
        with self.log.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)

    def environment(self) -> dict[str, str]:
        """Return the variables with which a process of the product is recorded."""
        library = compile_recorder(self.folder)
        return {"LD_PRELOAD": str(library), "POWERCUT_LOG": str(self.log), "POWERCUT_ROOT": str(self.root)}

    @property
    def position(self) -> int:
        """Where the log ends now."""
        end: int = HEADER.unpack_from(self._map)[1]
        return end

    def records(self) -> Iterator[Record]:
        at, end = FIRST, self.position
        while at < end:
            kind, path_length, target_length, data_length, inode, offset = RECORD.unpack_from(self._map, at)
            path = at + RECORD.size
            target = path + path_length
            data = target + target_length
            at = data + data_length
            yield Record(
                at,
                Kind(kind),
                inode,
                offset,
                self._map[path:target].decode(),
                self._map[target:data].decode(),
                self._map[data:at],
            )

    def close(self) -> None:
        self._map.close()
