"""The queue in a real browser."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from tests.support.paid_provider import DOWN, PaidProvider
from tests.support.question_harness import crustaceans, sections

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from playwright.sync_api import Browser, Locator, Page

    from tests.web.conftest import Site


@pytest.fixture(scope="module")
def reply() -> Callable[[dict[str, Any]], str]:
    return crustaceans


@pytest.fixture(scope="module")
def environment(speaking: dict[str, str]) -> dict[str, str]:
    return speaking


@pytest.fixture
def paused(site: Site, base: str) -> Iterator[str]:
    """A paused base, in which no job starts."""
    site.api.post("/jobs:pause", json={"base": base}).raise_for_status()
    yield base
    site.api.post("/jobs:resume", json={"base": base})


def ask(site: Site, base: str, *names: str) -> dict[str, str]:
    """Add documents, and return their jobs."""
    found = {}
    for name in names:
        answer = site.api.post(f"/bases/{base}/documents", params={"name": name}, content=f"# {name}".encode())
        found[name] = answer.json()["replies"][0]["job"]
    return found


def row(page: Page, name: str) -> Locator:
    return page.get_by_role("row").filter(has=page.get_by_role("link", name=name, exact=True))


def group(page: Page, name: str) -> Locator:
    """Return the group of a priority, or the group of ended jobs."""
    return page.get_by_role("rowgroup").filter(has=page.get_by_role("rowheader", name=name))


def names(where: Locator) -> Locator:
    return where.locator('[data-field="about"]')


def priority(site: Site, job: str) -> int:
    found: int = site.api.get(f"/jobs/{job}").json()["priority"]
    return found


def stops(site: Site) -> list[bool]:
    """Return for each pause of the base whether it also stops running jobs, newest first."""
    events = site.api.get("/events", params={"base": "handbook", "topic": "queue"}).json()["items"]
    return [one["data"]["stop"] for one in events if one["type"] == "queue.paused"]


def test_a_row_dragged_into_a_group_gets_the_priority_of_the_group(page: Page, site: Site, paused: str) -> None:
    jobs = ask(site, paused, "a.md", "b.md", "c.md")
    page.goto(f"/queue?base={paused}")  # hides the jobs of earlier tests
    expect(names(group(page, "Priority 5"))).to_have_text(["a.md", "b.md", "c.md"])
    expect(row(page, "a.md")).to_contain_text("This base is paused.")
    expect(group(page, "Priority 0")).to_be_hidden()
    row(page, "c.md").locator("[data-drag]").hover()
    page.mouse.down()
    page.mouse.move(300, 400, steps=3)
    first = page.locator('tbody[data-priority="0"]')  # all priorities are shown during a drag
    expect(first).to_be_visible()
    first.hover()
    first.hover()
    expect(first).to_have_class("over")
    page.mouse.up()
    expect(names(group(page, "Priority 0"))).to_have_text(["c.md"])
    expect(page.locator("#said")).to_have_text("c.md: priority 0")
    expect(row(page, "c.md").get_by_label("Priority of c.md")).to_have_value("0")
    expect(names(page.locator("#queue"))).to_have_text(["c.md", "a.md", "b.md"])
    page.wait_for_function("() => !document.querySelector('.dragging')")
    ask(site, paused, "d.md")
    expect(row(page, "d.md")).to_be_visible()  # the page has reloaded the order of the server
    assert priority(site, jobs["c.md"]) == 0


def test_keys_and_a_select_box_change_the_priority_and_keep_the_focus(page: Page, site: Site, paused: str) -> None:
    jobs = ask(site, paused, "a.md", "b.md", "c.md")
    page.goto(f"/queue?base={paused}")  # hides the jobs of earlier tests
    expect(page.locator("html[data-ready]")).to_be_attached()
    row(page, "a.md").focus()
    page.keyboard.press("ArrowDown")
    expect(row(page, "b.md")).to_be_focused()
    page.keyboard.press("+")
    page.keyboard.press("Alt+ArrowUp")
    expect(page.locator("#said")).to_have_text("b.md: priority 3")
    expect(names(group(page, "Priority 3"))).to_have_text(["b.md"])
    expect(row(page, "b.md")).to_be_focused()
    ask(site, paused, "d.md")
    expect(row(page, "d.md")).to_be_visible()
    expect(row(page, "b.md")).to_be_focused()
    assert priority(site, jobs["b.md"]) == 3

    with page.expect_response(re.compile(":prioritise$")):
        row(page, "a.md").get_by_label("Priority of a.md").select_option("9")
    expect(names(group(page, "Priority 9"))).to_have_text(["a.md"])
    assert priority(site, jobs["a.md"]) == 9
    row(page, "a.md").focus()
    page.keyboard.press("-")
    expect(page.locator("#said")).to_contain_text("a.md already has the lowest priority, 9.")


def test_the_queue_can_be_paused_resumed_and_stopped_with_a_confirmation(page: Page, site: Site, base: str) -> None:
    site.put(base, "done.md", "# Done")
    page.goto(f"/queue?base={base}")
    expect(names(group(page, "Finished"))).to_have_text(["done.md"])
    expect(row(page, "done.md")).to_contain_text(re.compile(r"succeeded.*took", re.DOTALL))
    expect(row(page, "done.md").get_by_role("button", name=re.compile("^Cancel"))).to_have_attribute(
        "title", "Cancel: The job has ended."
    )
    page.get_by_role("button", name="Pause handbook").click()
    pausing = page.get_by_role("dialog", name="Pause handbook")
    pausing.get_by_role("button", name="Cancel").click()  # nothing is paused
    page.get_by_role("button", name="Pause handbook").click()
    pausing.get_by_role("button", name="Pause handbook").click()
    expect(page.get_by_text("Paused: handbook.")).to_be_visible()
    assert stops(site) == [False]
    ask(site, base, "one.md", "two.md", "three.md")
    expect(names(group(page, "Priority 5"))).to_have_text(["one.md", "two.md", "three.md"])
    expect(page.locator('#states [data-state="queued"] data')).to_have_text("3")

    page.get_by_role("button", name="Cancel: one.md").click()
    expect(names(group(page, "Finished"))).to_have_text(["one.md", "done.md"])
    page.get_by_role("button", name="Cancel all jobs").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Cancel all active jobs of handbook (2)?")
    dialog.get_by_role("button", name="Cancel all jobs").click()
    expect(page.get_by_text("2 of 2 accepted")).to_be_visible()
    expect(group(page, "Finished").locator('[data-field="status"]')).to_have_text(["cancelled"] * 3 + ["succeeded"])
    page.get_by_role("button", name="Resume handbook").click()
    expect(page.get_by_text("Paused: handbook.")).to_be_hidden()
    assert site.api.get("/jobs/overview").json()["paused_bases"] == []

    page.get_by_role("button", name="Pause handbook").click()
    pausing.get_by_label("Also stop running jobs").check()
    assert [one["id"] for one in Axe().run(page).response["violations"]] == []
    page.keyboard.press("Enter")
    expect(page.get_by_text("Paused: handbook.")).to_be_visible()
    expect(pausing).to_have_count(0)
    assert stops(site) == [True, False]
    page.get_by_role("button", name="Resume handbook").click()
    expect(page.get_by_role("button", name="Pause handbook")).to_be_visible()


def test_a_failed_job_shows_its_reason_and_can_be_retried(page: Page, site: Site, base: str) -> None:
    site.put(base, "broken.pdf", b"%PDF-1.4 nothing")
    failed = site.api.get("/jobs", params={"state": "failed"}).json()["items"][0]
    page.goto("/queue?state=failed")
    expect(names(page.locator("#queue"))).to_have_text(["broken.pdf"])
    page.get_by_role("button", name="Retry: broken.pdf").click()
    expect(page.locator(".toast")).to_have_count(1)
    expect(names(page.locator("#queue"))).to_have_text(["broken.pdf", "broken.pdf"])  # it failed again
    assert site.api.get("/jobs", params={"state": "failed"}).json()["total"] == 2

    page.goto(f"/queue#job-{failed['id']}")  # like links of other pages to a job
    dialog = page.get_by_role("dialog", name="New content: broken.pdf")
    expect(dialog).to_contain_text(failed["id"])
    expect(dialog).to_contain_text("text and chunks: failed")
    expect(dialog).to_contain_text(re.compile(r"attempts: 1, CPU: .+, peak memory: \d+ MB"))
    dialog.get_by_role("button", name="Close").click()
    expect(dialog).to_have_count(0)


def test_the_details_of_a_job_show_the_rows_that_it_made_and_the_tokens_that_it_saved(page: Page, site: Site) -> None:
    wanted = {"name": "reef", "indexes": ["fulltext", "questions"], "chunk_size": 48, "chunk_overlap": 0}
    site.api.post("/bases", json=wanted).raise_for_status()
    site.put("reef", "krill.md", sections(5))
    changed = {"name": "krill.md", "on_duplicate": "replace"}
    edited = sections(5, but={2: "The krill of part 2 swims."})
    reply = site.api.post("/bases/reef/documents", params=changed, content=edited.encode()).json()["replies"][0]
    site.rested(f"/bases/reef/documents/{reply['document']}")
    job = site.api.get("/jobs", params={"base": "reef"}).json()["items"][0]
    page.goto(f"/queue#job-{job['id']}")
    dialog = page.get_by_role("dialog")
    made = site.api.get(f"/jobs/{job['id']}").json()
    rows = made["results"]["fulltext"]
    assert (rows["written"], rows["kept"], rows["removed"]) == (1, 4, 1)
    expect(dialog).to_contain_text(f"rows: {rows['written']} written, {rows['kept']} kept, {rows['removed']} removed")
    assert made["cost"]["saved"]["tokens_in"] > 0
    expect(dialog).to_contain_text("Tokens paid")
    expect(dialog).to_contain_text("Tokens saved")
    site.api.delete("/bases/reef")


def test_the_queue_shows_progress_and_why_a_job_waits(page: Page, site: Site, paid: PaidProvider) -> None:
    wanted = {"name": "sea", "indexes": ["fulltext", "questions"], "chunk_size": 48, "chunk_overlap": 0}
    site.api.post("/bases", json=wanted).raise_for_status()
    paid.stall()
    page.goto("/queue?base=sea")
    site.api.post("/bases/sea/documents", params={"name": "krill.md"}, content=sections(5).encode())
    expect(row(page, "krill.md")).to_contain_text(re.compile(r"running.*writing questions", re.DOTALL))
    paid.release()
    expect(row(page, "krill.md").get_by_text("succeeded", exact=True)).to_be_visible()
    paid.always(DOWN)
    site.api.post("/bases/sea/documents", params={"name": "prawn.md"}, content=sections(5, word="prawn").encode())
    expect(row(page, "prawn.md")).to_contain_text("The next is at")  # the script shows the explanation of the API
    assert "The next is at" in page.request.get("/queue?base=sea").text()  # the server renders it, too
    paid.always(None)
    site.api.delete("/bases/sea")


def test_hostile_names_and_deleted_documents_are_shown_live(page: Page, site: Site, base: str) -> None:
    hostile = "<img src=x onerror=alert(1)>.md"
    page.goto(f"/queue?base={base}")
    document = site.put(base, hostile, "# Hostile")
    expect(row(page, hostile).get_by_text("succeeded", exact=True)).to_be_visible()
    assert page.locator("main img").count() == 0
    site.api.delete(f"/bases/{base}/documents/{document}")
    expect(names(group(page, "Finished"))).to_have_text([f"Deleted document #{document}"] * 2)
    assert page.evaluate("performance.getEntriesByType('navigation').length") == 1


def test_the_server_divides_the_queue_into_pages(page: Page, site: Site, paused: str) -> None:
    ask(site, paused, *(f"n{number:02}.md" for number in range(53)))
    page.goto("/queue?base=handbook&page=2")
    expect(page.get_by_text(re.compile("^51.53 of 53$"))).to_be_visible()
    expect(names(page.locator("#queue"))).to_have_text(["n50.md", "n51.md", "n52.md"])
    page.get_by_label("Previous page").click()
    expect(page.get_by_text(re.compile("^1.50 of 53$"))).to_be_visible()
    expect(names(page.locator("#queue")).first).to_have_text("n00.md")
    site.api.post("/jobs:cancel", json={"base": paused})
    expect(group(page, "Finished").locator('[data-field="about"]')).to_have_count(50)


def test_a_paused_queue_can_be_used_on_a_phone(browser: Browser, site: Site, paused: str) -> None:
    ask(site, paused, "a.md", "a-very-long-name-" * 8 + ".md")
    context = browser.new_context(base_url=site.url, viewport={"width": 360, "height": 800}, locale="zh-CN")
    page = context.new_page()
    page.goto("/queue")
    expect(page.get_by_role("button", name="暂停队列")).to_be_visible()
    expect(page.get_by_label("「a.md」的优先级", exact=True)).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert Axe().run(page).response["violations"] == []
    context.close()


def test_the_queue_works_without_scripts(browser: Browser, site: Site, paused: str) -> None:
    ask(site, paused, "rope.md")
    context = browser.new_context(base_url=site.url, java_script_enabled=False, locale="en")
    page = context.new_page()
    page.goto("/queue?base=handbook&state=queued")
    expect(row(page, "rope.md")).to_contain_text("This base is paused.")
    expect(group(page, "Priority 5 · default")).to_contain_text("rope.md")
    page.get_by_role("combobox", name="Base").select_option("")
    page.get_by_role("button", name="Apply filter").click()
    expect(page).to_have_url(re.compile("state=queued&base=$"))
    context.close()
