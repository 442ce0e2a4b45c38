"""Finds where the pages of a PDF begin in its Markdown.

kreuzberg returns the Markdown of the whole file, without page marks, and separately the blocks with their page numbers.
Both have the same letters in the same order, so a page begins where its first letters are found. A page that cannot be
found begins where the letters before it end.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

MATCH_LETTERS = 40  # of the start of a page, enough to be unique
MAX_EXTRA_LETTERS = 2000  # in the Markdown without a block


def page_starts(text: str, blocks: Iterable[Mapping[str, Any]]) -> tuple[int, ...]:
    """Return the offset of each page in the text."""
    pages = _letters_by_page(blocks)
    places = array("Q", (place for place, character in enumerate(text) if character.isalnum()))
    letters = "".join(text[place] for place in places)
    starts = [0]
    for place in _find_pages(pages, letters):
        start = _line_start(text, places[place]) if place < len(places) else len(text)
        starts.append(max(start, starts[-1]))
    return tuple(starts[1:])


def _find_pages(pages: Mapping[int, str], letters: str) -> Iterator[int]:
    """Yield the position of the first letter of each page, searching from the last page that was found."""
    here, own, since = 0, 0, 0  # start of that page, its length, and the length of it and all pages after it
    for number in range(1, max(pages, default=0) + 1):
        page = pages.get(number, "")
        # Skip half of the last page: a title page and the next page often begin with the same words.
        found = letters.find(page[:MATCH_LETTERS], here + own // 2, here + since + MAX_EXTRA_LETTERS) if page else -1
        if found < 0:
            yield here + since
            since += len(page)
        else:
            yield found
            here, own, since = found, len(page), len(page)


def _letters_by_page(blocks: Iterable[Mapping[str, Any]]) -> dict[int, str]:
    """Return the letters of each page; a block without a page number belongs to the page of the previous block."""
    pages: dict[int, list[str]] = {}
    page = 1
    for block in blocks:
        page = max(block.get("page") or page, page)
        pages.setdefault(page, []).append(_words(block["content"]))
    return {
        number: "".join(character for words in each for character in words if character.isalnum())
        for number, each in pages.items()
    }


def _words(content: Mapping[str, Any]) -> str:
    if content.get("node_type") == "table":
        return "".join(cell["content"] for cell in content["grid"]["cells"])
    return str(content.get("text") or "")


def _line_start(text: str, place: int) -> int:
    """Return the start of the line if only Markdown marks precede the position, else the position."""
    start = text.rfind("\n", 0, place) + 1
    return place if any(character.isalnum() for character in text[start:place]) else start
