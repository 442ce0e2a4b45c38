"""Parses HTTP response headers."""

from __future__ import annotations

from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

LONGEST_WAIT = timedelta(days=1)


def parse_headers(raw: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return the headers by lower-case name; the first one of each name."""
    headers: dict[str, str] = {}
    for name, value in raw:
        headers.setdefault(name.decode("ascii", "replace").lower(), value.decode("latin-1"))
    return headers


def parse_retry_after(text: str, now: datetime) -> timedelta | None:
    """Parse Retry-After, seconds or a date; None if it is unreadable, at most a day."""
    text = text.strip()
    try:
        wait = timedelta(seconds=int(text)) if text.isdecimal() else parsedate_to_datetime(text) - now
    except (ValueError, TypeError, OverflowError):  # unreadable, or a date without a time zone
        return None
    return min(max(wait, timedelta()), LONGEST_WAIT)
