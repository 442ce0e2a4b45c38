"""Checks the arguments of every public operation before it runs.

HTTP, library, CLI, MCP and the page call the same operations, in a local library or on a server. Every class of
operations inherits from `ValidatedOperations`, so no operation needs its own checks of text, numbers and maps.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import StrEnum
from functools import wraps
from pathlib import PurePath
from types import FunctionType
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.errors import BadRequest
from holdfast.wellformed import MAX_INPUT_DEPTH, FlawKind, find_json_flaw, find_text_flaw

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.wellformed import Flaw

Choice = TypeVar("Choice", bound=StrEnum)

MAX_TEXT_LENGTH = 10_000_000  # characters of a string
MAX_MAP_LENGTH = 65_536  # characters of a map, as JSON
MAX_NUMBER = 2**63 - 1  # the largest integer of both databases
MAX_LOCATION_LENGTH = 60  # characters of a field name in a message


class ValidatedOperations:
    """A class whose public methods check their arguments: strings at any depth, numbers and maps."""

    def __init_subclass__(cls) -> None:
        """Wrap the public methods of a subclass."""
        super().__init_subclass__()
        for name, method in list(vars(cls).items()):
            if isinstance(method, FunctionType) and not name.startswith("_"):
                setattr(cls, name, _validate_arguments(method))


def _validate_arguments(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method that checks its arguments. It reads an iterator once and passes a list to the method."""
    signature = inspect.signature(method)
    var_keyword = {p.name for p in signature.parameters.values() if p.kind is p.VAR_KEYWORD}

    @wraps(method)
    def checked(self: Any, *given: Any, **named: Any) -> Any:
        bound = signature.bind(self, *given, **named)
        for name, value in [*bound.arguments.items()][1:]:
            if name in var_keyword:
                bound.arguments[name] = {key: check_argument(key, item) for key, item in value.items()}
            else:
                bound.arguments[name] = check_argument(name, value)
        return method(*bound.args, **bound.kwargs)

    return checked


def check_argument(field: str, value: Any) -> Any:
    """Return an argument if it can be stored and shown; otherwise raise a `BadRequest` that names the field."""
    if isinstance(value, Iterator) and not hasattr(value, "read"):
        value = list(value)
    if isinstance(value, str):
        _check_text(field, value)
    elif isinstance(value, PurePath):
        _check_path(field, value)
    elif isinstance(value, Mapping):
        _check_map(field, value)
    elif isinstance(value, int):
        _check_number(field, value)
    elif isinstance(value, Collection) and not isinstance(value, bytes | bytearray | memoryview):
        for position, item in enumerate(value):
            check_argument(f"{field}[{position}]", item)
    elif is_dataclass(value) and not isinstance(value, type):
        for part in fields(value):
            check_argument(f"{field}.{part.name}", getattr(value, part.name))
    return value


def parse_choice(kind: type[Choice], field: str, value: Choice | str) -> Choice:
    """Return the member of an enumeration; for an unknown value raise a `BadRequest` that lists the choices."""
    try:
        return kind(value)
    except ValueError:
        raise BadRequest("unknown_choice", field=field, value=value, choices=", ".join(kind)) from None


def _check_text(field: str, text: str) -> None:
    why = find_text_flaw(text)
    if why is not None:
        raise _make_flaw_error(field, why)
    if len(text) > MAX_TEXT_LENGTH:
        raise BadRequest("text_too_long", field=field, length=len(text), longest=MAX_TEXT_LENGTH)


def _check_path(field: str, path: PurePath) -> None:
    if "\0" in str(path):
        raise _make_flaw_error(field, FlawKind.NUL)


def _check_number(field: str, number: int) -> None:
    if abs(number) > MAX_NUMBER:
        raise BadRequest("number_too_large", field=field, largest=MAX_NUMBER)


def _check_map(field: str, value: Mapping[Any, Any]) -> None:
    flaw = find_json_flaw(value)
    if flaw is not None:
        raise _make_flaw_error(_format_location(field, flaw), flaw.kind)
    size = len(json.dumps(dict(value), ensure_ascii=False))
    if size > MAX_MAP_LENGTH:
        raise BadRequest("map_too_large", field=field, size=size, largest=MAX_MAP_LENGTH)


def _make_flaw_error(field: str, why: FlawKind) -> BadRequest:
    match why:
        case FlawKind.NUL:
            return BadRequest("nul_character", field=field)
        case FlawKind.SURROGATE:
            return BadRequest("lone_surrogate", field=field)
        case FlawKind.TOO_DEEP:
            return BadRequest("nested_too_deep", field=field, deepest=MAX_INPUT_DEPTH)
        case FlawKind.NOT_JSON:
            return BadRequest("not_json", field=field)


def _format_location(field: str, flaw: Flaw) -> str:
    """Return the field and the path inside a map, shortened and with broken characters escaped."""
    steps = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in flaw.path)
    shown = steps.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")
    return field + (shown if len(shown) <= MAX_LOCATION_LENGTH else f"{shown[:MAX_LOCATION_LENGTH]}…")
