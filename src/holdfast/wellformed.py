"""Which strings and JSON values can be stored and shown: by every database, in every interface.

A NUL character is refused by PostgreSQL, half of a surrogate pair by every encoder, and a value that is nested too
deeply by the parsers and serializers on both ends of a connection.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple

MAX_INPUT_DEPTH = 32  # levels of a map that is accepted
MAX_STORED_DEPTH = 100  # levels of a stored map that every interface can show; older versions accepted more

Step = str | int  # a key of a map, or a place in a list


class FlawKind(StrEnum):
    """Why a value is refused."""

    NUL = "nul"
    SURROGATE = "surrogate"
    TOO_DEEP = "too_deep"
    NOT_JSON = "not_json"  # neither text, a number below 1.8e308, true, false, null, a list nor a map with text as keys


class Flaw(NamedTuple):
    """What is wrong with a value, and in which part of it."""

    kind: FlawKind
    path: tuple[Step, ...] = ()


def find_text_flaw(text: str) -> FlawKind | None:
    """Return what is wrong with a string."""
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
    """Return the first thing that is wrong with a JSON value; a map without another one inside has one level."""
    waiting: list[tuple[object, tuple[Step, ...]]] = [(value, ())]
    while waiting:  # a loop: recursion would fail for the very values that this finds
        one, path = waiting.pop()
        why = _flaw_of(one)
        parts = _parts(one)
        if why is None and parts and len(path) >= deepest:
            why = FlawKind.TOO_DEEP
        if why is not None:
            return Flaw(why, path)
        for step, part in parts:
            why = _key_flaw(step) if isinstance(one, Mapping) else None
            if why is not None:
                return Flaw(why, (*path, str(step)))
            waiting.append((part, (*path, step)))
    return None


def _flaw_of(value: object) -> FlawKind | None:
    """Return what is wrong with a value itself, apart from its parts."""
    if isinstance(value, str):
        return find_text_flaw(value)
    if isinstance(value, int | float):
        return None if _is_finite(value) else FlawKind.NOT_JSON
    known = value is None or isinstance(value, list | tuple | Mapping)
    return None if known else FlawKind.NOT_JSON


def _is_finite(number: float) -> bool:
    """Tell whether a number has a value in every interface: JavaScript reads 1e309 as infinity."""
    try:
        return math.isfinite(number)
    except OverflowError:  # an integer that is larger than every floating-point number
        return False


def _key_flaw(key: object) -> FlawKind | None:
    return find_text_flaw(key) if isinstance(key, str) else FlawKind.NOT_JSON


def _parts(value: object) -> list[tuple[Any, object]]:
    """Return what a map or a list holds, each with its key or its place."""
    if isinstance(value, Mapping):
        return list(value.items())
    return list(enumerate(value)) if isinstance(value, list | tuple) else []


def to_nfc(name: str) -> str:
    """Return a name in the one spelling under which it is stored and compared."""
    return name if name.isascii() else unicodedata.normalize("NFC", name)


def json_to_nfc(value: Any) -> Any:
    """Return a JSON value with all its strings in that spelling."""
    if isinstance(value, str):
        return to_nfc(value)
    if isinstance(value, Mapping):
        return {to_nfc(key): json_to_nfc(part) for key, part in value.items()}
    return [json_to_nfc(part) for part in value] if isinstance(value, list | tuple) else value
