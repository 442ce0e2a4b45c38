"""Where a page ended, as a word that is handed back to read on."""

from __future__ import annotations

from holdfast.errors import BadRequest
from holdfast.library.catalogue import LONGEST


def place(cursor: str | None) -> int | None:
    """Read where a page of numbered rows ended."""
    if cursor is None:
        return None
    if not (cursor.isascii() and cursor.isdecimal() and len(cursor) <= LONGEST):
        raise BadRequest(f"{cursor!r} is not where a page ended; begin again without it.")
    return int(cursor)


def places(cursor: str | None) -> tuple[int, int] | None:
    """Read where a page ended that is named by two numbers."""
    if cursor is None:
        return None
    first, _, second = cursor.partition(".")
    return place(first) or 0, place(second) or 0
