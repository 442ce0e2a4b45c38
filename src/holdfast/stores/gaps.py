"""Overwrites what SQLite leaves between the rows of a page: a program that `shredding` runs in a process of its own.

SQLite overwrites what is deleted (`secure_delete`), but not the copies that stay behind when it moves rows from one
page to another: they lie in the gap between the list of a page's cells and the first of these, where no reader looks
and no later delete comes by. Only bytes of such gaps are written here, zeros, so that whoever reads the database
meanwhile, or finds it after a power cut in the middle, sees no difference.

Whoever runs this keeps writers away and has cut the log: then the file is the whole truth, and stays as it is. A
process of its own, because one that opens and closes the file of a database drops every lock it has there through
SQLite. It imports nothing of ours, in order to start quickly.

    python -I -S gaps.py FILE

It says READY, and then answers each line `PAGE COUNT` when it has been at so many pages from this one on: with the
number of the next page, 0 at the end of the file.
"""

from __future__ import annotations

import os
import struct
import sys
from typing import NamedTuple

MAGIC = b"SQLite format 3\0"
HEADER = 100  # bytes at the beginning of the first page
LARGEST = 0x01FFFFFF  # pages; the numbers of more could be taken for the first byte of a page with cells
INNER, LEAF = 12, 8  # bytes that a page with cells begins with, by the kind of the page
MOST_FRAGMENTS = 60  # bytes that lie between cells and are too few for anything
KINDS = {2: INNER, 5: INNER, 10: LEAF, 13: LEAF}
LOCKS = 1 << 30  # where SQLite has its locks
ENTRY = 5  # bytes of a page of pointers, which only databases have that shrink by themselves
BLOCK = 1 << 22
READY = "ready"


class Layout(NamedTuple):
    """How a database file is divided."""

    size: int  # of a page
    usable: int  # of these bytes
    pages: int
    maps: int  # every so many pages, from the second on, is one of pointers; 0: none is

    def points(self, page: int) -> bool:
        """Tell whether a page has pointers and no cells."""
        locked = LOCKS // self.size + 1  # never written; a page of pointers that would lie there lies behind
        place = page - 1 if page == locked + 1 else page
        return bool(self.maps) and (place - 2) % self.maps == 0


def layout(file: int) -> Layout:
    """Read how a file is divided; raise `ValueError` if it is not one that we understand."""
    head = os.pread(file, HEADER, 0)
    if len(head) < HEADER or not head.startswith(MAGIC):
        raise ValueError("not a database")
    size = struct.unpack_from(">H", head, 16)[0]
    size = 1 << 16 if size == 1 else size
    usable = size - head[20]
    pages = os.fstat(file).st_size // size
    if pages > LARGEST:
        raise ValueError("too large")
    shrinks = any(head[52:56])
    return Layout(size, usable, pages, usable // ENTRY + 1 if shrinks else 0)


def gap(page: bytes, usable: int, first: int) -> tuple[int, int] | None:
    """Return where the gap of a page lies, None if this is no page with cells; `first` is where its header begins."""
    length = KINDS.get(page[first])
    if length is None:
        return None
    freed, cells, top, fragments = struct.unpack_from(">HHHB", page, first + 1)
    top = top or 1 << 16
    start = first + length + 2 * cells
    if not start <= top <= usable or fragments > MOST_FRAGMENTS or 0 < freed < top:
        return None
    return start, top


def sound(page: bytes, first: int, gap: tuple[int, int], usable: int) -> bool:
    """Tell whether all cells of a page lie behind its gap."""
    listed = first + KINDS[page[first]]
    cells = struct.unpack_from(f">{(gap[0] - listed) // 2}H", page, listed)
    return all(gap[1] <= cell < usable for cell in cells)


def clear(file: int, page: int, count: int) -> int:
    """Overwrite the gaps of some pages, from one on; return the next, 0 when there is none."""
    form = layout(file)
    stop = min(page + count, form.pages + 1)
    together = BLOCK // form.size
    found = 0
    for begin in range(page, stop, together):
        block = os.pread(file, min(together, stop - begin) * form.size, (begin - 1) * form.size)
        for place in range(0, len(block), form.size):
            found += _clear_one(file, form, begin + place // form.size, block[place : place + form.size])
    if found:
        os.fsync(file)
    return stop if stop <= form.pages else 0


def _clear_one(file: int, form: Layout, number: int, page: bytes) -> bool:
    """Overwrite the gap of one page; return whether there was anything in it."""
    first = HEADER if number == 1 else 0
    found = None if form.points(number) else gap(page, form.usable, first)
    if found is None or not page[slice(*found)].strip(b"\0") or not sound(page, first, found, form.usable):
        return False
    start, top = found
    os.pwrite(file, bytes(top - start), (number - 1) * form.size + start)
    return True


def main(path: str) -> None:
    """Answer line by line."""
    file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    layout(file)
    _say(READY)
    for line in sys.stdin:
        page, count = line.split()
        _say(str(clear(file, int(page), int(count))))


def _say(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1])
