"""docs/reliability.md has every promise, fault and threat once, and the tests that it names exist."""

from __future__ import annotations

import re
from pathlib import Path

from tests.docs.test_rules import in_file, named

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs/reliability.md").read_text()
REASON = "No test: "
PROMISES, FAULTS, THREATS = 25, 32, 30


def rows(section: str) -> list[list[str]]:
    """Return the cells of each row of the table in a section."""
    part = TEXT.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    lines = [line for line in part.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]


def test_every_promise_fault_and_threat_has_one_row() -> None:
    assert [row[0] for row in rows("Promises")] == [f"I{number}" for number in range(1, PROMISES + 1)]
    assert [row[0] for row in rows("Faults")] == [str(number) for number in range(1, FAULTS + 1)]
    assert [row[0] for row in rows("Threats")] == [str(number) for number in range(1, THREATS + 1)]


def test_every_row_names_tests_and_nothing_else_or_says_why_there_is_none() -> None:
    for row in [*rows("Promises"), *rows("Faults"), *rows("Threats")]:
        assert len(row) == 4, row
        assert all(row), row
        shown = row[-1]
        if not shown.startswith(REASON):
            assert named(shown), row
            assert re.sub(r"`tests/[^`]+`", "", shown).strip() == "", row


def test_every_test_that_is_named_exists() -> None:
    for test in named(TEXT):
        path, _, name = test.partition("::")
        assert (ROOT / path).exists(), test
        assert not name or name in in_file(ROOT / path), test


def test_a_row_without_a_function_names_a_whole_file_of_tests() -> None:
    whole = [test for test in named(TEXT) if test.endswith(".py")]
    assert all(in_file(ROOT / path) for path in whole), whole
