"""User journeys from the first upload to the passage that answers, with a provider that the test can delay."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.support.paid_provider import REFUSED, PaidProvider
from tests.web.interactions import upload

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Page

    from tests.web.conftest import Site

PLACE = "/bases/handbook/documents"
LONG = "\n\n".join(
    f"## Part {number}\n\n" + f"The {number}th keel is laid of oak and iron. " * 40 for number in range(40)
)


@pytest.fixture(scope="module")
def environment(embedding: dict[str, str]) -> dict[str, str]:
    return embedding


@pytest.fixture
def held(paid: PaidProvider) -> Iterator[PaidProvider]:
    """A provider that answers only after the test releases it."""
    paid.stall()
    yield paid
    paid.release()


@pytest.mark.smoke
@pytest.mark.usefixtures("base")
def test_a_user_uploads_a_file_and_finds_the_passage_that_answers(page: Page, held: PaidProvider) -> None:
    page.goto(PLACE)
    one = upload(page, "keels.md", f"# Keels\n\n{LONG}\n\n## Salt\n\nZinc anodes keep the rudder from rusting.")
    expect(one.get_by_text("indexing", exact=True)).to_be_visible()
    expect(one.locator("progress")).to_be_visible()
    expect(one.locator(".stage")).to_contain_text("embedding")
    held.release()
    expect(one.get_by_text("ready", exact=True)).to_be_visible()

    page.get_by_role("navigation", name="Main navigation").get_by_role("link", name="Search").click()
    expect(page).to_have_url(re.compile("/search$"))  # keys pressed earlier would go to the previous page
    expect(page.locator("html[data-ready]")).to_be_attached()
    page.keyboard.press("/")
    page.keyboard.type("zinc anodes rudder")
    page.keyboard.press("Enter")
    hit = page.get_by_role("link", name=re.compile("keels.md")).first
    expect(hit).to_be_visible()
    hit.click()
    expect(page).to_have_url(re.compile(r"/documents/\d+"))
    expect(page.locator("mark").filter(has_text="Zinc anodes").first).to_be_visible()


@pytest.mark.usefixtures("base")
def test_a_document_can_be_cancelled_indexed_again_and_deleted_during_indexing(
    page: Page, site: Site, held: PaidProvider
) -> None:
    page.goto(PLACE)
    one = upload(page, "rope.md", "# Rope\n\nThree strands of hemp.")
    expect(one.get_by_text("indexing", exact=True)).to_be_visible()
    one.get_by_role("button", name=re.compile("^Cancel")).click()
    expect(one.locator(".chip")).not_to_have_text(re.compile("indexing|queued"))

    one.get_by_role("button", name=re.compile("^Index: ")).click()
    # The worker is still waiting for its provider.
    expect(one.locator(".chip")).to_have_text(re.compile("indexing|queued"))
    one.get_by_role("button", name=re.compile("^Delete")).click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(one).to_have_count(0)
    held.release()

    other = upload(page, "sail.md", "# Sail\n\nCanvas and wind.")
    expect(other.get_by_text("ready", exact=True)).to_be_visible()
    expect(one).to_have_count(0)
    found = site.api.post("/bases/handbook/search", json={"query": "hemp strands"}).json()["hits"]
    assert [hit["name"] for hit in found if hit["name"] != "sail.md"] == []


@pytest.mark.usefixtures("base")
def test_a_degraded_document_shows_what_is_missing_and_can_be_retried(page: Page, paid: PaidProvider) -> None:
    paid.refuses["poison"] = REFUSED
    page.goto(PLACE)
    one = upload(page, "keels.md", f"# Keels\n\n{LONG}\n\n## Paint\n\nCopper poison keeps the barnacles off.")
    expect(one.get_by_text("degraded", exact=True)).to_be_visible()
    expect(one.locator("[data-field=why]")).not_to_be_empty()
    one.get_by_role("link", name="keels.md").click()
    expect(page.locator("main")).to_contain_text("degraded")
    expect(page.locator("main")).to_contain_text(re.compile("missing|lack", re.IGNORECASE))
    paid.refuses.clear()
    page.get_by_role("button", name=re.compile("^Retry")).first.click()
    expect(page.locator("main").get_by_text("ready", exact=True).first).to_be_visible()


def test_documents_can_be_opened_with_the_keyboard_alone(page: Page, site: Site, base: str) -> None:
    for name in ("anchor.md", "buoy.md", "chart.md"):
        site.put(base, name, f"# {name}\n\nSomething about it.")
    page.goto("/")
    expect(page.locator("#live")).to_have_text("Live")
    page.keyboard.press("g")
    page.keyboard.press("d")
    expect(page).to_have_url(re.compile("/documents$"))
    expect(page.locator("#live")).to_have_text("Live")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.press("/")
    page.keyboard.type(".md")
    page.keyboard.press("Escape")
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(3)
    for _ in range(40):
        if page.evaluate("document.activeElement.matches('tbody tr')"):
            break
        page.keyboard.press("Tab")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Space")
    expect(rows.nth(1)).to_have_attribute("aria-selected", "true")
    page.keyboard.press("ArrowDown")
    expect(rows.nth(2)).to_be_focused()
    name = rows.nth(2).locator("[data-field=name]").inner_text()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_contain_text(name)
