"""Reads OLE compound files: old Office documents, Outlook messages, and encrypted Office documents.

A compound file is a small file system: sectors, an allocation table (FAT) that chains them, a directory, and for short
streams a stream of mini sectors with its own table.

Only the names directly under the root identify the format; deeper names belong to embedded files. Of a damaged file the
readable names are returned, possibly none.
"""

from __future__ import annotations

import io
import os
import struct
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import BinaryIO

HEADER = "<28xHH12xII4xIIIII436s"
HEADER_BYTES = 512
BYTE_ORDER = 0xFFFE
ENTRY = struct.Struct("<64sHBx3I36xII4x")
STREAM, ROOT = 2, 5  # types of entries that have bytes
MINI_BYTES = 64
SECTOR_SHIFTS = (9, 12)
DAMAGE_ERRORS = (struct.error, ValueError, IndexError)  # raised when the tables of a damaged file are followed
NO_ENTRY = 0xFFFFFFFF
UNUSED = 0xFFFFFFF0  # this and higher numbers are not sectors


class Header(NamedTuple):
    order: int
    shift: int
    fat_sectors: int  # number of sectors of the allocation table
    directory: int
    cutoff: int  # streams of at least this length are not in mini sectors
    mini_fat_start: int
    mini_fat_sectors: int
    difat_start: int  # first sector of the list of further table sectors
    difat_sectors: int


class DirectoryEntry(NamedTuple):
    name: bytes
    length: int
    type: int
    left: int
    right: int
    child: int
    start: int
    size: int


class CompoundFile:
    def __init__(self, file: BinaryIO) -> None:
        *fields, first = struct.unpack(HEADER, file.read(HEADER_BYTES))
        self.header = Header(*fields)
        if self.header.shift not in SECTOR_SHIFTS:
            raise ValueError("no such sector size")
        self._file = file
        self._each = (1 << self.header.shift) // 4
        self._tables = [number for (number,) in struct.iter_unpack("<I", first)]  # the first table sectors
        self._read: dict[int, tuple[int, ...]] = {}

    def next_sector(self, number: int) -> int:
        return self._numbers(self._tables[number // self._each])[number % self._each]

    def chain(self, number: int) -> Iterator[int]:
        seen: set[int] = set()
        while number < UNUSED:
            if number in seen:
                raise ValueError("the chain is a loop")
            seen.add(number)
            yield number
            number = self.next_sector(number)

    def entries(self) -> Iterator[DirectoryEntry]:
        for number in self.chain(self.header.directory):
            sector = self._sector(number)
            for fields in ENTRY.iter_unpack(sector[: len(sector) // ENTRY.size * ENTRY.size]):
                yield DirectoryEntry(*fields)

    def read_full_fat(self, sectors: int) -> None:
        """Read the list of further table sectors, which only files above 7 MB have, and validate all of them."""
        number = self.header.difat_start
        for count in range(self.header.difat_sectors):
            if count != len(self._read):
                raise ValueError("the list is a loop")
            *tables, number = self._numbers(number)
            self._tables += tables
        used, unused = self._tables[: self.header.fat_sectors], self._tables[self.header.fat_sectors :]
        if any(table >= sectors for table in used) or any(table < UNUSED for table in unused):
            raise ValueError("the list of tables does not fit the file")

    def read_mini_fat(self) -> list[int]:
        places = islice(self.chain(self.header.mini_fat_start), self.header.mini_fat_sectors)
        return [number for place in places for number in self._numbers(place)]

    def _numbers(self, place: int) -> tuple[int, ...]:
        if place not in self._read:
            self._read[place] = struct.unpack(f"<{self._each}I", self._sector(place))
        return self._read[place]

    def _sector(self, number: int) -> bytes:
        self._file.seek((number + 1) << self.header.shift)
        return self._file.read(1 << self.header.shift)


def root_names(file: BinaryIO) -> frozenset[str]:
    """Return the readable names of the streams and storages directly under the root."""
    entries: list[DirectoryEntry] = []
    with suppress(*DAMAGE_ERRORS):
        for entry in CompoundFile(file).entries():
            entries.append(entry)  # noqa: PERF402 - keeps the entries before the damage
    return frozenset(_children(entries))


def is_intact(file: BinaryIO) -> bool:
    """Return whether all tables lie inside the file and every stream is complete."""
    length = file.seek(0, os.SEEK_END)
    file.seek(0)
    try:
        container = CompoundFile(file)
        sectors = -(-(length - HEADER_BYTES) >> container.header.shift)
        container.read_full_fat(sectors)
        entries = list(container.entries())
        mini_table = container.read_mini_fat()
        long = _SectorChain(container.next_sector, 1 << container.header.shift, sectors)
        short = _SectorChain(mini_table.__getitem__, MINI_BYTES, -(-entries[0].size // MINI_BYTES))
        streams = [entry for entry in entries if entry.type in {STREAM, ROOT}]
        whole = all(
            (long if entry.type == ROOT or entry.size >= container.header.cutoff else short).holds(entry)
            for entry in streams
        )
    except DAMAGE_ERRORS:
        return False
    return whole and _linked(entries) and container.header.order == BYTE_ORDER


def pad_to_fat(data: bytes) -> bytes:
    """Append the unused sectors that the allocation table covers beyond the end of the file.

    Some programs write such files, and kreuzberg refuses them.
    """
    header = CompoundFile(io.BytesIO(data)).header
    each = (1 << header.shift) // 4
    missing = ((header.fat_sectors * each + 1) << header.shift) - len(data)
    return data + bytes(missing) if 0 < missing < each << header.shift else data


def _linked(entries: list[DirectoryEntry]) -> bool:
    """Return whether the directory begins with its root, and used entries refer only to used entries."""
    used = {NO_ENTRY, *(number for number, entry in enumerate(entries) if entry.type)}
    links = {link for entry in entries if entry.type for link in (entry.left, entry.right, entry.child)}
    childless = all(entry.child == NO_ENTRY for entry in entries if entry.type == STREAM)
    return entries[0].type == ROOT and links <= used and childless


class _SectorChain(NamedTuple):
    """Sectors or mini sectors."""

    next_sector: Callable[[int], int]
    sector_bytes: int
    sector_count: int

    def holds(self, stream: DirectoryEntry) -> bool:
        """Return whether the chain of a stream is long enough for its size."""
        number, needed = stream.start, -(-stream.size // self.sector_bytes)
        if needed > self.sector_count:
            return False
        for _ in range(needed):
            if number >= self.sector_count:
                return False
            number = self.next_sector(number)
        return True


def _children(entries: list[DirectoryEntry]) -> Iterator[str]:
    """Yield the names of the tree of siblings below the root."""
    seen: set[int] = set()
    ahead = [entries[0].child] if entries else []
    while ahead:
        number = ahead.pop()
        if number in seen or number >= len(entries):
            continue
        seen.add(number)
        entry = entries[number]
        ahead += [entry.left, entry.right]
        yield entry.name[: max(entry.length - 2, 0)].decode("utf-16-le", "replace")
