"""The main part of a web page is kept, menus and footers are removed, and an unclear page is kept whole."""

from __future__ import annotations

import time
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.content.readers.main_part import extract_main_part

TEXT = "The anchor holds the ship while the storm lasts, and the crew sleeps below the deck. " * 4
OTHER = "Far out at sea another ship has lost its anchor and drifts with wind and current until the morning comes."
MENU = "".join(f"<li><a href='/{word}'>{word} page</a></li>" for word in ("Home", "Shop", "About", "Jobs"))


@pytest.mark.parametrize(
    "page",
    [
        f"<nav><ul>{MENU}</ul></nav><main><p>{TEXT}</p></main><footer>Imprint</footer>",
        f"<div role=navigation>{MENU}</div><div role=main><p>{TEXT}</p></div><div role=contentinfo>Imprint</div>",
        f"<header><ul>{MENU}</ul></header><article><p>{TEXT}</p></article><aside>Imprint</aside>",
        f"<div class='site-menu'>{MENU}</div><div><p>{TEXT}</p></div><div id=footer>Imprint</div>",
        f"<table><tr><td><ul>{MENU}</ul><td><p>{TEXT}</table><div class='cookie-consent'>Imprint</div>",
        f"<ul>{MENU}</ul><p>{TEXT}<div style='display: none'>Imprint</div>",
        f"<ul>{MENU}</ul><p>{TEXT}<p hidden>Imprint",
        f"<ul>{MENU.replace('</li>', '')}</ul><p>{TEXT}<form>Imprint <button>Send</button></form>",
    ],
)
def test_menus_and_footers_are_removed(page: str) -> None:
    part = extract_main_part(f"<html><body>{page}</body></html>")
    assert TEXT.strip() in part
    assert "Shop" not in part
    assert "Imprint" not in part


def test_the_heading_above_the_main_part_stays() -> None:
    page = f"<header><h1>On <em>anchors</em></h1><ul>{MENU}</ul></header><main><p>{TEXT}</p></main>"
    assert extract_main_part(page).startswith("<h1>On <em>anchors</em></h1>")
    assert "Shop" not in extract_main_part(page)


def test_all_articles_of_a_page_are_kept() -> None:
    part = extract_main_part("".join(f"<article><p>Number {count}. {TEXT}</p></article>" for count in range(3)))
    assert all(f"Number {count}" in part for count in range(3))


def test_a_list_of_links_in_the_main_part_stays() -> None:
    assert "Shop" in extract_main_part(f"<main><p>{TEXT}</p><ul>{MENU}</ul></main>")


@pytest.mark.parametrize(
    "page",
    [
        f"<form id=aspnetForm><p>{TEXT}</p></form>",
        f"<div class='content has-sidebar menu'><p>{TEXT}</p></div>",
        f"<main></main><div><p>{TEXT}</p></div>",
        f"<main>Loading</main><div><p>{TEXT}</p></div>",
        f"<article>Teaser</article><div><p>{TEXT}</p></div>",
    ],
)
def test_the_name_of_an_element_alone_does_not_remove_its_text(page: str) -> None:
    assert TEXT.strip() in extract_main_part(page)


@pytest.mark.parametrize(
    "page",
    [
        f"<form id=aspnetForm><p>{TEXT}</p></form><p>{OTHER}</p>",  # the form is most of the page
        f"<main>{OTHER}</main><div><p>{TEXT * 2}</p></div>",  # the marked part is small
        f"<nav><p>{TEXT * 10}</p></nav><p>{OTHER}</p>",  # without the menu almost nothing is left
    ],
)
def test_a_large_part_of_the_text_is_not_removed(page: str) -> None:
    assert TEXT.strip() in extract_main_part(page)


@pytest.mark.parametrize("page", ["", "words", f"<ul>{MENU}</ul>", f"<nav><p>{TEXT}</p></nav>", "<p>Short.</p>"])
def test_a_page_that_would_lose_almost_all_its_text_is_kept_whole(page: str) -> None:
    assert extract_main_part(page) == page


def test_special_characters_are_escaped() -> None:
    part = extract_main_part(f"<main><p>{TEXT} 1 &lt; 2 &amp; 3 <a href='?a=1&amp;b=\"2\"'>x</a></p></main>")
    assert "1 &lt; 2 &amp; 3" in part
    assert 'href="?a=1&amp;b=&quot;2&quot;"' in part


@pytest.mark.parametrize(
    "page",
    [
        f"<nav data-x='<p>Shop</p>' title=\"a > b\">Shop</nav><p>{TEXT}</p>",
        f"<!-- <main>Shop</main> --><!doctype html><p title=it's>{TEXT}</p>",
        f"<NAV>Shop</NAV><P>{TEXT}</P>",
        f"<nav>Shop<br/><img src=x></nav><p class = 'x' >{TEXT}",
        f'<p>{TEXT}</p><nav>Shop</nav><b class="never ended',
    ],
)
def test_malformed_tags_are_parsed(page: str) -> None:
    part = extract_main_part(page)
    assert TEXT.strip() in part
    assert "Shop" not in part


def test_deep_nesting_is_parsed() -> None:
    page = "<div>" * 50_000 + f"<p>{TEXT}</p>"
    assert TEXT.strip() in extract_main_part(page)


@pytest.mark.parametrize(
    "piece",
    [
        "<div>",
        "</div>",
        "<p>",
        "<li>",
        "<a href=x>",
        "<td>",
        "<b ",
        "&#x",
        "</",
        "<td><p>x",
        "<!--",
        "<b ='",
        '<b a="<"',
        "<!",
        "= ",
        "<a\t",
    ],
)
def test_a_page_with_many_broken_tags_is_parsed_quickly(piece: str) -> None:
    began = time.process_time()
    extract_main_part(piece * 10_000)
    assert time.process_time() - began < 30


@pytest.mark.parametrize(
    "page",
    [
        # An HTML5 parser reopens all formatting elements in each paragraph: 3,000 times 3,000.
        "<p>" + "".join(f"<b id={number}>" for number in range(3_000)) + "</p>" + "<p>x</p>" * 3_000 + f"<p>{TEXT}</p>",
        "<p " + " ".join(f"a{number}=1" for number in range(60_000)) + f">{TEXT}</p>",
        "<i><div></i>" * 10_000 + f"<p>{TEXT}</p>",
    ],
)
def test_a_hostile_page_needs_memory_in_proportion_to_its_size(page: str) -> None:
    tracemalloc.start()
    try:
        part = extract_main_part(page)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert TEXT.strip() in part
    assert len(part) <= 3 * len(page)
    assert most < 100 << 20


@given(st.text(alphabet="<>/=pdivmainul\"' &;!-x", max_size=200))
def test_any_page_is_parsed_without_an_error(page: str) -> None:
    assert isinstance(extract_main_part(page), str)
