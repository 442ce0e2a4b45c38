"""Values become JSON, and text becomes what a terminal can show without being led astray."""

from __future__ import annotations

import json
import unicodedata
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from enum import Enum
from pathlib import PurePath
from typing import Any

from holdfast.engine import Status

READS = {Status.SUCCESS: "ready", Status.NOT_INDEXED: "not indexed"}  # what people read on a document
UNITS = ("B", "kB", "MB", "GB", "TB")
STEP = 1000
BREAKS = "\n\r\t\v\f\x85\u2028\u2029"
MINUTE, HOUR, DAY = 60, 3600, 86400


def plain(value: Any) -> Any:
    """Return a value as JSON knows it: dataclasses as objects, times as text."""
    if is_dataclass(value) and not isinstance(value, type):
        return {one.name: plain(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, dict):
        return {str(name): plain(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if isinstance(value, (set, frozenset)):
        return sorted(plain(one) for one in value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    return str(value) if isinstance(value, PurePath) else value


def written(value: Any) -> str:
    """Write a value as one JSON document."""
    return json.dumps(plain(value), ensure_ascii=False, indent=2)


def written_line(value: Any) -> str:
    """Write a value as one line of JSON."""
    return json.dumps(plain(value), ensure_ascii=False)


def cell(value: Any) -> str:
    """Write a value as a part of one line: nothing in it can move the cursor or end the line."""
    return "".join(" " if letter in BREAKS else _harmless(letter) for letter in worded(value)).rstrip()


def block(text: str) -> str:
    """Return a text of several lines without anything that steers a terminal."""
    return "".join(letter if letter in "\n\t" else _harmless(letter) for letter in text)


def worded(value: Any) -> str:
    """Write a value for people."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Enum):
        return str(READS.get(value, value) if isinstance(value, Status) else value.value)
    if isinstance(value, datetime):
        return f"{value.astimezone():%Y-%m-%d %H:%M:%S}"
    if isinstance(value, timedelta):
        return lasting(value.total_seconds())
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, (list, tuple, set, frozenset)):
        return ", ".join(worded(one) for one in value)
    if isinstance(value, dict):
        return ", ".join(f"{name} {worded(one)}" for name, one in value.items())
    if is_dataclass(value) and not isinstance(value, type):
        return ", ".join(f"{one.name} {worded(getattr(value, one.name))}" for one in fields(value))
    return str(value)


def size(number: float) -> str:
    """Write a number of bytes."""
    for unit in UNITS[:-1]:
        if number < STEP:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.3g} {unit}"
        number /= STEP
    return f"{number:.3g} {UNITS[-1]}"


def lasting(seconds: float) -> str:
    """Write how long something takes."""
    if seconds < MINUTE:
        return f"{seconds:.3g} s"
    if seconds < HOUR:
        return f"{seconds / MINUTE:.3g} min"
    return f"{seconds / HOUR:.3g} h" if seconds < DAY else f"{seconds / DAY:.3g} days"


def many(number: int, noun: str) -> str:
    """Write a number with its noun."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _harmless(letter: str) -> str:
    return "\N{REPLACEMENT CHARACTER}" if unicodedata.category(letter) in ("Cc", "Cf", "Cs") else letter
