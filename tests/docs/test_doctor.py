"""docs/doctor.md names every finding, and says of each whether it can be repaired."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from holdfast.doctor.report import FINDING_MESSAGES, MAX_EXAMPLES, NOT_FIXABLE

TEXT = (Path(__file__).resolve().parents[2] / "docs/doctor.md").read_text()
ROWS = dict(re.findall(r"^\| `(\w+)` \|.*\| ([^|]+) \|$", TEXT, re.MULTILINE))


def test_every_finding_is_explained_and_no_other() -> None:
    assert ROWS.keys() == FINDING_MESSAGES.keys()


@pytest.mark.parametrize("code", sorted(FINDING_MESSAGES))
def test_whether_it_can_be_repaired_is_said(code: str) -> None:
    assert ("for people" in ROWS[code]) == (code in NOT_FIXABLE)


@pytest.mark.parametrize("code", sorted(FINDING_MESSAGES))
def test_every_sentence_says_how_many_or_where(code: str) -> None:
    said = FINDING_MESSAGES[code].format(count=3, where="vector of base 'shelf'")
    assert "3 " in said or "vector of base 'shelf'" in said


def test_as_many_examples_are_promised_as_there_are() -> None:
    assert "five" in TEXT
    assert MAX_EXAMPLES == 5
