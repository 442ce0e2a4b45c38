"""Comments, docstrings and documents cite only files that are in the repository."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("src", "docs", "tests", "bench", "eval", "examples", "deploy")
# A path or name of a Python file, a project document in capitals, or a path of another kind of source file.
CITED = re.compile(
    r"(?<![\w/.:<*-])((?:[\w-]+/)*[\w-]+\.py|[A-Z]{4,}\.md|(?:[\w-]+/)+[\w-]+\.(?:md|js|html|json))\b(?!/)"
)
EXAMPLES = {"move.py", "leave.md", "tides.md"}  # examples of users' files, which are not in the repository


def sources() -> list[Path]:
    found = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if "__pycache__" not in path.parts]
    return [path for path in (*found, *ROOT.glob("*.md")) if path.suffix in (".py", ".md") and path.is_file()]


@cache
def known() -> frozenset[str]:
    """Return all texts that cite a file: its path and every trailing part of the path."""
    files = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.is_file()]
    parts = [path.relative_to(ROOT).parts for path in (*files, *ROOT.glob("*"))]
    return frozenset("/".join(some[start:]) for some in parts for start in range(len(some)))


def prose(path: Path) -> str:
    """Return the prose of a file: the whole document, or the comments and docstrings of code."""
    text = path.read_text("utf-8")
    return text if path.suffix == ".md" else "\n".join(_prose(text))


def _prose(code: str) -> Iterator[str]:
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        if token.type == tokenize.COMMENT:
            yield token.string
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield ast.get_docstring(node) or ""


def unknown(text: str) -> list[str]:
    found = [match[1] for match in CITED.finditer(text)]
    return [one for one in found if one not in known() and Path(one).name not in EXAMPLES]


def test_every_file_that_is_cited_is_in_the_repository() -> None:
    suspects = [path for path in sources() if unknown(path.read_text("utf-8"))]  # parsing only these saves time
    assert {str(path.relative_to(ROOT)): bad for path in suspects if (bad := unknown(prose(path)))} == {}


@pytest.mark.parametrize("text", ["# DESIGN.md, row by row", "see `core/leases.py`", "(docs/no-such.md)", "no_such.py"])
def test_a_citation_of_a_missing_file_is_detected(text: str) -> None:
    assert unknown(text)


@pytest.mark.parametrize(
    "text", ["`engine/lease.py`", "docs/lifecycle.md", "README.md", "lease.py", "https://a.org/b/c.md"]
)
def test_a_citation_of_an_existing_file_is_accepted(text: str) -> None:
    assert unknown(text) == []


def test_the_page_about_proof_names_tests_that_exist_and_every_invariant_once() -> None:
    text = (ROOT / "docs/proof.md").read_text("utf-8")
    names = set(re.findall(r"`(test_\w+|audit)`", text))
    assert {f"{name}.py" for name in names} - known() == set()
    rows = re.findall(r"^\| (I\d+(?:, I\d+)*) ", text, re.MULTILINE)
    assert [one for row in rows for one in row.split(", ")] == [f"I{number}" for number in range(1, 26)]
