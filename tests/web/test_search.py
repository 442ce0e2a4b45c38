"""Search and questions in a real browser."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from tests.support.paid_provider import UNFINISHED
from tests.unit.test_highlight import CASES

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Page, Route

    from tests.support.paid_provider import PaidProvider
    from tests.web.conftest import Site

    Put = Callable[[str, str], int]

PLACE = "/bases/handbook"
ANSWER = "The keeper writes down each ship [1]. <b>Nobody</b> else does [1].\n\nThat is all."
LIGHT = "# Light\n\nThe keeper of the light writes down each ship that enters the harbour."
SHIPS = "# Ships\n\nA ship waits for the tide before it leaves."
WITHOUT_SCRIPTS = {"java_script_enabled": False, "locale": "en-GB"}
NARROW = {"viewport": {"width": 360, "height": 760}, "locale": "zh-CN", "color_scheme": "dark"}


@pytest.fixture(scope="module")
def reply() -> Callable[[dict[str, Any]], str]:
    return lambda _request: ANSWER


@pytest.fixture(scope="module")
def environment(speaking: dict[str, str]) -> dict[str, str]:
    return speaking


def live(page: Page, address: str) -> None:
    """Open a page, and wait until its script is running."""
    page.goto(address)
    expect(page.locator("#live")).to_have_text("Live")


def question(page: Page, asked: str) -> None:
    """Open the page for questions, and enter one."""
    page.goto(f"{PLACE}/ask")
    expect(page.get_by_role("button", name="Ask")).to_be_visible()
    page.get_by_role("textbox", name="Ask a question about handbook").fill(asked)


def test_hits_show_their_rank_in_each_channel_and_link_to_their_passage(page: Page, put: Put) -> None:
    put("light.md", LIGHT)
    put("ships.md", SHIPS)
    live(page, f"{PLACE}/search")
    expect(page.get_by_text("Search for words, names or a question")).to_be_visible()
    page.keyboard.type("ships in the harbour")
    page.keyboard.press("Enter")
    hits = page.get_by_role("list", name="Search results").locator("> li")
    expect(hits).to_have_count(2)
    expect(hits.first).to_contain_text(re.compile(r"light\.md.*score \d\.\d{3} · generation 1", re.DOTALL))
    expect(hits.first.locator("mark")).to_have_text(["harbour"])
    expect(hits.first.locator("[data-channel=fulltext]")).to_contain_text(re.compile(r"Keyword\d+\.\d{3} #1"))
    expect(hits.first.locator("[data-channel=vector]")).to_have_attribute("title", re.compile(r"Semantic: score \d"))
    expect(page.get_by_text(re.compile(r"Results: 2 \([\d,]+ ms\)"))).to_be_visible()
    expect(page).to_have_url(re.compile(r"\?q=ships\+in\+the\+harbour"))

    page.get_by_label("Semantic").uncheck()
    expect(hits.first.locator("[data-channel=vector]")).to_have_count(0)
    expect(page).to_have_url(re.compile(r"channel=fulltext"))
    graph = page.get_by_label("Graph", exact=True)
    expect(graph).to_be_disabled()
    expect(graph).to_have_accessible_description(re.compile("does not have this index"))

    page.get_by_role("searchbox").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    expect(hits.nth(1).get_by_role("link")).to_be_focused()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="light.md", level=1)).to_be_visible()
    expect(page.locator("#text mark")).to_contain_text("The keeper of the light")
    page.go_back()
    expect(page.get_by_role("searchbox")).to_have_value("ships in the harbour")
    expect(hits.first).to_contain_text("light.md")
    expect(page.get_by_label("Semantic")).not_to_be_checked()


def test_an_earlier_search_never_replaces_a_later_one(page: Page, put: Put) -> None:
    put("light.md", LIGHT)
    live(page, f"{PLACE}/search")
    held: list[Route] = []
    page.route("**/api/v1/**/search", lambda route: route.continue_() if held else held.append(route))
    box = page.get_by_role("searchbox")
    box.fill("nothing of this")
    with page.expect_event("requestfailed"):
        box.press("Enter")
        box.fill("harbour")
        box.press("Enter")
    expect(page.get_by_role("list", name="Search results")).to_contain_text("harbour")
    assert page.locator(".toast").count() == 0


def test_a_deleted_document_disappears_from_the_hits_and_search_can_be_repeated(
    page: Page, site: Site, put: Put
) -> None:
    first = put("light.md", LIGHT)
    put("ships.md", SHIPS)
    live(page, f"{PLACE}/search?q=ship")
    hits = page.get_by_role("list", name="Search results").locator("> li")
    expect(hits).to_have_count(2)
    site.api.delete(f"/bases/handbook/documents/{first}").raise_for_status()
    expect(hits).to_have_count(1)
    page.get_by_role("button", name="The base has changed. Search again").click()
    expect(page.get_by_text(re.compile(r"Results: 1 \("))).to_be_visible()


@pytest.mark.parametrize("look", [WITHOUT_SCRIPTS])
def test_a_search_works_without_scripts(page: Page, site: Site, base: str) -> None:
    page.goto(f"{PLACE}/search?q=ship")
    expect(page.get_by_text("No documents to search yet")).to_be_visible()
    site.put(base, "light.md", LIGHT)
    site.put(base, "notes.md", "# 笔记\n\n知识图谱用于检索。")
    page.goto(f"{PLACE}/search")
    page.get_by_role("searchbox").fill("知识图谱")
    page.get_by_label("Semantic").uncheck()
    page.get_by_role("button", name="Search").click()
    hits = page.get_by_role("list", name="Search results").locator("> li")
    expect(hits).to_have_count(1)
    expect(hits.locator("mark")).to_have_text(["知识图谱"])
    hits.get_by_role("link").click()
    expect(page.locator("#text mark")).to_contain_text("知识图谱用于检索")
    page.goto(f"{PLACE}/search?q=zzqq&channel=fulltext")
    expect(page.get_by_text("No results")).to_be_visible()
    asking = site.api.get(f"{site.url}{PLACE}/ask", params={"q": "why"}).text
    assert "Answers need JavaScript. Without it, search" in asking


def test_script_and_server_highlight_the_same_words(page: Page, base: str) -> None:
    page.goto(f"/bases/{base}/search")
    drawn = page.evaluate(
        """async (cases) => {
            const { highlightWords } = await import("/static/js/highlight.js");
            const draw = (one) => (typeof one === "string" ? one : `[${one.textContent}]`);
            return cases.map(([query, text]) => highlightWords(text, query).map(draw).join(""));
        }""",
        CASES,
    )
    assert drawn == [said for _, _, said in CASES]


def test_an_answer_cites_passages_and_is_rendered_as_text(page: Page, put: Put) -> None:
    put("light.md", LIGHT)
    question(page, "Who writes down ships?")
    page.get_by_label("Passages Passages found by search.").check()
    page.get_by_role("textbox", name="Ask a question about handbook").press("Enter")
    answer = page.locator("#answer")
    expect(page.get_by_text("Answered by the language model from the cited passages.")).to_be_visible()
    expect(answer).to_contain_text("<b>Nobody</b> else does")
    expect(answer.locator("b")).to_have_count(0)
    cited = answer.get_by_role("link", name="Citation 1: light.md")
    expect(cited).to_have_count(2)
    expect(page.get_by_text("Passages used: 1")).to_be_visible()
    expect(page).to_have_url(re.compile("mode=naive"))

    cited.first.click()
    dialog = page.get_by_role("dialog", name="Passage from light.md")
    expect(dialog.locator("mark")).to_contain_text("The keeper of the light")
    dialog.get_by_role("link", name="Open in document").click()
    expect(page.get_by_role("heading", name="light.md", level=1)).to_be_visible()
    expect(page.locator("#text mark")).to_contain_text("The keeper of the light")


def test_an_answer_can_be_stopped_without_an_error_message(page: Page, put: Put, paid: PaidProvider) -> None:
    put("light.md", LIGHT)
    page.goto(f"{PLACE}/ask?q=Who+writes+down+ships")
    box = page.get_by_role("textbox", name="Ask a question about handbook")
    expect(box).to_have_value("Who writes down ships")  # opening a link does not send the question
    expect(page.locator("#said")).to_be_hidden()
    paid.stall()
    try:
        page.get_by_role("button", name="Ask").click()
        paid.await_calls(1)
        page.get_by_role("button", name="Stop").click()
        expect(page.get_by_text("Stopped.")).to_be_visible()
        assert page.locator(".toast").count() == 0
    finally:
        paid.release()


def test_an_unfinished_answer_is_marked_as_incomplete(page: Page, put: Put, paid: PaidProvider) -> None:
    put("light.md", LIGHT)
    question(page, "Who writes down each ship?")
    paid.next(UNFINISHED)
    page.get_by_role("button", name="Ask").click()
    expect(page.get_by_text("The answer is incomplete: the language model stopped early.")).to_be_visible()


def test_without_a_language_model_the_best_passages_are_shown(page: Page, site: Site, put: Put) -> None:
    put("light.md", LIGHT)
    site.api.patch("/bases/handbook", json={"chat": "none"}).raise_for_status()
    question(page, "Who writes down ships?")
    page.get_by_role("button", name="Ask").click()
    expect(
        page.get_by_text("No language model is configured, so these are the best passages instead of an answer.")
    ).to_be_visible()
    expect(page.locator("#citations")).to_contain_text("The keeper of the light writes down each ship")


@pytest.mark.parametrize("look", [{"color_scheme": "light", "locale": "en-GB"}, NARROW], ids=["wide", "narrow"])
def test_the_pages_for_search_and_questions_are_accessible_and_fit(page: Page, put: Put) -> None:
    put("light.md", LIGHT)
    for address in ("search?q=ship", "search", "ask"):
        page.goto(f"{PLACE}/{address}")
        expect(page.get_by_role("heading", level=1)).to_be_attached()
        assert [one["id"] for one in Axe().run(page).response["violations"]] == []
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
