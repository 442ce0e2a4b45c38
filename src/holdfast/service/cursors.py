"""Where a page ended, as a word that is handed back to read on."""

from __future__ import annotations

from holdfast.catalog import parse_number
from holdfast.errors import BadRequest


def parse_cursor(cursor: str | None) -> int | None:
    """Read where a page of numbered rows ended."""
    if cursor is None:
        return None
    found = parse_number(cursor)
    if found is None:
        raise BadRequest(f"{cursor!r} is not where a page ended; begin again without it.")
    return found


def parse_pair_cursor(cursor: str | None) -> tuple[int, int] | None:
    """Read where a page ended that is named by two numbers."""
    if cursor is None:
        return None
    first, _, second = cursor.partition(".")
    return parse_cursor(first) or 0, parse_cursor(second) or 0
