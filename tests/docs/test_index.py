"""docs/README.md lists every page once, and every page says first who needs it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = sorted(page for page in DOCS.glob("*.md") if page.name != "README.md")
SECTIONS = ["Start", "How-to guides", "Reference", "Explanation"]


def test_the_index_lists_every_page_exactly_once() -> None:
    text = (DOCS / "README.md").read_text("utf-8")
    listed = re.findall(r"^\| \[[^\]]+\]\(([\w-]+\.md)\)", text, re.MULTILINE)
    assert sorted(listed) == [page.name for page in PAGES]
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == SECTIONS


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_first_sentence_of_a_page_says_who_needs_it(page: Path) -> None:
    first = page.read_text("utf-8").split("\n\n")[1]
    assert re.match(r"(This page is f|F)or (?!example)", first), first
