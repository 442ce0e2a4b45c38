"""Checks strings and JSON values that come from outside.

PostgreSQL rejects NUL characters, encoders reject lone surrogates, and JSON parsers on both ends of a connection reject
values that are nested too deeply. A value without these flaws can be stored and shown everywhere.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple

MAX_INPUT_DEPTH = 32  # levels of nesting in a request
MAX_STORED_DEPTH = 100  # levels that every interface can show; older versions stored more than MAX_INPUT_DEPTH

Step = str | int  # a key of an object, or an index of a list


class FlawKind(StrEnum):
    NUL = "nul"
    SURROGATE = "surrogate"
    TOO_DEEP = "too_deep"
    NOT_JSON = "not_json"  # a type that JSON lacks, an infinite number, or a key that is not text


class Flaw(NamedTuple):
    """A flaw of a value, and the path to the part that has it."""

    kind: FlawKind
    path: tuple[Step, ...] = ()


def find_text_flaw(text: str) -> FlawKind | None:
    if "\0" in text:
        return FlawKind.NUL
    if text.isascii():
        return None
    try:
        text.encode()
    except UnicodeEncodeError:
        return FlawKind.SURROGATE
    return None


def find_json_flaw(value: object, *, deepest: int = MAX_INPUT_DEPTH) -> Flaw | None:
    """Return the first flaw of a JSON value, or None. An object without nested objects has depth 1."""
    waiting: list[tuple[object, tuple[Step, ...]]] = [(value, ())]
    while waiting:  # not recursive: Python's recursion limit would be hit first
        part_value, path = waiting.pop()
        why = _flaw_of(part_value)
        parts = _parts(part_value)
        if why is None and parts and len(path) >= deepest:
            why = FlawKind.TOO_DEEP
        if why is not None:
            return Flaw(why, path)
        for step, part in parts:
            why = _key_flaw(step) if isinstance(part_value, Mapping) else None
            if why is not None:
                return Flaw(why, (*path, str(step)))
            waiting.append((part, (*path, step)))
    return None


def _flaw_of(value: object) -> FlawKind | None:
    """Check a value without its parts."""
    if isinstance(value, str):
        return find_text_flaw(value)
    if isinstance(value, int | float):
        return None if _is_finite(value) else FlawKind.NOT_JSON
    known = value is None or isinstance(value, list | tuple | Mapping)
    return None if known else FlawKind.NOT_JSON


def _is_finite(number: float) -> bool:
    """Return whether every interface can represent the number. JavaScript reads 1e309 as infinity."""
    try:
        return math.isfinite(number)
    except OverflowError:  # an integer above the largest float
        return False


def _key_flaw(key: object) -> FlawKind | None:
    return find_text_flaw(key) if isinstance(key, str) else FlawKind.NOT_JSON


def _parts(value: object) -> list[tuple[Any, object]]:
    """Return the members of an object or a list, each with its key or index."""
    if isinstance(value, Mapping):
        return list(value.items())
    return list(enumerate(value)) if isinstance(value, list | tuple) else []


def to_nfc(name: str) -> str:
    """Return the form in which names are stored and compared (Unicode NFC)."""
    return name if name.isascii() else unicodedata.normalize("NFC", name)


def json_to_nfc(value: Any) -> Any:
    """Apply `to_nfc` to all strings and keys of a JSON value."""
    if isinstance(value, str):
        return to_nfc(value)
    if isinstance(value, Mapping):
        return {to_nfc(key): json_to_nfc(part) for key, part in value.items()}
    return [json_to_nfc(part) for part in value] if isinstance(value, list | tuple) else value
