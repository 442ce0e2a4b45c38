"""Where a page ended, as a word that is handed back to read on."""

from __future__ import annotations

from holdfast.catalog import number
from holdfast.errors import BadRequest


def place(cursor: str | None) -> int | None:
    """Read where a page of numbered rows ended."""
    if cursor is None:
        return None
    found = number(cursor)
    if found is None:
        raise BadRequest(f"{cursor!r} is not where a page ended; begin again without it.")
    return found


def places(cursor: str | None) -> tuple[int, int] | None:
    """Read where a page ended that is named by two numbers."""
    if cursor is None:
        return None
    first, _, second = cursor.partition(".")
    return place(first) or 0, place(second) or 0
