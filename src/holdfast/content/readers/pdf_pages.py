"""Where the pages of a PDF begin in its Markdown.

kreuzberg gives the Markdown of the whole and, beside it, the blocks it was made from with their pages; the Markdown
itself has no marks. The letters are the same in both, in the same order, so a page begins where its first letters
stand. A page that cannot be found begins where the letters before it end.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

MATCH_LETTERS = 40  # letters that tell one place from another
MAX_EXTRA_LETTERS = 2000  # letters that may stand in the Markdown and in no block


def page_starts(text: str, blocks: Iterable[Mapping[str, Any]]) -> tuple[int, ...]:
    """Return where each page begins, one after the other."""
    pages = _letters_by_page(blocks)
    places = array("Q", (place for place, character in enumerate(text) if character.isalnum()))
    letters = "".join(text[place] for place in places)
    starts = [0]
    for place in _find_pages(pages, letters):
        start = _line_start(text, places[place]) if place < len(places) else len(text)
        starts.append(max(start, starts[-1]))
    return tuple(starts[1:])


def _find_pages(pages: Mapping[int, str], letters: str) -> Iterator[int]:
    """Find the first letter of each page, from the last page that was found on."""
    here, own, since = 0, 0, 0  # where that page begins, its letters, and its and all letters after it
    for number in range(1, max(pages, default=0) + 1):
        page = pages.get(number, "")
        # Not from where the last page begins: a title page and the page behind it begin alike.
        found = letters.find(page[:MATCH_LETTERS], here + own // 2, here + since + MAX_EXTRA_LETTERS) if page else -1
        if found < 0:
            yield here + since
            since += len(page)
        else:
            yield found
            here, own, since = found, len(page), len(page)


def _letters_by_page(blocks: Iterable[Mapping[str, Any]]) -> dict[int, str]:
    """Gather the letters of each page; blocks without a page belong to the page before."""
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
    """Step back over the marks before the first letter of a line."""
    start = text.rfind("\n", 0, place) + 1
    return place if any(character.isalnum() for character in text[start:place]) else start
