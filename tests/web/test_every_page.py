"""Every page is accessible, fits a phone, and has every text in every language."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from holdfast.messages import load_catalogue
from tests.web.samples import PAGES, fill

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from tests.web.conftest import Site

WEB = Path(__file__).parents[2] / "src" / "holdfast" / "web"
SCHEMES: tuple[Literal["light"], Literal["dark"]] = ("light", "dark")
NAMED = {"document", "reading"}  # pages whose heading is the name of a document
CODED = (
    "problem.",
    "reply.",
    "waits.",
    "finding.",
    "why.",
    "setting.",
    "metric.",
)  # tests/unit/test_messages.py checks these
CJK = re.compile(r"[\u4e00-\u9fff]")


@pytest.fixture(scope="module")
def filled(site: Site) -> dict[str, str]:
    return fill(site)


@pytest.mark.parametrize("width", [1280, 360])
def test_every_page_is_accessible_and_fits(browser: Browser, site: Site, filled: dict[str, str], width: int) -> None:
    context = browser.new_context(
        base_url=site.url,
        viewport={"width": width, "height": 800},
        bypass_csp=True,  # the accessibility checker injects a script into the page
    )
    found: list[str] = []
    page = context.new_page()
    for name, place in PAGES.items():
        page.goto(place.format(**filled))
        expect(page.locator("main h1")).to_be_visible()
        expect(page.locator("html[data-ready]")).to_be_attached()
        for scheme in SCHEMES:
            page.emulate_media(color_scheme=scheme)
            checked = Axe().run(page).response["violations"]
            found += [f"{name}, {scheme}: {one['id']} {one['nodes'][0]['html'][:150]}" for one in checked]
        if page.evaluate("document.documentElement.scrollWidth") > width:
            found.append(f"{name} is wider than {width}")
    context.close()
    assert found == []


def test_every_page_uses_the_language_of_the_browser(browser: Browser, site: Site, filled: dict[str, str]) -> None:
    context = browser.new_context(base_url=site.url, locale="zh-CN")
    for name, place in PAGES.items():
        page = context.new_page()
        page.goto(place.format(**filled))
        heading = page.locator("main h1").inner_text()
        assert page.locator("html").get_attribute("lang") == "zh-Hans"
        assert CJK.search(heading) or name in NAMED, f"{name}: {heading}"
        assert CJK.search(page.locator("nav.side").inner_text()), name
        page.close()
    context.close()


def test_every_text_used_by_the_pages_is_in_the_catalogue() -> None:
    asked: set[str] = set()
    for file in [*WEB.rglob("*.html"), *WEB.rglob("*.js")]:
        asked |= set(re.findall(r"""\bt\(\s*["']([\w. ]+)["']\s*[,)]""", file.read_text("utf-8")))
    assert asked
    assert asked - set(load_catalogue()) == set()


def test_the_catalogue_has_no_unused_texts() -> None:
    sources = "\n".join(file.read_text("utf-8") for kind in ("*.html", "*.js", "*.py") for file in WEB.rglob(kind))
    # A composed key (`status.` and a status) is recognised by its prefix.
    unused = [
        key
        for key in load_catalogue()
        if not key.startswith(CODED)
        and not re.search(rf"""["'`]{re.escape(key)}["'`]""", sources)
        and not any(
            re.search(rf"""["'`]{re.escape(start)}(\$\{{|["'`]\s*(~|\+|\)))""", sources)
            for start in (key[: at + 1] for at, letter in enumerate(key) if letter in "._")
        )
    ]
    assert unused == []


def test_every_empty_state_names_the_next_step() -> None:
    sources = "\n".join(file.read_text("utf-8") for file in WEB.rglob("*.html"))
    calls = re.findall(r"call parts\.empty\((.*?)\) %}", sources)
    assert len(calls) > 15
    assert [call for call in calls if call.count(" t(") < 2] == []


def test_no_page_has_an_inline_script_or_style() -> None:
    for file in WEB.rglob("*.html"):
        text = file.read_text("utf-8")
        assert not re.search(r"\sstyle=|\son[a-z]+=|<style|\|\s*safe", text), file.name
        for script in re.findall(r"<script[^>]*>", text):
            assert "src=" in script or 'type="application/json"' in script, script


def test_no_file_of_the_page_links_to_another_host() -> None:
    for file in [*WEB.rglob("*.html"), *WEB.rglob("*.js"), *WEB.rglob("*.css")]:
        for address in re.findall(r"https?://[^\s\"'`)<]+", file.read_text("utf-8")):
            assert address.startswith("http://www.w3.org/"), f"{file.name}: {address}"
