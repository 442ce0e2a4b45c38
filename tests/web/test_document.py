"""The page of one document in a real browser."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from tests.support.paid_provider import BROKEN, REFUSED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from playwright.sync_api import Browser, Page, Route

    from tests.support.paid_provider import PaidProvider
    from tests.web.conftest import Site

    Put = Callable[[str, str], int]

PLACE = "/bases/handbook/documents"
HOSTILE = "<img src=x onerror=window.hit=1>"
WITHOUT_SCRIPTS = {"java_script_enabled": False, "locale": "en-GB"}
NARROW: dict[str, Any] = {"viewport": {"width": 360, "height": 760}, "locale": "zh-CN", "color_scheme": "dark"}


def sections(count: int, word: str = "mooring") -> str:
    """Write sections of one chunk each; the first character takes two UTF-16 units in a browser."""
    return "\n\n".join(
        f"# \U0001d4ae {word} {place}\n\n{f'Line {place} of the {word} log. ' * 12}" for place in range(count)
    )


def speak(request: dict[str, Any]) -> str:
    """Reply like a language model to questions about the harbour."""
    if "study cards" in request["messages"][0]["content"]:
        pair = {"question": "Who keeps the light?", "answer": "The keeper of Northhaven keeps the light"}
        return json.dumps({"pairs": [pair]})
    entity = {"name": "Northhaven", "kind": "place", "description": "A harbour."}
    return json.dumps({"entities": [entity], "relations": []})


@pytest.fixture(scope="module")
def reply() -> Callable[[dict[str, Any]], str]:
    return speak


@pytest.fixture(scope="module")
def environment(speaking: dict[str, str]) -> dict[str, str]:
    return speaking


@pytest.fixture
def small(site: Site) -> Iterator[str]:
    """A base with small, overlapping chunks."""
    wanted = {"name": "small", "indexes": ["fulltext"], "chunk_size": 64, "chunk_overlap": 16}
    site.api.post("/bases", json=wanted).raise_for_status()
    yield "small"
    site.api.delete("/bases/small")


def live(page: Page, address: str) -> None:
    """Open a page, and wait until its script is running."""
    page.goto(address)
    expect(page.locator("#live")).to_have_text("Live")


def marks(page: Page) -> str:
    return "".join(page.locator("#text mark").all_text_contents())


def test_the_page_shows_the_status_indexes_history_and_cost_of_a_document(page: Page, put: Put) -> None:
    document = put("tides.md", "# Tides\n\nThe moon pulls the sea.\n\n# Harbours\n\nShips wait there.")
    live(page, f"{PLACE}/{document}")
    expect(page.get_by_role("heading", name="tides.md", level=1)).to_be_visible()
    standing = page.get_by_role("region", name="Status")
    expect(standing.get_by_text("ready", exact=True)).to_be_visible()
    expect(standing.get_by_text("Searchable", exact=True)).to_be_visible()
    vectors = page.get_by_role("table", name="Indexes").get_by_role("row", name=re.compile("vectors"))
    expect(vectors).to_contain_text(re.compile(r"ready\s*1 / 1\s*1 / 4\s*1\s*0"))
    history = page.get_by_role("region", name="History")
    expect(history).to_contain_text("Generation 1")
    expect(history).to_contain_text("vectors: ready attempt 1 · 1 written, 0 kept, 0 removed")
    used = re.compile(r"^CPU .+, memory \d+ MB, in the queue for .+$")
    expect(history.locator('[data-what="ready"]').first).to_have_attribute("title", used)  # painted by the script
    assert re.search(r'title="CPU \d+ ms, memory \d+ MB, in the queue for [\d.]+ s"', page.request.get(page.url).text())
    expect(page.get_by_role("region", name="Cost")).to_contain_text("No cost: everything ran on this machine")
    expect(page.get_by_role("button", name="Retry: tides.md (Nothing failed.)")).to_be_visible()
    with page.expect_download() as saved:
        page.get_by_role("button", name="Download original: tides.md").click()
    assert saved.value.suggested_filename == "tides.md"


def test_a_selected_chunk_is_highlighted_in_the_text(page: Page, site: Site, small: str) -> None:
    document = site.put(small, "log.md", sections(70))
    chunks = site.api.get(f"/bases/{small}/documents/{document}/chunks", params={"limit": 500}).json()["items"]
    assert any(one["end"] > other["start"] for one, other in pairwise(chunks))
    place = f"/bases/{small}/documents/{document}"
    live(page, place)
    listed = page.get_by_role("list", name="Chunks").get_by_role("listitem")
    listed.nth(3).click()
    expect(listed.nth(3)).to_have_attribute("aria-current", "true")
    expect(page.locator("#text mark").first).to_be_in_viewport()
    assert marks(page) == chunks[3]["text"]
    assert page.url.endswith(f"?chunk={chunks[3]['chunk']}")
    beside = chunks[2]["end"] - chunks[3]["start"], chunks[3]["end"] - chunks[4]["start"]
    assert len("".join(page.locator("#text mark.overlap").all_text_contents())) == sum(max(0, one) for one in beside)
    page.keyboard.press("ArrowDown")
    expect(listed.nth(4)).to_have_attribute("aria-current", "true")
    assert marks(page) == chunks[4]["text"]

    # A chunk on another page of the list and far down in the text, by both forms of the address.
    late = chunks[-5]
    for address in (f"{place}?chunk={late['chunk']}", f"{place}#chunk-{late['chunk']}"):
        page.goto("about:blank")
        live(page, address)
        expect(page.locator(f"#chunk-{late['chunk']}")).to_have_attribute("aria-current", "true")
        expect(page.locator("#text mark").first).to_be_in_viewport()
        assert marks(page) == late["text"]
    assert page.locator("#text").inner_text().find("Line 0 of") < 0
    page.get_by_role("button", name="Show earlier text").click()
    expect(page.locator("#text span").nth(1)).to_contain_text(late["text"][:20])

    page.get_by_role("link", name="First page").click()
    expect(listed.first).to_contain_text("Line 0 of the mooring log")
    page.goto(f"{place}?chunk=999999")
    expect(page.get_by_text("This passage no longer exists, because the document has changed.")).to_be_visible()


def test_a_failed_document_shows_its_reason_once_and_no_empty_reader(page: Page, site: Site, base: str) -> None:
    document = site.put(base, "scan.pdf", b"%PDF-1.4 nothing that could be read")
    error = site.api.get(f"/bases/{base}/documents/{document}").json()["indexes"][0]["error"]["message"]
    place = f"{PLACE}/{document}"
    live(page, place)
    said = page.get_by_text(error[:40])
    expect(said).to_have_count(1)
    expect(page.locator("#why")).to_contain_text(error[:40])
    expect(page.locator("#why")).to_contain_text("Not built, because text and chunks failed: vectors, full text.")
    expect(page.locator("#reader")).to_be_hidden()
    page.get_by_role("button", name="Retry: scan.pdf").click()
    expect(page.get_by_role("region", name="History")).to_contain_text("Generation 2")
    expect(page.locator("#facts [data-field=generation]")).to_have_text("0 / 2")
    expect(page.get_by_role("region", name="Status").get_by_text("failed", exact=True)).to_be_visible()
    expect(said).to_have_count(1)  # the script renders the same as the server

    changed = {"name": "scan.pdf", "on_duplicate": "replace"}
    answer = site.api.post(f"/bases/{base}/documents", params=changed, content=b"# Scan\n\nIt can be read now.")
    assert answer.status_code == 202
    expect(page.locator("#reader")).to_be_visible()
    expect(page.get_by_role("region", name="Extracted text")).to_contain_text("It can be read now.")


@pytest.mark.usefixtures("base")
def test_pages_of_waiting_documents_show_a_paused_queue_and_can_resume_it(page: Page, site: Site, put: Put) -> None:
    first = put("rope.md", "# Rope\n\nThree strands.")
    for paused, told, again in (
        ({"base": "handbook"}, "The base handbook is paused.", "Resume handbook"),
        ({}, "The queue is paused.", "Resume queue"),
    ):
        banner = page.get_by_role("status").filter(has_text=told)
        live(page, PLACE)
        expect(banner).to_have_count(0)
        site.api.post("/jobs:pause", json=paused).raise_for_status()
        site.api.post(f"/bases/handbook/documents/{first}:reindex").raise_for_status()
        expect(banner).to_be_visible()  # also without a reload
        waiting = page.get_by_role("button", name=re.compile("^Reindex: rope.md"))
        expect(waiting).to_have_attribute("title", re.compile("Queued, but the queue is paused"))
        for place in (f"{PLACE}/{first}", *(f"/bases/handbook/{one}" for one in ("search", "ask", "graph", "cards"))):
            page.goto(place)
            expect(banner).to_be_visible()
            expect(page.get_by_text("No jobs ahead")).to_have_count(0)
        page.goto("/bases/handbook/ask")  # this page does not subscribe to events
        page.get_by_role("button", name=again).click()
        expect(banner).to_have_count(0)
        expect(page.locator("#base-paused")).to_be_hidden()
        live(page, f"{PLACE}/{first}")
        expect(page.get_by_role("region", name="Status").get_by_text("ready", exact=True)).to_be_visible()


def test_the_search_page_shows_a_pause_that_begins_and_ends_live(page: Page, site: Site, put: Put) -> None:
    put("rope.md", "# Rope\n\nThree strands.")
    live(page, "/bases/handbook/search?q=rope")
    banner = page.get_by_role("status").filter(has_text="The base handbook is paused.")
    site.api.post("/jobs:pause", json={"base": "handbook"}).raise_for_status()
    expect(banner).to_be_visible()
    site.api.post("/jobs:resume", json={"base": "handbook"}).raise_for_status()
    expect(banner).to_have_count(0)


@pytest.mark.usefixtures("base")
def test_the_table_of_indexes_fits_at_every_width(page: Page, site: Site, put: Put) -> None:
    document = put("rope.md", "# Rope\n\nThree strands.")
    site.api.post("/jobs:pause", json={"base": "handbook"}).raise_for_status()
    site.api.post(f"/bases/handbook/documents/{document}:reindex").raise_for_status()  # shows the longest state text
    live(page, f"{PLACE}/{document}")
    expect(page.locator("#indexes")).to_contain_text("blocked")
    for width in (1920, 1280, 1150, 1024, 810, 768, 360, 320):
        page.set_viewport_size({"width": width, "height": 800})
        for cell in page.locator("#indexes :is(th, td):visible").all():
            assert (
                cell.evaluate(
                    "one => one.getBoundingClientRect().right - one.closest('section').getBoundingClientRect().right"
                )
                <= 0
            ), (width, cell.inner_text())
    site.api.post("/jobs:resume", json={"base": "handbook"}).raise_for_status()


def test_changes_of_a_document_appear_without_a_reload(page: Page, site: Site, put: Put) -> None:
    document = put("rope.md", "# Rope\n\nThree strands.")
    live(page, f"{PLACE}/{document}")
    page.evaluate("window.here = true")
    changed = {"name": "rope.md", "on_duplicate": "replace"}
    site.api.post("/bases/handbook/documents", params=changed, content=b"# Rope\n\nFour strands.").raise_for_status()
    expect(page.locator("#facts [data-field=generation]")).to_have_text("2 / 2")
    expect(page.get_by_role("region", name="History")).to_contain_text("Generation 2")
    expect(page.get_by_role("list", name="Chunks")).to_contain_text("Four strands.")
    expect(page.get_by_role("region", name="Extracted text")).to_contain_text("Four strands.")

    site.api.post("/jobs:pause", json={"base": "handbook"}).raise_for_status()
    page.get_by_role("button", name="Reindex: rope.md").click()
    standing = page.get_by_role("region", name="Status")
    expect(standing).to_contain_text("Base handbook has been paused since")
    expect(standing).not_to_contain_text("No jobs ahead")  # it would not start although it is the first
    expect(standing).to_contain_text("Searchable as generation 2; generation 3 is in progress")
    site.api.post("/jobs:resume", json={"base": "handbook"}).raise_for_status()
    expect(standing.get_by_text("Searchable", exact=True)).to_be_visible()

    site.api.delete(f"/bases/handbook/documents/{document}").raise_for_status()
    expect(page.get_by_role("alert")).to_contain_text("This document was deleted")
    assert page.evaluate("window.here")
    page.get_by_role("alert").get_by_role("link", name="Back to documents").click()
    expect(page).to_have_url(re.compile(f"{PLACE}$"))


def test_the_results_of_a_language_model_appear_live(page: Page, site: Site, paid: PaidProvider) -> None:
    site.api.post("/bases", json={"name": "dear", "indexes": ["graph", "questions"]}).raise_for_status()
    text = "# Light\n\nThe keeper of Northhaven keeps the light that leads each ship into the harbour at night."
    paid.stall()
    try:
        put = site.api.post("/bases/dear/documents", params={"name": "light.md"}, content=text.encode()).json()
        live(page, f"/bases/dear/documents/{put['replies'][0]['document']}")
        standing = page.get_by_role("region", name="Status")
        expect(standing).to_contain_text("Running now: graph, questions.")
        expect(page.get_by_role("row", name=re.compile("graph"))).to_contain_text("extracting 0 of 1")
        expect(page.get_by_text("No questions. They come from the questions index.")).to_be_visible()
    finally:
        paid.release()
    expect(standing.get_by_text("ready", exact=True)).to_be_visible()
    expect(page.get_by_role("region", name="Entities").get_by_role("link", name="Northhaven")).to_be_visible()
    expect(page.get_by_role("table", name="Cost")).to_contain_text(re.compile(r"entities and relations\s*1\s*\d+"))
    cards = page.get_by_role("region", name="Questions")
    cards.get_by_text("Who keeps the light?").click()
    cards.get_by_role("link", name="Open passage").click()
    expect(page.locator("#text mark")).to_contain_text("The keeper of Northhaven")

    paid.refuses["Southhaven"] = BROKEN
    paid.stall()
    try:
        changed = text.replace("Northhaven", "Southhaven").encode()
        site.api.post("/bases/dear/documents", params={"name": "light.md", "on_duplicate": "replace"}, content=changed)
        expect(standing).to_contain_text("Running now: graph, questions.")
    finally:
        paid.release()
    expect(standing).to_contain_text("graph: attempt 1 of 4 failed. Next attempt:")  # no event is emitted for this
    paid.refuses.clear()
    site.api.delete("/bases/dear")


def test_missing_passages_are_listed_and_linked_until_they_are_indexed(
    page: Page, browser: Browser, site: Site, paid: PaidProvider
) -> None:
    wanted = {"name": "patchy", "indexes": ["fulltext", "questions"], "chunk_size": 64, "chunk_overlap": 0}
    site.api.post("/bases", json=wanted).raise_for_status()
    paid.refuses["arsenic"] = REFUSED
    text = sections(24)
    document = site.put("patchy", "log.md", text.replace("Line 11 of", "Arsenic is arsenic, says line 11 of", 1))
    place = f"/bases/patchy/documents/{document}"
    live(page, place)
    page.evaluate("window.here = true")
    table = page.get_by_role("table", name="Missing chunks")
    found = site.api.get(f"{place}/missing").json()
    assert [one["index"] for one in found] == ["questions"]
    number, why = found[0]["ordinal"] + 1, "The provider rejects this content"
    missing = table.get_by_role("row", name=re.compile(f"questions Chunk {number} .*Arsenic is arsenic.* {why}"))
    expect(missing).to_be_visible()
    missing.get_by_role("link", name=f"Chunk {number}").click()
    expect(page.locator("#text mark")).to_contain_text("Arsenic is arsenic")
    assert page.evaluate("window.here"), "it was opened where it is"

    narrow = browser.new_context(base_url=site.url, **NARROW)
    other = narrow.new_page()
    other.goto(place)
    expect(other.get_by_role("table", name="缺失的分块").get_by_role("link", name=f"分块 {number}")).to_be_visible()
    assert [one["id"] for one in Axe().run(other).response["violations"]] == []
    assert other.evaluate("document.documentElement.scrollWidth <= innerWidth")
    narrow.close()

    changed = text.replace("Line 20 of", "No arsenic, says line 20 of", 1).encode()
    site.api.post(
        "/bases/patchy/documents", params={"name": "log.md", "on_duplicate": "replace"}, content=changed
    ).raise_for_status()
    expect(table).to_contain_text("No arsenic")
    expect(table).to_contain_text(why)
    expect(missing).to_have_count(0)
    # So that the link works without loading another page.
    expect(page.get_by_role("list", name="Chunks")).to_contain_text("No arsenic")
    table.get_by_role("link").click()
    expect(page.locator("#text mark")).to_contain_text("No arsenic")
    paid.refuses.clear()
    page.get_by_role("button", name="Retry: log.md").click()
    expect(page.get_by_role("region", name="Status").get_by_text("ready", exact=True)).to_be_visible()
    expect(table).to_be_hidden()
    assert page.evaluate("window.here")
    site.api.delete("/bases/patchy")


def test_a_passage_opened_while_the_new_text_loads_stays_highlighted(page: Page, site: Site, put: Put) -> None:
    document = put("rope.md", "# Rope\n\nThree strands.")
    live(page, f"{PLACE}/{document}")
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route(re.compile(r"/text\?"), hold)
    changed, text = {"name": "rope.md", "on_duplicate": "replace"}, b"# Rope\n\nFour strands."
    with page.expect_request(re.compile(r"/text\?")):
        site.api.post("/bases/handbook/documents", params=changed, content=text).raise_for_status()
    chunk = page.get_by_role("list", name="Chunks").get_by_role("listitem")
    expect(chunk).to_contain_text("Four strands.")
    chunk.get_by_role("link").click()
    expect(page.locator("#text mark")).to_be_visible()
    with page.expect_response(re.compile(r"/text\?")):
        for route in held:
            route.continue_()
    expect(page.locator("#text mark")).to_contain_text("Four strands.")


def test_a_failure_is_explained_with_and_without_scripts(page: Page, site: Site, base: str) -> None:
    document = site.put(base, "broken.pdf", b"%PDF-1.4 nonsense")
    live(page, f"{PLACE}/{document}")
    standing = page.get_by_role("region", name="Status")
    expect(standing.get_by_text("Not searchable", exact=True)).to_be_visible()
    expect(standing).to_contain_text("text and chunks: failed at attempt 1 of 4. The file is damaged, incomplete")
    expect(standing).to_contain_text("“Retry” builds only what failed or is missing.")
    expect(standing).to_contain_text("Not built, because text and chunks failed: vectors, full text.")
    expect(page.get_by_role("button", name="Retry: broken.pdf", exact=True)).to_be_enabled()
    painted = re.search(
        r'<ul class="reasons" id="why">(.*?)</ul>', site.api.get(f"{site.url}{PLACE}/{document}").text, re.DOTALL
    )
    assert painted
    sentences = re.findall(r"<li>(.*?)</li>", painted[1])
    assert sentences == standing.locator("#why li").all_text_contents()


@pytest.mark.parametrize("look", [WITHOUT_SCRIPTS])
def test_a_passage_can_be_opened_without_scripts(page: Page, site: Site, small: str) -> None:
    document = site.put(small, "log.md", sections(70))
    late = site.api.get(f"/bases/{small}/documents/{document}/chunks", params={"limit": 500}).json()["items"][-2]
    page.goto(f"/bases/{small}/documents/{document}?chunk={late['chunk']}")
    assert marks(page) == late["text"]
    expect(page.locator(f"#chunk-{late['chunk']}")).to_have_attribute("aria-current", "true")
    page.get_by_role("link", name="Previous page").click()
    expect(page.get_by_role("list", name="Chunks")).not_to_contain_text("Line 69 of")


def test_hostile_names_and_texts_are_rendered_as_text(page: Page, site: Site, base: str) -> None:
    links = "[x](javascript:window.hit=1) [y](https://example.org) ![a map](https://example.org/x.png)"
    text = f"# {HOSTILE}\n\n{links} {HOSTILE}"
    document = site.put(base, f"{HOSTILE}.md", text)
    page.goto(f"{PLACE}/{document}")
    expect(page.get_by_role("heading", level=1)).to_contain_text(HOSTILE)
    expect(page.get_by_role("region", name="Extracted text")).to_contain_text(HOSTILE)
    page.get_by_role("link", name="Open reading view").click()
    article = page.get_by_role("article")
    expect(article.get_by_role("heading", name=HOSTILE)).to_be_visible()
    expect(article.get_by_role("link")).to_have_count(1)
    expect(article.get_by_role("link", name="y")).to_have_attribute("rel", "noopener noreferrer nofollow")
    expect(article).to_contain_text("a map")
    expect(article.locator("img")).to_have_count(0)
    assert page.evaluate("window.hit") is None


@pytest.mark.parametrize("look", [{"color_scheme": "light", "locale": "en-GB"}, NARROW], ids=["wide", "narrow"])
def test_the_page_of_a_document_is_accessible_and_fits(page: Page, put: Put) -> None:
    document = put("tides.md", sections(3))
    for address in (f"{PLACE}/{document}", f"{PLACE}/{document}/reading"):
        page.goto(address)
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        assert [one["id"] for one in Axe().run(page).response["violations"]] == []
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
