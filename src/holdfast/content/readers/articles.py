"""The main part of a web page: what it is about, without menus, side bars, footers and banners.

A page that marks its main part is believed. Otherwise what is named or built like a menu is taken out. Nothing is
guessed beyond that: a page that would lose nearly all its words is kept whole, since a menu in the text does less harm
than a missing text.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from holdfast.content.readers.markup import BLOCKS, Element, build, words, write

if TYPE_CHECKING:
    from collections.abc import Callable


NEVER_TEXT = words("nav footer aside button dialog menu select textarea datalist")
NEVER_ROLES = words("navigation banner contentinfo complementary search dialog alertdialog menu menubar")
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


def main_part(page: str) -> str:
    """Return the HTML of the main part; the page itself if there is no telling."""
    if len(page) > LONGEST_PAGE:
        return page
    tree = build(page)
    marked = _marked(tree)
    best = _pruned(marked, _is_furniture) if marked else _pruned(_pruned(tree, _is_furniture), _is_list_of_links)
    softer = _pruned(tree, _is_furniture)
    for part in (best, softer):
        if part.letters >= LEAST_LETTERS and part.running >= tree.running * LEAST:
            return _heading(tree, part) + write(part)
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
                copy.add_text(child)
            elif not unwanted(child, tree):
                copy.add(copied(child))
        return copy

    return copied(tree)


def _heading(tree: Element, part: Element) -> str:
    """Return the heading of the page if it stands outside its main part."""
    outside = [one for one in tree.elements() if one.tag == "h1"]
    inside = any(one.tag == "h1" for one in part.elements())
    return write(outside[0]) if len(outside) == 1 and not inside else ""
