"""The main part of a web page: what it is about, without menus, side bars, footers and banners.

A page that marks its main part is believed. Otherwise what is named or built like a menu is taken out. Nothing is
guessed beyond that: a page that would lose nearly all its words is kept whole, since a menu in the text does less harm
than a missing text.
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

MIN_MARKED_SHARE = 0.25  # of the running text: what marks itself as the main part and holds less is not believed
MAX_BOILERPLATE_SHARE = 0.4  # of all text: what is only named like furniture and holds more is not believed
MOSTLY_LINKS = 0.6
FEW_LINKS = 3
MIN_KEPT_SHARE = 0.1  # of the running text; a page that keeps less is kept whole
MIN_KEPT_LETTERS = 80
LONGEST_PAGE = 8 << 20  # characters


def extract_main_part(page: str) -> str:
    """Return the HTML of the main part; the page itself if there is no telling."""
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
    """Find what the page itself calls its main part: `main`, else its one `article`."""
    mains = [one for one in tree.walk() if one.tag == "main" or one.attributes.get("role") == "main"]
    articles = [one for one in tree.walk() if one.tag == "article"]
    for found in (mains, articles):
        best = max(found, key=lambda one: one.unlinked_letters, default=None)
        # Of many articles, each is a part of the page.
        alone = best is not None and (
            found is mains or best.unlinked_letters > sum(one.unlinked_letters for one in found) / 2
        )
        if best is not None and alone and best.unlinked_letters >= tree.unlinked_letters * MIN_MARKED_SHARE:
            return best
    return None


def _is_boilerplate(one: Element, whole: Element) -> bool:
    """Tell whether an element is no text of the page, by its kind, its role or its name."""
    attributes = one.attributes
    if one.tag in BOILERPLATE_TAGS or attributes.get("role") in BOILERPLATE_ROLES:
        return True
    if "hidden" in attributes or attributes.get("aria-hidden") == "true" or HIDDEN.search(attributes.get("style", "")):
        return True
    if one.letters > whole.letters * MAX_BOILERPLATE_SHARE:
        return False
    if one.tag == "header":  # of the page, not of a text
        return not any(child.tag in {"h1", "h2"} for child in one.walk())
    if one.tag == "form":
        return True
    named = f"{attributes.get('class', '')} {attributes.get('id', '')}"
    return one.tag in BLOCK_TAGS | {"span", "li"} and bool(BOILERPLATE_NAMES.search(named))


def _is_list_of_links(one: Element, _: Element) -> bool:
    """Tell whether an element is little else than links, as menus are."""
    return one.tag in {"ul", "ol", "div", "section", "table", "td", "p", "header"} and (
        one.link_count >= FEW_LINKS and one.linked_letters > one.letters * MOSTLY_LINKS
    )


def _prune(tree: Element, unwanted: Callable[[Element, Element], bool]) -> Element:
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
    outside = [one for one in tree.walk() if one.tag == "h1"]
    inside = any(one.tag == "h1" for one in part.walk())
    return to_html(outside[0]) if len(outside) == 1 and not inside else ""
