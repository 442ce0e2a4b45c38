"""The directory of an OLE compound file, in which old Office documents, Outlook messages and encrypted ones live.

Only the names directly under the root tell what a file is: deeper ones belong to what is embedded in it. Broken
files give the names that can be found, and may give none.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

HEADER = struct.Struct("<30xH16xI24x109I")  # sector shift, first directory sector, places of the allocation table
HEADER_BYTES = 512
ENTRY_BYTES = 128
ENTRY = struct.Struct("<64sH2x3I")  # name, its length, left sibling, right sibling, first child
SECTOR_SHIFTS = (9, 12)
MOST_SECTORS = 4096


def root_names(file: BinaryIO) -> frozenset[str]:
    """Name the streams and storages directly under the root."""
    try:
        entries = _entries(b"".join(_directory(file)))
    except (struct.error, ValueError):
        return frozenset()
    return frozenset(_children(entries))


def _directory(file: BinaryIO) -> Iterator[bytes]:
    """Follow the chain of sectors that hold the directory."""
    shift, sector, *tables = HEADER.unpack(file.read(HEADER_BYTES)[: HEADER.size])
    if shift not in SECTOR_SHIFTS:
        raise ValueError
    each = (1 << shift) // 4
    for _ in range(MOST_SECTORS):
        if sector // each >= len(tables):
            return
        yield _sector(file, shift, sector)
        (sector,) = struct.unpack_from("<I", _sector(file, shift, tables[sector // each]), sector % each * 4)


def _sector(file: BinaryIO, shift: int, number: int) -> bytes:
    file.seek((number + 1) << shift)
    return file.read(1 << shift)


def _entries(directory: bytes) -> list[tuple[bytes, int, int, int, int]]:
    whole = range(0, len(directory) - ENTRY_BYTES + 1, ENTRY_BYTES)
    return [ENTRY.unpack_from(directory, place) for place in whole]


def _children(entries: list[tuple[bytes, int, int, int, int]]) -> Iterator[str]:
    """Walk the tree of siblings below the root."""
    seen: set[int] = set()
    ahead = [entries[0][4]] if entries else []
    while ahead:
        number = ahead.pop()
        if number in seen or number >= len(entries):
            continue
        seen.add(number)
        name, length, left, right, _ = entries[number]
        ahead += [left, right]
        yield name[: max(length - 2, 0)].decode("utf-16-le", "replace")
