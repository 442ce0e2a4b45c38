"""Formats values as JSON or as text. Control characters are replaced, because they could manipulate a terminal."""

from __future__ import annotations

import json
import unicodedata
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from enum import Enum
from pathlib import PurePath
from shlex import quote
from typing import TYPE_CHECKING, Any

from holdfast.engine import Status
from holdfast.paging import MAX_COUNT

if TYPE_CHECKING:
    from holdfast.documents import DocumentCounts
    from holdfast.paging import Page

STATUS_LABELS = {Status.SUCCESS: "ready", Status.NOT_INDEXED: "not indexed"}  # printed instead of the value
UNITS = ("B", "kB", "MB", "GB", "TB")
UNIT_STEP = 1000
LINE_BREAKS = "\n\r\t\v\f\x85\u2028\u2029"
MINUTE, HOUR, DAY = 60, 3600, 86400


def to_jsonable(value: Any) -> Any:
    """Return JSON types: dataclasses become objects, times become text, durations seconds."""
    if is_dataclass(value) and not isinstance(value, type):
        return {one.name: to_jsonable(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, dict):
        return {str(name): to_jsonable(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_jsonable(one) for one in value]
    if isinstance(value, (set, frozenset)):
        return sorted(to_jsonable(one) for one in value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    return str(value) if isinstance(value, PurePath) else value


def to_json(value: Any) -> str:
    return json.dumps(to_jsonable(value), ensure_ascii=False, indent=2)


def to_json_line(value: Any) -> str:
    return json.dumps(to_jsonable(value), ensure_ascii=False)


def format_cell(value: Any) -> str:
    """Format a value for one line: line breaks become spaces, control characters are replaced."""
    return "".join(
        " " if letter in LINE_BREAKS else _replace_control_character(letter) for letter in format_value(value)
    ).rstrip()


def format_block(text: str) -> str:
    """Replace control characters in a text, except line breaks and tabs."""
    return "".join(letter if letter in "\n\t" else _replace_control_character(letter) for letter in text)


def format_value(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Enum):
        return str(STATUS_LABELS.get(value, value) if isinstance(value, Status) else value.value)
    if isinstance(value, datetime):
        return f"{value.astimezone():%Y-%m-%d %H:%M:%S}"
    if isinstance(value, timedelta):
        return format_duration(value.total_seconds())
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, (list, tuple, set, frozenset)):
        return ", ".join(format_value(one) for one in value)
    if isinstance(value, dict):
        return ", ".join(f"{name} {format_value(one)}" for name, one in value.items())
    if is_dataclass(value) and not isinstance(value, type):
        return ", ".join(f"{one.name} {format_value(getattr(value, one.name))}" for one in fields(value))
    return str(value)


def format_code(code: str) -> str:
    """Return a code as words.

    >>> format_code("link_outside")
    'link outside'
    """
    return code.replace("_", " ")


def format_size(number: float | None) -> str:
    """Return a number of bytes; None is for an unknown number."""
    if number is None:
        return ""
    for unit in UNITS[:-1]:
        if number < UNIT_STEP:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.3g} {unit}"
        number /= UNIT_STEP
    return f"{number:.3g} {UNITS[-1]}"


def format_duration(seconds: float) -> str:
    if seconds < MINUTE:
        return f"{seconds:.3g} s"
    if seconds < HOUR:
        return f"{seconds / MINUTE:.3g} min"
    return f"{seconds / HOUR:.3g} h" if seconds < DAY else f"{seconds / DAY:.3g} days"


def format_count(number: int, noun: str, *, exact: bool = True) -> str:
    """Return a number with its noun.

    >>> format_count(1200, "document")
    '1,200 documents'
    >>> format_count(10_000, "document", exact=False)
    'at least 10,000 documents'
    """
    count = f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
    return count if exact else f"at least {count}"


def format_next_page(found: Page[Any], page: int | None, noun: str) -> str:
    """Return how much of a list a page shows, and the option for the next page.

    Pages have numbers as far as lists are counted. `page` is None after a cursor, whose page has no number.
    """
    shown = f"{len(found.items):,} of {format_count(found.total or 0, noun, exact=found.total_is_exact)}"
    if page is not None and page * len(found.items) < MAX_COUNT:
        return f"{shown}. Next page: --page {page + 1}"
    return f"{shown}. Next page: --cursor {quote(found.next_cursor or '')}"


def format_documents(counts: DocumentCounts) -> str:
    """Return the number of documents, with a plus if there are more."""
    return f"{counts.documents:,}{'+' if counts.more else ''}"


def format_status_counts(counts: DocumentCounts) -> str:
    """Return the number of documents of each status, with a plus where there are more."""
    return ", ".join(
        f"{number:,}{'+' if status in counts.more else ''} {format_value(status)}"
        for status, number in counts.by_status.items()
        if number
    )


def _replace_control_character(letter: str) -> str:
    return "\N{REPLACEMENT CHARACTER}" if unicodedata.category(letter) in ("Cc", "Cf", "Cs") else letter
