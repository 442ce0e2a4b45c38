"""docs/rules.md names existing tests for every rule, and names every test that was written for a rule."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs/rules.md").read_text()
ROWS = [
    tuple(cell.strip() for cell in line.strip("|").split("|"))
    for line in TEXT.splitlines()
    if line.startswith("| ") and not line.endswith("| shown by |")
]
OF_RULES = ("test_tree_rules.py", "test_upload_rules.py", "test_known_bugs_elsewhere.py")


def named(cell: str) -> list[str]:
    """Return the tests that a cell names."""
    return re.findall(r"`(tests/[^`]+)`", cell)


@cache
def in_file(path: Path) -> frozenset[str]:
    """Return the names of all tests in a file. The name of a method follows the name of its class."""
    found: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}::{one.name}" for one in node.body if isinstance(one, ast.FunctionDef)}
        elif isinstance(node, ast.FunctionDef):
            found.add(node.name)
    return frozenset(name for name in found if name.rpartition("::")[2].startswith("test_"))


def test_every_row_has_a_rule_a_subject_and_at_least_one_test() -> None:
    assert len(ROWS) > 100
    for row in ROWS:
        assert len(row) == 3, row
        rule, place, shown = row
        assert rule.endswith("."), rule
        assert place, rule
        assert named(shown), rule
        assert re.sub(r"`tests/[^`]+`", "", shown).strip() == "", rule


def test_no_rule_is_named_twice() -> None:
    rules = [row[0] for row in ROWS]
    assert len(set(rules)) == len(rules)


def test_every_test_that_is_named_exists() -> None:
    for test in named(TEXT):
        path, _, name = test.partition("::")
        assert (ROOT / path).exists(), test
        assert name in in_file(ROOT / path), test


@pytest.mark.parametrize("file", OF_RULES)
def test_every_test_that_was_written_for_a_rule_is_named(file: str) -> None:
    path = ROOT / "tests/integration" / file
    told = {test.partition("::")[2] for test in named(TEXT) if test.startswith(f"tests/integration/{file}::")}
    assert told == in_file(path)
