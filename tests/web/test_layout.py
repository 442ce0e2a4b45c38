"""Menus, dialogs, buttons and growing lists stay visible at every width."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from tests.web.samples import PAGES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import FilePayload, Page

    from tests.web.conftest import Site

PLACE = "/bases/handbook/documents"
LONG = "a base with a name that is longer than a phone is wide, and longer than any menu should be"
WIDTHS = (1920, 1280, 1024, 900, 768, 360, 320)
WIDE: dict[str, Any] = {"viewport": {"width": 1280, "height": 800}, "locale": "en-GB"}
CHINESE: dict[str, Any] = WIDE | {"locale": "zh-CN"}
NARROW: dict[str, Any] = {"viewport": {"width": 360, "height": 740}, "locale": "en-GB"}
FILES = 30
# How far an element extends beyond the visible page on either side or below, and how far the page itself does.
BEYOND = """element => {
    const at = element.getBoundingClientRect(), page = document.documentElement;
    return [-at.left, at.right - page.clientWidth, at.bottom - innerHeight, page.scrollWidth - page.clientWidth]
        .map(Math.round).filter(one => one > 0);
}"""
# The position of the page, which a dialog must not change.
WHERE = """() => [...document.querySelectorAll('main, header.top, nav.side')].map(one => {
    const at = one.getBoundingClientRect();
    return [at.left, at.top, at.width];
}).flat().concat(scrollX, scrollY, document.documentElement.clientWidth)"""


@pytest.fixture
def crowded(site: Site, base: str, tmp_path: Path) -> Iterator[str]:
    """A base with a folder and a document with a long name, and another base with a long name."""
    site.api.post("/bases", json={"name": LONG}).raise_for_status()
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "one.md").write_text("# One\n\nA log.")
    wanted = {"kind": "directory", "source": str(tmp_path / "logs")}
    site.api.post(f"/bases/{base}/documents/sources", json=wanted).raise_for_status()
    site.put(base, f"{'very ' * 30}long.md", "# Long\n\nA long name.")
    yield base
    site.api.delete(f"/bases/{LONG}")


@pytest.mark.parametrize("look", [WIDE, CHINESE], ids=["english", "chinese"])
def test_every_menu_opens_inside_the_page_and_closes_after_use(page: Page, crowded: str) -> None:
    page.goto(f"/bases/{crowded}/documents")
    menus = page.locator("details[data-picker]")
    expect(menus).to_have_count(3)  # bases, appearance, Add
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 700})
        for menu in menus.all():
            menu.locator("summary").click()
            opened = menu.locator(":scope > :not(summary)")
            expect(opened).to_be_visible()
            assert opened.evaluate(BEYOND) == [], (width, menu.inner_text())
            page.keyboard.press("Escape")
            expect(opened).to_be_hidden()
        adding = menus.last
        adding.locator("summary").click()
        adding.get_by_role("button").nth(1).click()
        expect(page.get_by_role("dialog")).to_be_visible()
        expect(adding).not_to_have_attribute("open", "")
        page.keyboard.press("Escape")
        expect(adding.locator("summary")).to_be_focused()  # the focus is not lost with the closed menu


def test_a_dialog_does_not_move_the_page(page: Page, crowded: str) -> None:
    page.goto(f"/bases/{crowded}/documents")
    adding = page.locator("#adding")
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 400})
        for button in (
            page.locator("tbody [data-action=delete]").last,
            adding.get_by_role("button", name="Add web page"),
        ):
            if not button.is_visible():
                adding.locator("summary").click()
            button.scroll_into_view_if_needed()
            before = page.evaluate(WHERE)
            button.click()
            dialog = page.get_by_role("dialog")
            expect(dialog).to_be_visible()
            assert page.evaluate(WHERE) == before, width
            assert dialog.evaluate(BEYOND) == [], width
            page.keyboard.press("Escape")
            expect(dialog).to_have_count(0)
            assert page.evaluate(WHERE) == before, width


@pytest.mark.parametrize("look", [WIDE, CHINESE], ids=["english", "chinese"])
def test_every_row_shows_all_its_buttons_and_a_readable_name(page: Page, crowded: str) -> None:
    page.goto(f"/bases/{crowded}/documents")
    folder = page.get_by_role("row").filter(has=page.get_by_role("link", name="logs", exact=True))
    expect(folder.get_by_role("button")).to_have_count(8)
    # A click near the edges of a covered or clipped button hits another element.
    hidden = """button => {
        scrollBy(0, button.getBoundingClientRect().top - innerHeight / 2);
        const at = button.getBoundingClientRect(), edges = [at.left + 2, at.right - 2];
        return edges.filter(x => document.elementFromPoint(x, at.top + at.height / 2)?.closest('button') !== button);
    }"""
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 700})
        for button in page.locator("tbody [data-action]").all():
            assert button.evaluate(hidden) == [], (width, button.get_attribute("aria-label"))
        for name in page.locator("tbody td.name").all():
            assert name.evaluate("one => one.clientWidth") > 100, width
        assert page.locator("html").evaluate("one => one.scrollWidth - one.clientWidth") == 0, width


def test_every_page_with_long_names_fits_a_phone(page: Page, site: Site, crowded: str) -> None:
    page.set_viewport_size({"width": 360, "height": 700})
    document = site.api.get(f"/bases/{crowded}/documents").json()["items"][0]["id"]
    for name, path in PAGES.items():
        page.goto(path.format(name=LONG if name == "base" else crowded, document=document))
        expect(page.locator("main h1")).to_be_visible()
        assert page.locator("html").evaluate("one => one.scrollWidth - one.clientWidth") == 0, name


@pytest.mark.parametrize("look", [WIDE, NARROW])
def test_the_table_stays_visible_however_many_files_are_uploaded(page: Page, base: str) -> None:
    page.goto(f"/bases/{base}/documents")
    texts = ["The same text." if number in (20, 25) else f"Number {number}." for number in range(FILES)]
    files: list[FilePayload] = [
        {"name": f"{number:02}.md", "mimeType": "text/markdown", "buffer": text.encode()}
        for number, text in enumerate(texts)
    ]
    page.locator("input[type=file][multiple]").set_input_files(files)
    panel = page.get_by_role("region", name="Uploads")
    expect(panel.get_by_role("listitem")).to_have_count(FILES)
    expect(page.locator("#documents")).to_be_in_viewport()
    expect(panel.get_by_role("status")).to_have_text(f"{FILES} of {FILES} done · 1 not added")
    refused = panel.get_by_role("listitem").first  # errors stay visible, also in a long list
    expect(refused).to_contain_text("was not added")
    expect(refused).to_be_in_viewport()
    expect(page.locator("#documents tbody tr").first).to_be_in_viewport()
    panel.get_by_role("button", name="Dismiss").click()
    expect(panel).to_have_count(0)


@pytest.mark.usefixtures("base")
def test_a_failed_upload_does_not_promise_a_retry(page: Page) -> None:
    page.goto(PLACE)
    page.route("**/api/v1/bases/handbook/documents?name=*", lambda route: route.abort())
    file: FilePayload = {"name": "lost.md", "mimeType": "text/markdown", "buffer": b"# Lost"}
    page.locator("input[type=file][multiple]").set_input_files([file])
    panel = page.get_by_role("region", name="Uploads")
    expect(panel.get_by_role("listitem")).to_contain_text("was not uploaded. Upload it again.")
    expect(panel.get_by_role("status")).to_have_text("1 of 1 done · 1 not added")
