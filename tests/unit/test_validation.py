"""Every operation checks all its arguments before it does anything."""

from __future__ import annotations

import inspect
from collections import deque
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest

from holdfast import errors
from holdfast.service import (
    access,
    archives,
    bases,
    documents,
    jobs,
    local,
    remote,
)
from holdfast.service import (
    details as dossiers,
)
from holdfast.service import (
    event_queries as history,
)
from holdfast.service import (
    search as asking,
)
from holdfast.service import (
    usage as accounts,
)
from holdfast.service.documents import File
from holdfast.service.validation import ValidatedOperations, check_argument, parse_choice
from holdfast.wellformed import MAX_INPUT_DEPTH, Flaw, FlawKind, find_json_flaw, find_text_flaw, json_to_nfc, to_nfc

MODULES = (access, accounts, archives, asking, bases, documents, dossiers, history, jobs, local, remote)
HOSTILE = {"a NUL": "a\0b", "a lone surrogate": "a\ud800b"}


def groups() -> list[type]:
    """Return the classes whose methods are the operations, for a local database and for a server."""
    found = {one for module in MODULES for _, one in inspect.getmembers(module, inspect.isclass)}
    return sorted((one for one in found if one.__name__.startswith(("Local", "Remote"))), key=lambda one: one.__name__)


def operations() -> list[Any]:
    return [
        pytest.param(group, name, id=f"{group.__name__}.{name}")
        for group in groups()
        for name, _ in inspect.getmembers(group, inspect.isfunction)
        if not name.startswith("_")
    ]


def takes_text(parameter: inspect.Parameter) -> bool:
    return any(word in str(parameter.annotation) for word in ("str", "Path", "Any", "File"))


@pytest.mark.parametrize(("group", "name"), operations())
def test_every_operation_refuses_hostile_text_in_every_argument(group: type, name: str) -> None:
    bare: Any = object.__new__(group)  # without a database or server, an argument that is not refused fails otherwise
    signature = inspect.signature(getattr(group, name))
    parameters = [one for one in signature.parameters.values() if one.name != "self"]
    for hostile in HOSTILE.values():
        for chosen in filter(takes_text, parameters):
            given = {
                one.name: "text" for one in parameters if one.default is one.empty and one.kind is not one.VAR_KEYWORD
            }
            name_of = "tenant" if chosen.kind is chosen.VAR_KEYWORD else chosen.name
            with pytest.raises(errors.BadRequest) as refused:
                getattr(bare, name)(**{**given, name_of: hostile})
            assert f"'{name_of}'" in str(refused.value)
            assert refused.value.subcode in ("nul_character", "lone_surrogate")


def test_every_group_of_operations_is_checked() -> None:
    assert len(groups()) == 24
    assert all(issubclass(group, ValidatedOperations) for group in groups())


@pytest.mark.parametrize(
    ("value", "field"),
    [
        (["plain", "a\0b"], "'x[1]'"),
        (iter(["plain", "a\ud800b"]), "'x[1]'"),
        ({"a": {"b": ["fine", "a\0b"]}}, "'x.a.b[1]'"),
        ({"a": {"bad \ud800": 1}}, "'x.a.bad \\ud800'"),
        ([File(name="a.md", content=b"", metadata={"team": "a\0b"})], "'x[0].metadata.team'"),
        ([File(name="a\0.md", content=b"\0")], "'x[0].name'"),
        (Path("folder/a\0b"), "'x'"),
        ({"a": object()}, "'x.a'"),
        ({"a": float("inf")}, "'x.a'"),
        pytest.param({"a": 10**5000}, "'x.a'", id="a number that cannot be printed in a map"),
        ({"a": [-(10**309)]}, "'x.a[0]'"),
        (2**63, "'x'"),
        pytest.param(-(10**5000), "'x'", id="a number that cannot be printed"),
        ({2**63}, "'x[0]'"),
        ({"a": 1, "b\0": 1}.keys(), "'x[1]'"),
        (deque(["a\ud800"]), "'x[0]'"),
        ({1: "number as a key"}, "'x.1'"),
        ("x" * 10_000_001, "'x'"),
        ({"a": "x" * 65_536}, "'x'"),
    ],
)
def test_a_refusal_names_the_part_that_is_wrong(value: Any, field: str) -> None:
    with pytest.raises(errors.BadRequest) as refused:
        check_argument("x", value)
    assert field in str(refused.value)
    assert "Nothing was changed." in str(refused.value)
    str(refused.value).encode()


@pytest.mark.parametrize(
    "value",
    [
        "Grüße, 世界 🐋", "", b"\0\xff", ["a", 1, None], {"a": [1, 2.5, True, None, {"b": "c"}]},
        2**63 - 1, {"a": 10**308}, True,
        Path("caf\udce9"), File(name="a", content=Path("caf\udce9/a")), None, 7,
    ],
)  # fmt: skip
def test_a_storable_value_is_returned_unchanged(value: Any) -> None:
    assert check_argument("x", value) is value


def test_an_iterator_is_read_once_and_passed_on() -> None:
    assert check_argument("x", (one for one in ("a", "b"))) == ["a", "b"]


def test_depth_is_counted_without_recursion() -> None:
    deep: Any = "end"
    for _ in range(100_000):
        deep = [deep]
    found = find_json_flaw(deep)
    assert found is not None
    assert (found.kind, len(found.path)) == (FlawKind.TOO_DEEP, MAX_INPUT_DEPTH)
    assert find_json_flaw({"a": "\0"}) == Flaw(FlawKind.NUL, ("a",))


def test_text_that_databases_or_encoders_cannot_store_is_detected() -> None:
    assert [find_text_flaw(one) for one in ("a", "ä", "a\0", "\ud800", "\U0001f40b")] == [
        None, None, FlawKind.NUL, FlawKind.SURROGATE, None,
    ]  # fmt: skip


def test_spellings_of_a_name_are_normalised_to_one() -> None:
    assert to_nfc("Cafe\u0301") == to_nfc("Caf\u00e9") == "Caf\u00e9"
    assert json_to_nfc({"e\u0301": ["e\u0301", 1]}) == {"é": ["é", 1]}


def test_a_choice_may_be_a_string_and_an_unknown_one_is_refused_with_the_choices() -> None:
    class Colour(StrEnum):
        RED = "red"
        BLUE = "blue"

    assert parse_choice(Colour, "colour", "red") is Colour.RED
    with pytest.raises(errors.BadRequest) as refused:
        parse_choice(Colour, "colour", "green")
    assert refused.value.subcode == "unknown_choice"
    assert str(refused.value) == (
        "'green' is not a valid value of 'colour'. Choose one of: red, blue. Nothing was changed."
    )
