"""Parses a web page into a tree, tolerant of broken HTML, in linear time and memory.

Other parsers are not linear on hostile pages: html.parser takes a minute for 60 KB of unclosed tags, and an HTML5
parser such as lexbor needs more than 3 GB for 54 KB of formatting tags (docs/decisions/0017).
"""

from __future__ import annotations

import html
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


def word_set(text: str) -> frozenset[str]:
    return frozenset(text.split())


DEEPEST = 200  # deeper elements become siblings
VOID = word_set("area base br col embed hr img input link meta param source track wbr")
BLOCK_TAGS = word_set(
    "address article aside blockquote details dialog div dl fieldset figure footer form h1 h2 h3 h4 h5 h6 header hr "
    "main menu nav ol p pre section table ul"
)
# A start tag of the key closes the nearest open element of the first set, up to an element of the second set.
IMPLIED_END_TAGS = {
    "li": ({"li"}, {"ul", "ol", "menu"}),
    "dt": ({"dt", "dd"}, {"dl"}),
    "dd": ({"dt", "dd"}, {"dl"}),
    "tr": ({"tr", "td", "th"}, {"table"}),
    "td": ({"td", "th"}, {"tr", "table"}),
    "th": ({"td", "th"}, {"tr", "table"}),
    "option": ({"option"}, {"select"}),
}
KEPT_ATTRIBUTES = word_set("href src alt class colspan rowspan start")


# A tag ends at the first > outside quoted attribute values. If there is none, PLAIN_TAG ends it at the next >.
TAG = re.compile(r"""<(/?)([a-zA-Z][^\s/>]*+)((?:=\s*+(?:"[^"]*+"|'[^']*+')|[^>])*+)>""")
PLAIN_TAG = re.compile(r"<(/?)([a-zA-Z][^\s/<>]*+)([^<>]*+)>")
ATTRIBUTE = re.compile(r"""([^\s=/"'>]++)(?:\s*=\s*(?:"([^"]*+)"|'([^']*+)'|([^\s"'>]++)))?""")


@dataclass(slots=True, eq=False)
class Element:
    """An element of a page, with the number of its letters, of letters in links, and of links."""

    tag: str
    attributes: dict[str, str] = field(default_factory=dict)
    children: list[Element | str] = field(default_factory=list)
    letters: int = 0
    linked_letters: int = 0
    link_count: int = 0

    @property
    def unlinked_letters(self) -> int:
        return self.letters - self.linked_letters

    def walk(self) -> Iterator[Element]:
        """Yield this element and its descendants in document order."""
        yield self
        for child in self.children:
            if isinstance(child, Element):
                yield from child.walk()

    def add(self, child: Element) -> None:
        """Append a complete element."""
        self.children.append(child)
        self.letters += child.letters
        self.linked_letters += child.letters if child.tag == "a" else child.linked_letters
        self.link_count += child.link_count + (child.tag == "a")

    def add_text(self, text: str) -> None:
        self.children.append(text)
        self.letters += sum(map(str.isalnum, text))


def parse_html(page: str) -> Element:
    """Return the tree of a page; its root has an empty tag."""
    return _Builder().build(page)


def to_html(element: Element) -> str:
    inside = "".join(
        html.escape(child, quote=False) if isinstance(child, str) else to_html(child) for child in element.children
    )
    if not element.tag:
        return inside
    attributes = "".join(
        f' {name}="{html.escape(value)}"' for name, value in element.attributes.items() if name in KEPT_ATTRIBUTES
    )
    return f"<{element.tag}{attributes}>" + ("" if element.tag in VOID else f"{inside}</{element.tag}>")


class _Builder:
    """Holds the stack of open elements while a page is parsed."""

    def __init__(self) -> None:
        self._open = [Element("")]

    def build(self, page: str) -> Element:
        here = 0
        for start, end, tag in _tags(page):
            self._text(page[here:start])
            here = end
            if tag and tag[1]:
                self._end_nearest({tag[2].lower()}, frozenset())
            elif tag:
                self._begin(tag[2].lower(), tag[3])
        self._text(page[here:])
        self._close_down_to(1)
        return self._open[0]

    def _begin(self, tag: str, attributes: str) -> None:
        ended, holders = IMPLIED_END_TAGS.get(tag, ({"p"} if tag in BLOCK_TAGS else set(), BLOCK_TAGS - {"p"}))
        self._end_nearest(ended, holders)
        element = Element(tag, _attributes(attributes))
        if tag in VOID:
            self._open[-1].add(element)
        elif len(self._open) < DEEPEST:
            self._open.append(element)

    def _text(self, text: str) -> None:
        if text:
            self._open[-1].add_text(html.unescape(text))

    def _end_nearest(self, tags: set[str], holders: set[str] | frozenset[str]) -> None:
        """Close the nearest open element with one of these tags, unless one of the holders is nearer."""
        for place in range(len(self._open) - 1, 0, -1):
            if self._open[place].tag in tags:
                self._close_down_to(place)
                return
            if self._open[place].tag in holders:
                return

    def _close_down_to(self, place: int) -> None:
        while len(self._open) > place:
            done = self._open.pop()
            self._open[-1].add(done)


def _tags(page: str) -> Iterator[tuple[int, int, re.Match[str] | None]]:
    """Yield the span of each tag and comment, with the tag. An unclosed comment reaches to the end of the page."""
    pattern, here = TAG, page.find("<")
    while here >= 0:
        found = pattern.match(page, here)
        if not found and pattern is TAG and page[here + 1 : here + 2].isalpha():
            pattern = PLAIN_TAG  # from here on: the search for a missing end must not be repeated
            continue
        end = found.end() if found else _end_of_comment(page, here)
        if end > here:
            yield here, end, found
        here = page.find("<", max(end, here + 1))


def _end_of_comment(page: str, start: int) -> int:
    """Return the end of a comment or declaration; `start` if there is none here."""
    if not page.startswith(("<!", "<?", "</"), start):
        return start
    mark = "-->" if page.startswith("<!--", start) else ">"
    end = page.find(mark, start)
    return len(page) if end < 0 else end + len(mark)


def _attributes(text: str) -> dict[str, str]:
    return {
        found[1].lower(): html.unescape(found[2] or found[3] or found[4] or "") for found in ATTRIBUTE.finditer(text)
    }
