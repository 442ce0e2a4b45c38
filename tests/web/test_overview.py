"""The overview and the first run in a real browser."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from tests.support.paid_provider import NO_MODEL, PaidProvider, unpaid
from tests.web.conftest import Site

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from playwright.sync_api import Browser, Locator, Page, Route

SAMPLES = 10


def tile(page: Page, state: str) -> Locator:
    return page.locator(".states li").filter(has=page.get_by_text(state, exact=True)).locator("data")


@pytest.fixture
def gone(site: Site) -> Iterator[None]:
    """Delete all bases after the test."""
    yield
    for base in site.api.get("/bases").json():
        site.api.delete(f"/bases/{base['name']}")


@pytest.mark.usefixtures("gone")
def test_the_first_run_creates_a_sample_base_and_searches_it(page: Page) -> None:
    page.goto("/")
    expect(page.get_by_role("heading", name="Welcome to Holdfast")).to_be_visible()
    expect(page.get_by_text("Choose how to start.")).to_be_visible()
    held: list[Route] = []
    filling = True

    def hold(route: Route) -> None:
        held.append(route) if filling else route.continue_()

    page.route("**/bases/sample/documents?*", hold)  # the uploads wait until the test has checked the page
    page.get_by_role("button", name="Add sample documents").click()
    expect(page.get_by_role("list", name="Sample documents")).to_be_visible()
    expect(page.get_by_text("The base sample is being indexed")).to_be_visible()
    expect(page.get_by_text("Choose how to start.")).to_have_count(0)
    filling = False
    for route in held:
        route.continue_()
    found = page.get_by_role("list", name="Search results")
    expect(found.get_by_role("listitem").first).to_be_visible()
    expect(found).to_contain_text("Danforth Anchor")
    expect(page.get_by_text(re.compile(f"All {SAMPLES} searchable after [0-9]+ s"))).to_be_visible()
    rows = page.get_by_role("list", name="Sample documents").get_by_role("listitem")
    expect(rows).to_have_count(SAMPLES)
    expect(page.get_by_text("The base sample is ready.")).to_be_visible()
    expect(rows.get_by_text("ready", exact=True)).to_have_count(SAMPLES)

    box = page.get_by_role("searchbox", name="Try a search")
    box.fill("绿茶 水温")
    box.press("Enter")
    expect(found.get_by_role("listitem").first).to_contain_text("绿茶")
    expect(found.get_by_role("link").first).to_have_attribute(
        "href", re.compile(r"/bases/sample/documents/\d+\?chunk=\d+$")
    )

    page.goto("/")
    expect(tile(page, "ready")).to_have_text(str(SAMPLES))
    expect(page.get_by_role("img", name=re.compile("Finished jobs"))).to_be_visible()


@pytest.mark.usefixtures("gone")
def test_a_new_base_appears_live_on_other_open_pages(page: Page, site: Site, browser: Browser) -> None:
    watching = browser.new_page(base_url=site.url)
    watching.goto("/")
    expect(watching.locator("#live")).to_have_attribute("data-state", "on")
    page.goto("/")
    page.get_by_role("textbox", name="Base name").fill("logbook & <b>")
    page.get_by_role("button", name="Create base").click()
    expect(page).to_have_url(re.compile(r"/bases/logbook%20%26%20%3Cb%3E/documents$", re.IGNORECASE))
    expect(watching.get_by_role("rowheader", name="logbook & <b>")).to_be_visible()
    watching.close()


def test_the_overview_updates_live_with_at_most_one_request_a_second(
    put: Callable[[str, str], int], page: Page, site: Site
) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "/api/v1/overview" in request.url else None)
    page.goto("/")
    expect(page.locator("#live")).to_have_attribute("data-state", "on")
    begun = page.evaluate("performance.now()")
    for number in range(6):
        put(f"note-{number}.md", f"# Note {number}\n\nSomething.")
    put("broken.pdf", "%PDF-1.4 nothing")
    expect(tile(page, "ready")).to_have_text("6")
    expect(tile(page, "failed")).to_have_text("1")
    assert len(asked) <= 2 + (page.evaluate("performance.now()") - begun) / 1000
    assert page.evaluate("performance.getEntriesByType('navigation').length") == 1

    line = page.get_by_role("row").filter(has=page.get_by_role("rowheader", name="handbook"))
    expect(line.get_by_role("link", name="handbook, failed: 1")).to_have_attribute(
        "href", "/bases/handbook/documents?status=failed"
    )
    steps = site.api.get("/overview").json()["series"]
    ended = sum(count for step in steps for name, count in step.items() if name != "at")
    expect(page.get_by_role("img", name=re.compile(f"^Finished jobs: {ended} in total"))).to_be_visible()
    page.get_by_text("Show as table").first.click()
    newest = page.get_by_role("table", name="Finished jobs").locator("tbody tr").last
    expect(newest.get_by_role("cell").nth(1)).to_have_text(str(steps[-1]["success"]))

    site.api.post("/jobs:pause", json={"base": "handbook"}).raise_for_status()
    expect(page.get_by_text("These bases start no new jobs until you resume them: handbook.")).to_be_visible()
    page.get_by_role("button", name="Resume handbook").click()
    expect(page.get_by_text("These bases start no new jobs until you resume them: handbook.")).to_be_hidden()


def test_the_overview_counts_refused_duplicates(put: Callable[[str, str], int], page: Page, site: Site) -> None:
    put("rope.md", "# Rope")
    page.goto("/")
    before = int(page.locator('[data-number="duplicates"]').inner_text())
    assert site.api.post("/bases/handbook/documents", params={"name": "rope.md"}, content=b"# Rope").status_code == 409
    page.reload()
    expect(page.locator('[data-number="duplicates"]')).to_have_text(str(before + 1))


def test_the_overview_works_without_scripts(browser: Browser, site: Site) -> None:
    context = browser.new_context(base_url=site.url, java_script_enabled=False)
    page = context.new_page()
    page.goto("/")
    expect(page.get_by_text("holdfast base create handbook")).to_be_visible()
    expect(page.get_by_text("This needs JavaScript")).to_be_visible()
    expect(page.get_by_role("button", name="Add sample documents")).to_be_hidden()
    site.api.post("/bases", json={"name": "plain"}).raise_for_status()
    site.put("plain", "rope.md", "# Rope\n\nThree strands.")
    page.goto("/")
    expect(tile(page, "ready")).to_have_text("1")
    expect(page.get_by_role("table", name="Finished jobs")).to_be_visible()
    site.api.delete("/bases/plain")
    context.close()


def test_charts_are_readable_at_every_width(put: Callable[[str, str], int], page: Page) -> None:
    put("rope.md", "# Rope")
    page.goto("/")
    for width in (1920, 1280, 360, 320):
        page.set_viewport_size({"width": width, "height": 800})
        page.wait_for_function(
            """() => {
                const drawn = document.querySelector("[data-chart=throughput] svg");
                const label = [...(drawn?.querySelectorAll("text") ?? [])].find((one) => one.textContent.includes("0"));
                const height = label?.getBoundingClientRect().height;
                const fits = drawn?.clientWidth && drawn.viewBox.baseVal.width === drawn.clientWidth;
                return fits && 10 <= height && height <= 20;
            }"""
        )


@pytest.fixture(scope="module")
def paid() -> Iterator[PaidProvider]:
    with PaidProvider() as provider:
        yield provider


@pytest.fixture
def other(tmp_path_factory: pytest.TempPathFactory, paid: PaidProvider) -> Iterator[Site]:
    """A server for one test, which may require keys, with a provider that can fail."""
    names = {"URL": paid.url, "MODEL": paid.embedding_model, "KEY": paid.key}
    found = Site(
        tmp_path_factory.mktemp("other") / "home", {f"HOLDFAST_EMBEDDING_{name}": one for name, one in names.items()}
    )
    yield found
    found.close()


def test_a_failed_base_shows_its_reason_and_can_be_repaired(browser: Browser, other: Site, paid: PaidProvider) -> None:
    other.api.post("/bases", json={"name": "handbook"}).raise_for_status()
    page = browser.new_page(base_url=other.url)
    page.goto("/")
    expect(page.locator("#live")).to_have_attribute("data-state", "on")
    paid.always(NO_MODEL)
    other.put("handbook", "rope.md", unpaid())
    banner = page.get_by_role("alert").filter(has_text="handbook")
    expect(banner).to_contain_text("This base has failed. Nothing is indexed until you repair it.")
    paid.always(None)
    banner.get_by_role("button", name="Repair").click()
    expect(page.get_by_role("alert")).to_have_count(0)
    page.close()
    other.api.delete("/bases/handbook")


@pytest.mark.parametrize(("place", "script"), [("/", "overview"), ("/bases/handbook/documents", "documents")])
def test_buttons_that_need_scripts_are_shown_only_after_the_scripts_ran(
    browser: Browser, other: Site, paid: PaidProvider, place: str, script: str
) -> None:
    """Before that, a click on a button rendered by the server would do nothing."""
    other.api.post("/bases", json={"name": "handbook"}).raise_for_status()
    paid.always(NO_MODEL)
    other.put("handbook", "rope.md", unpaid())
    paid.always(None)
    page = browser.new_page(base_url=other.url)
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route(f"**/pages/{script}.js", hold)
    with page.expect_request(f"**/pages/{script}.js"):
        page.goto(place, wait_until="commit")
    repair = page.get_by_role("button", name="Repair", exact=True, include_hidden=True)
    expect(page.get_by_role("alert")).to_contain_text("until you repair it")
    expect(repair).to_be_attached()
    expect(repair).to_be_hidden()
    held[0].continue_()
    repair.click()
    expect(page.get_by_role("alert")).to_have_count(0)
    page.close()


def test_a_read_only_key_sees_why_it_cannot_create_a_base(browser: Browser, other: Site) -> None:
    secret = other.api.post("/keys", json={"name": "looks", "scope": "read"}).json()["secret"]
    context = browser.new_context(base_url=other.url, extra_http_headers={"X-API-Key": secret})
    page = context.new_page()
    page.goto("/")
    expect(page.get_by_text("Your key cannot create a base.")).to_be_visible()
    expect(page.get_by_text(re.compile("Its scope is read, but creating a base needs the scope admin"))).to_be_visible()
    expect(page.get_by_role("button", name="Add sample documents")).to_have_count(0)
    expect(page.get_by_role("button", name="Create base")).to_have_count(0)
    context.close()


@pytest.mark.parametrize(("width", "scheme"), [(360, "dark"), (1280, "light")])
def test_the_first_run_is_accessible_and_fits(browser: Browser, site: Site, width: int, scheme: str) -> None:
    context = browser.new_context(
        base_url=site.url,
        viewport={"width": width, "height": 800},
        color_scheme="dark" if scheme == "dark" else "light",
        bypass_csp=True,  # the accessibility checker injects a script into the page
    )
    page = context.new_page()
    page.goto("/")
    expect(page.get_by_role("heading", name="Welcome to Holdfast")).to_be_visible()
    assert Axe().run(page).response["violations"] == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    context.close()
