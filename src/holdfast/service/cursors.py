"""Parses page cursors: the position where the previous page ended."""

from __future__ import annotations

from holdfast.catalog import parse_number
from holdfast.errors import BadRequest


def parse_cursor(cursor: str | None) -> int | None:
    """Return the id in a cursor; None means the first page."""
    if cursor is None:
        return None
    number = parse_number(cursor)
    if number is None:
        raise BadRequest("bad_cursor", cursor=cursor)
    return number


def parse_pair_cursor(cursor: str | None) -> tuple[int, int] | None:
    """Return the two numbers in a cursor."""
    if cursor is None:
        return None
    first, _, second = cursor.partition(".")
    return parse_cursor(first) or 0, parse_cursor(second) or 0
