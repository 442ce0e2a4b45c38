"""Extracts the main part of a web page, without menus, side bars, footers and banners.

If the page marks its main part, that is used. Otherwise elements that are named or built like a menu are removed. A
page that would lose nearly all its words is kept whole, since a menu in the text does less harm than missing text.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from holdfast.content.readers.html_tree import BLOCK_TAGS, Element, parse_html, to_html, word_set

if TYPE_CHECKING:
    from collections.abc import Callable


BOILERPLATE_TAGS = word_set("nav footer aside button dialog menu select textarea datalist")
BOILERPLATE_ROLES = word_set("navigation banner contentinfo complementary search dialog alertdialog menu menubar")
BOILERPLATE_NAMES = re.compile(
    r"(?:^|[\s_-])(?:nav|navbar|navigation|menu|sidebar|side-bar|footer|breadcrumbs?|cookies?|consent|gdpr|share|sharing|"
    r"social|newsletter|subscribe|related|recommended|advert\w*|ads?|promo|sponsor\w*|pagination|pager|skip-?link|skip|"
    r"masthead|topbar|banner|popup|modal|login|toolbar)(?=$|[\s_-])",
    re.IGNORECASE,
)
HIDDEN = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden", re.IGNORECASE)

MIN_MARKED_SHARE = 0.25  # of the unlinked text; an element with less is not the main part, whatever its tag
MAX_BOILERPLATE_SHARE = 0.4  # of all text; an element with more is no boilerplate, whatever its name
MOSTLY_LINKS = 0.6
FEW_LINKS = 3
MIN_KEPT_SHARE = 0.1  # of the unlinked text; a page that would keep less is kept whole
MIN_KEPT_LETTERS = 80
LONGEST_PAGE = 8 << 20  # characters


def extract_main_part(page: str) -> str:
    """Return the HTML of the main part, or the whole page if the main part is unclear."""
    if len(page) > LONGEST_PAGE:
        return page
    tree = parse_html(page)
    marked = _find_marked_main_part(tree)
    best = _prune(marked, _is_boilerplate) if marked else _prune(_prune(tree, _is_boilerplate), _is_list_of_links)
    softer = _prune(tree, _is_boilerplate)
    for part in (best, softer):
        if part.letters >= MIN_KEPT_LETTERS and part.unlinked_letters >= tree.unlinked_letters * MIN_KEPT_SHARE:
            return _heading(tree, part) + to_html(part)
    return page


def _find_marked_main_part(tree: Element) -> Element | None:
    """Return the element that the page marks as its main part: `main`, else a dominant `article`."""
    mains = [element for element in tree.walk() if element.tag == "main" or element.attributes.get("role") == "main"]
    articles = [element for element in tree.walk() if element.tag == "article"]
    for found in (mains, articles):
        best = max(found, key=lambda element: element.unlinked_letters, default=None)
        # A page with many articles of similar length has no single main one.
        alone = best is not None and (
            found is mains or best.unlinked_letters > sum(element.unlinked_letters for element in found) / 2
        )
        if best is not None and alone and best.unlinked_letters >= tree.unlinked_letters * MIN_MARKED_SHARE:
            return best
    return None


def _is_boilerplate(element: Element, whole: Element) -> bool:
    """Return whether an element is not part of the text, by its tag, its role or its name."""
    attributes = element.attributes
    if element.tag in BOILERPLATE_TAGS or attributes.get("role") in BOILERPLATE_ROLES:
        return True
    if "hidden" in attributes or attributes.get("aria-hidden") == "true" or HIDDEN.search(attributes.get("style", "")):
        return True
    if element.letters > whole.letters * MAX_BOILERPLATE_SHARE:
        return False
    if element.tag == "header":  # of the page, not of an article
        return not any(child.tag in {"h1", "h2"} for child in element.walk())
    if element.tag == "form":
        return True
    named = f"{attributes.get('class', '')} {attributes.get('id', '')}"
    return element.tag in BLOCK_TAGS | {"span", "li"} and bool(BOILERPLATE_NAMES.search(named))


def _is_list_of_links(element: Element, _: Element) -> bool:
    """Return whether an element consists mostly of links, as menus do."""
    return element.tag in {"ul", "ol", "div", "section", "table", "td", "p", "header"} and (
        element.link_count >= FEW_LINKS and element.linked_letters > element.letters * MOSTLY_LINKS
    )


def _prune(tree: Element, unwanted: Callable[[Element, Element], bool]) -> Element:
    """Copy a tree without the unwanted elements."""

    def copied(element: Element) -> Element:
        copy = Element(element.tag, element.attributes)
        for child in element.children:
            if isinstance(child, str):
                copy.add_text(child)
            elif not unwanted(child, tree):
                copy.add(copied(child))
        return copy

    return copied(tree)


def _heading(tree: Element, part: Element) -> str:
    """Return the heading of the page if it lies outside the main part."""
    headings = [element for element in tree.walk() if element.tag == "h1"]
    inside = any(element.tag == "h1" for element in part.walk())
    return to_html(headings[0]) if len(headings) == 1 and not inside else ""
