"""Study cards in a real browser, with a language model over HTTP."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from tests.support.question_harness import crustaceans, sections

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from playwright.sync_api import Browser, Page, Route

    from tests.web.conftest import Site

PLACE = "/bases/sea/cards"
QUESTIONS = {"indexes": ["fulltext", "questions"], "chunk_size": 48, "chunk_overlap": 0}


@pytest.fixture(scope="module")
def reply() -> Callable[[dict[str, Any]], str]:
    return crustaceans


@pytest.fixture(scope="module")
def environment(speaking: dict[str, str]) -> dict[str, str]:
    return speaking


@pytest.fixture
def sea(site: Site) -> Iterator[int]:
    """A base with one document that has thirty questions."""
    site.api.post("/bases", json={"name": "sea", **QUESTIONS}).raise_for_status()
    yield site.put("sea", "krill.md", sections(30))
    site.api.delete("/bases/sea")


def made(site: Site) -> None:
    """Generate cards, and wait for the job."""
    job = site.api.post("/bases/sea/cards:generate").json()["job"]
    site.rested(f"/jobs/{job}")


def test_cards_can_be_generated_revealed_paged_and_exported(page: Page, site: Site, sea: int) -> None:
    page.goto(PLACE)
    expect(page.get_by_text("No study cards yet")).to_be_visible()
    page.get_by_role("button", name="Generate cards").click()
    expect(page.get_by_text("Set 1, cards: 30")).to_be_visible()
    cards = page.locator("#cards > li")
    expect(cards).to_have_count(25)
    question = page.get_by_text("Which crustacean lives in part 0?", exact=True)
    answer = page.get_by_text("The krill is one of 30.").first
    expect(answer).to_be_hidden()
    question.focus()
    page.keyboard.press("Space")
    expect(answer).to_be_visible()
    expect(cards.first.get_by_role("link", name=re.compile("krill.md"))).to_have_attribute(
        "href", re.compile(rf"^/bases/sea/documents/{sea}\?chunk=\d+$")
    )
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(cards.nth(1).locator(".answer")).to_be_visible()
    page.get_by_role("link", name="Show more cards").click()
    expect(cards).to_have_count(30)
    expect(page.get_by_role("link", name="Show more cards")).to_be_hidden()
    page.get_by_role("button", name="Show all answers").click()
    expect(page.locator("#cards .answer").last).to_be_visible()
    for form, ending in (("CSV", "csv"), ("JSON", "json"), ("Anki", "txt")):
        with page.expect_download() as saved:
            page.get_by_role("link", name=form).click()
        assert saved.value.suggested_filename == f"cards.{ending}"
        assert "Which crustacean lives in part 29?" in saved.value.path().read_text()

    made(site)  # outside of this page
    expect(page.get_by_text("Set 2, cards: 30")).to_be_visible()
    expect(page.locator("#cards .answer").first).to_be_visible()  # an open card stays open
    site.api.delete(f"/bases/sea/documents/{sea}")
    expect(page.get_by_text("No study cards yet")).to_be_visible()


def test_only_one_set_is_built_at_a_time_and_the_build_can_be_cancelled(page: Page, site: Site, sea: int) -> None:
    made(site)
    site.api.post("/jobs:pause", json={"base": "sea"})
    page.goto(PLACE)
    page.get_by_role("button", name="Generate new set").click()
    making = page.get_by_role("button", name=re.compile("Generate new set"))
    expect(making).to_have_attribute("title", re.compile("^Generate new set: A set is already being generated."))
    expect(page.get_by_role("region", name="Card set status")).to_contain_text("queued")
    expect(page.locator("#cards > li")).to_have_count(25)  # the old set is shown during the build

    job = site.api.get("/bases/sea/cards/status").json()["job"]
    refused = site.api.post("/bases/sea/cards:generate")
    assert (refused.status_code, refused.json()["job"]) == (409, job)
    page.get_by_role("button", name="Cancel generation").click()
    expect(page.get_by_role("button", name="Cancel generation")).to_be_hidden()
    expect(page.get_by_text("Set 1, cards: 30")).to_be_visible()
    site.api.post("/jobs:resume", json={"base": "sea"})


def test_a_conflict_links_to_the_conflicting_job(page: Page, site: Site, sea: int) -> None:
    site.api.post("/jobs:pause", json={"base": "sea"})
    page.goto(PLACE)
    expect(page.locator("#live")).to_have_text("Live")
    page.route("**/events/stream*", lambda route: route.abort())
    page.route("**/cards/status", lambda route: route.abort())
    # This page does not receive the events of the other request.
    page.evaluate("window.dispatchEvent(new Event('pagehide'))")
    expect(page.locator("#live")).to_have_text("Paused")
    job = site.api.post("/bases/sea/cards:generate").json()["job"]
    page.get_by_role("button", name="Generate cards").click()
    link = page.get_by_role("link", name="Show active job")
    expect(link).to_have_attribute("href", f"/queue#job-{job}")
    page.unroute_all()
    site.api.post("/jobs:resume", json={"base": "sea"})


@pytest.mark.usefixtures("sea")
def test_an_outdated_reload_does_not_remove_cards_that_were_loaded_later(page: Page, site: Site) -> None:
    other = site.put("sea", "more.md", "# More")
    made(site)
    page.goto(PLACE)
    expect(page.locator("#live")).to_have_attribute("data-state", "on")
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route(re.compile(r"/cards\?limit=25$"), hold)
    with page.expect_request(re.compile(r"/cards\?limit=25$")):
        site.api.delete(f"/bases/sea/documents/{other}").raise_for_status()  # its cards might disappear
    page.get_by_role("link", name="Show more cards").click()
    cards = page.locator("#cards > li")
    expect(cards).to_have_count(30)
    with page.expect_response(re.compile(r"/cards\?limit=30$")):  # the page reloads all shown cards
        for route in held:
            route.continue_()
    expect(cards).to_have_count(30)


@pytest.mark.usefixtures("sea")
def test_hostile_cards_are_rendered_as_text(page: Page, site: Site) -> None:
    hostile = "<img src=x onerror=alert(1)>"
    page.goto(PLACE)
    site.put("sea", f"{hostile}.md", sections(1, but={0: f"The crab of part 77 is {hostile} in the ice."}))
    made(site)
    expect(page.get_by_text("Set 1, cards: 31")).to_be_visible()
    page.get_by_role("link", name="Show more cards").click()
    page.get_by_text("Which crustacean lives in part 77?").click()
    expect(page.get_by_text(f"The crab is {hostile} in the ice.")).to_be_visible()
    expect(page.get_by_role("link", name=f"{hostile}.md")).to_be_visible()
    assert page.locator("main img").count() == 0


@pytest.mark.usefixtures("sea")
def test_the_cards_page_fits_a_phone_works_without_scripts_and_explains_what_is_missing(
    browser: Browser, site: Site
) -> None:
    made(site)
    site.api.post("/bases", json={"name": "silent", **QUESTIONS, "chat": "none"}).raise_for_status()
    site.api.post("/bases", json={"name": "plain", "indexes": ["fulltext"]}).raise_for_status()
    context = browser.new_context(base_url=site.url, viewport={"width": 360, "height": 800}, locale="zh-CN")
    page = context.new_page()
    page.goto(PLACE)
    page.locator("#cards summary").first.click()
    expect(page.locator("#cards .answer").first).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert Axe().run(page).response["violations"] == []
    for base, reason in (("silent", "此知识库没有语言模型"), ("plain", "没有问题索引")):
        page.goto(f"/bases/{base}/cards")
        expect(page.get_by_text(reason)).to_be_visible()
        expect(page.get_by_role("button", name=re.compile("生成卡片"))).to_have_attribute("aria-disabled", "true")
    assert Axe().run(page).response["violations"] == []
    context.close()

    context = browser.new_context(base_url=site.url, java_script_enabled=False, locale="en")
    page = context.new_page()
    page.goto(PLACE)
    page.get_by_text("Which crustacean lives in part 0?", exact=True).click()
    expect(page.get_by_text("The krill is one of 30.").first).to_be_visible()
    page.get_by_role("link", name="Show more cards").click()
    expect(page.locator("#cards > li")).to_have_count(5)
    context.close()
    for name in ("silent", "plain"):
        site.api.delete(f"/bases/{name}")
