"""Errors carry their parameters as text that every interface can encode."""

from __future__ import annotations

import pytest

from holdfast.errors import BadRequest, HoldfastError, Permanent, StateConflict, StoreFull, UnknownBase

NAME = "caf\udce9"  # a file name that is not valid UTF-8, as Python reads it


@pytest.mark.parametrize(
    "error",
    [
        UnknownBase(NAME),
        StoreFull(place=NAME),
        BadRequest("slot_kind_repeated", kind=NAME),
        StateConflict("slot_kind_repeated", kind=NAME),
        Permanent("needed_slot_failed", params={"kind": NAME}),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_name_that_is_not_unicode_is_escaped_in_the_message(error: HoldfastError) -> None:
    assert r"'caf\udce9'" in str(error)
    str(error).encode()
    "".join(error.params.values()).encode()


def test_parameters_are_text() -> None:
    assert BadRequest("priority_out_of_range", priority=10, lowest=9).params == {"priority": "10", "lowest": "9"}
