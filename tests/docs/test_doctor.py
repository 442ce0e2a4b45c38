"""docs/doctor.md explains every finding and states whether the doctor can repair it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from holdfast.doctor.report import MAX_EXAMPLES, NOT_FIXABLE
from holdfast.messages import format_message, load_catalogue

CODES = {key.removeprefix("finding.") for key in load_catalogue() if key.startswith("finding.")}
TEXT = (Path(__file__).resolve().parents[2] / "docs/doctor.md").read_text()
ROWS = dict(re.findall(r"^\| `(\w+)` \|.*\| ([^|]+) \|$", TEXT, re.MULTILINE))


def test_every_finding_and_no_other_is_documented() -> None:
    assert ROWS.keys() == CODES


@pytest.mark.parametrize("code", sorted(CODES))
def test_the_page_states_whether_a_finding_can_be_repaired(code: str) -> None:
    assert ("for people" in ROWS[code]) == (code in NOT_FIXABLE)


@pytest.mark.parametrize("code", sorted(CODES))
def test_every_message_contains_a_count_or_a_place(code: str) -> None:
    said = format_message(f"finding.{code}", {"count": 3, "kind": "vector", "base": "shelf"})
    assert "3 " in said or "vector of base 'shelf'" in said


def test_the_page_promises_as_many_examples_as_the_doctor_returns() -> None:
    assert "five" in TEXT
    assert MAX_EXAMPLES == 5
