"""The main part of a web page: what it is about, without menus, side bars, footers and banners.

A page that marks its main part is believed. Otherwise what is named or built like a menu is taken out. Nothing is
guessed beyond that: a page that would lose nearly all its words is kept whole, since a menu in the text does less harm
than a missing text.
"""

from __future__ import annotations

import html
import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


DEEPEST = 200  # elements below stand side by side
VOID = _words("area base br col embed hr img input link meta param source track wbr")
BLOCKS = _words(
    "address article aside blockquote details dialog div dl fieldset figure footer form h1 h2 h3 h4 h5 h6 header hr "
    "main menu nav ol p pre section table ul"
)
# What begins one of these ends the ones named, as far up as the element that holds them.
ENDS = {
    "li": ({"li"}, {"ul", "ol", "menu"}),
    "dt": ({"dt", "dd"}, {"dl"}),
    "dd": ({"dt", "dd"}, {"dl"}),
    "tr": ({"tr", "td", "th"}, {"table"}),
    "td": ({"td", "th"}, {"tr", "table"}),
    "th": ({"td", "th"}, {"tr", "table"}),
    "option": ({"option"}, {"select"}),
}
KEPT_ATTRIBUTES = _words("href src alt class colspan rowspan start")

NEVER_TEXT = _words("nav footer aside button dialog menu select textarea datalist")
NEVER_ROLES = _words("navigation banner contentinfo complementary search dialog alertdialog menu menubar")
NAMED_LIKE_FURNITURE = re.compile(
    r"(?:^|[\s_-])(?:nav|navbar|navigation|menu|sidebar|side-bar|footer|breadcrumbs?|cookies?|consent|gdpr|share|sharing|"
    r"social|newsletter|subscribe|related|recommended|advert\w*|ads?|promo|sponsor\w*|pagination|pager|skip-?link|skip|"
    r"masthead|topbar|banner|popup|modal|login|toolbar)(?=$|[\s_-])",
    re.IGNORECASE,
)
HIDDEN = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden", re.IGNORECASE)

ENOUGH = 0.25  # of the running text: what marks itself as the main part and holds less is not believed
SMALL = 0.4  # of all text: what is only named like furniture and holds more is not believed
MOSTLY_LINKS = 0.6
FEW_LINKS = 3
LEAST = 0.1  # of the running text; a page that keeps less is kept whole
LEAST_LETTERS = 80
LONGEST_PAGE = 8 << 20  # characters


@dataclass(slots=True, eq=False)
class Element:
    """An element of a page, with how many letters it holds, and how many of them are in links."""

    tag: str
    attributes: dict[str, str] = field(default_factory=dict)
    children: list[Element | str] = field(default_factory=list)
    letters: int = 0
    linked: int = 0
    links: int = 0

    @property
    def running(self) -> int:
        """Letters outside links."""
        return self.letters - self.linked

    def elements(self) -> Iterator[Element]:
        """Yield this element and all below, in the order of the page."""
        yield self
        for child in self.children:
            if isinstance(child, Element):
                yield from child.elements()


def main_part(page: str) -> str:
    """Return the HTML of the main part; the page itself if there is no telling."""
    if len(page) > LONGEST_PAGE:
        return page
    tree = _Builder().build(page)
    marked = _marked(tree)
    best = _pruned(marked, _is_furniture) if marked else _pruned(_pruned(tree, _is_furniture), _is_list_of_links)
    softer = _pruned(tree, _is_furniture)
    for part in (best, softer):
        if part.letters >= LEAST_LETTERS and part.running >= tree.running * LEAST:
            return _heading(tree, part) + _written(part)
    return page


def _marked(tree: Element) -> Element | None:
    """Find what the page itself calls its main part: `main`, else its one `article`."""
    mains = [one for one in tree.elements() if one.tag == "main" or one.attributes.get("role") == "main"]
    articles = [one for one in tree.elements() if one.tag == "article"]
    for found in (mains, articles):
        best = max(found, key=lambda one: one.running, default=None)
        # Of many articles, each is a part of the page.
        alone = best is not None and (found is mains or best.running > sum(one.running for one in found) / 2)
        if best is not None and alone and best.running >= tree.running * ENOUGH:
            return best
    return None


def _is_furniture(one: Element, whole: Element) -> bool:
    """Tell whether an element is no text of the page, by its kind, its role or its name."""
    attributes = one.attributes
    if one.tag in NEVER_TEXT or attributes.get("role") in NEVER_ROLES:
        return True
    if "hidden" in attributes or attributes.get("aria-hidden") == "true" or HIDDEN.search(attributes.get("style", "")):
        return True
    if one.letters > whole.letters * SMALL:
        return False
    if one.tag == "header":  # of the page, not of a text
        return not any(child.tag in {"h1", "h2"} for child in one.elements())
    if one.tag == "form":
        return True
    named = f"{attributes.get('class', '')} {attributes.get('id', '')}"
    return one.tag in BLOCKS | {"span", "li"} and bool(NAMED_LIKE_FURNITURE.search(named))


def _is_list_of_links(one: Element, _: Element) -> bool:
    """Tell whether an element is little else than links, as menus are."""
    return one.tag in {"ul", "ol", "div", "section", "table", "td", "p", "header"} and (
        one.links >= FEW_LINKS and one.linked > one.letters * MOSTLY_LINKS
    )


def _pruned(tree: Element, unwanted: Callable[[Element, Element], bool]) -> Element:
    """Copy a tree without what is unwanted."""

    def copied(one: Element) -> Element:
        copy = Element(one.tag, one.attributes)
        for child in one.children:
            if isinstance(child, str):
                _add_text(copy, child)
            elif not unwanted(child, tree):
                _add_element(copy, copied(child))
        return copy

    return copied(tree)


def _heading(tree: Element, part: Element) -> str:
    """Return the heading of the page if it stands outside its main part."""
    outside = [one for one in tree.elements() if one.tag == "h1"]
    inside = any(one.tag == "h1" for one in part.elements())
    return _written(outside[0]) if len(outside) == 1 and not inside else ""


def _written(one: Element) -> str:
    inside = "".join(
        html.escape(child, quote=False) if isinstance(child, str) else _written(child) for child in one.children
    )
    if not one.tag:
        return inside
    attributes = "".join(
        f' {name}="{html.escape(value)}"' for name, value in one.attributes.items() if name in KEPT_ATTRIBUTES
    )
    return f"<{one.tag}{attributes}>" + ("" if one.tag in VOID else f"{inside}</{one.tag}>")


def _add_text(parent: Element, text: str) -> None:
    parent.children.append(text)
    parent.letters += sum(map(str.isalnum, text))


def _add_element(parent: Element, child: Element) -> None:
    parent.children.append(child)
    parent.letters += child.letters
    parent.linked += child.letters if child.tag == "a" else child.linked
    parent.links += child.links + (child.tag == "a")


class _Builder(HTMLParser):
    """Builds the tree, as forgiving as pages need it."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._open = [Element("")]

    def build(self, page: str) -> Element:
        """Read a whole page."""
        self.feed(page)
        self.close()
        self._close_down_to(1)
        return self._open[0]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        ended, holders = ENDS.get(tag, ({"p"} if tag in BLOCKS else set(), BLOCKS - {"p"}))
        self._end_nearest(ended, holders)
        element = Element(tag, {name: value or "" for name, value in attrs})
        if tag in VOID:
            _add_element(self._open[-1], element)
        elif len(self._open) < DEEPEST:
            self._open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        self._end_nearest({tag}, set())

    def handle_data(self, data: str) -> None:
        _add_text(self._open[-1], data)

    def _end_nearest(self, tags: set[str], holders: set[str] | frozenset[str]) -> None:
        """End the nearest open element of these, unless one that holds such stands before."""
        for place in range(len(self._open) - 1, 0, -1):
            if self._open[place].tag in tags:
                self._close_down_to(place)
                return
            if self._open[place].tag in holders:
                return

    def _close_down_to(self, place: int) -> None:
        while len(self._open) > place:
            done = self._open.pop()
            _add_element(self._open[-1], done)
