"""Bulk jobs in a real browser. The server has no workers, so a job waits until a test starts one."""

from __future__ import annotations

import re
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from tests.support.processes import Running, until
from tests.web.conftest import Site

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Locator, Page

MANY = 260  # more than a request processes at once
PLACE = "/bases/handbook/documents"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    found = Site(tmp_path_factory.mktemp("site") / "home", {}, "--no-workers")
    yield found
    found.close()


@pytest.fixture
def full(site: Site, base: str) -> str:
    """A base with many documents."""
    files = [("files", (f"{number:03}.md", f"Number {number}")) for number in range(MANY)]
    for first in range(0, MANY, 100):
        put = site.api.post(f"/bases/{base}/documents", params={"index": False}, files=files[first : first + 100])
        assert put.status_code == 202, put.text
    return base


@contextmanager
def worker(site: Site) -> Iterator[None]:
    log = site.home.parent / f"worker-{time.monotonic_ns()}.log"
    with Running(["-m", "holdfast.cli", "worker", "--workers", "1"], log, {"home": site.home}) as process:
        until(lambda: "Press Ctrl-C" in log.read_text(), "the worker does not start")
        yield
        assert process.finish() == 0


def delete_everything(page: Page) -> Locator:
    """Delete all documents of the list, and return the bar of the job."""
    page.goto(f"{PLACE}?kind=file")
    page.get_by_label("Select all on this page").check()
    page.get_by_role("button", name=f"Select all {MANY} matches").click()
    page.locator("#picked").get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    return page.locator("#bulk-job")


@pytest.mark.usefixtures("full")
def test_the_bar_of_a_bulk_job_shows_its_progress_and_its_end(page: Page, site: Site) -> None:
    bar = delete_everything(page)
    expect(bar.get_by_role("status")).to_have_text(f"Delete: 0 of {MANY}")
    expect(bar.get_by_role("progressbar", name="Delete")).to_have_attribute("value", "0")
    expect(bar.get_by_role("link", name="Show job")).to_have_attribute("href", re.compile(r"^/queue#job-\w+$"))
    assert [one["id"] for one in Axe().run(page).response["violations"]] == []
    assert site.api.get("/bases/handbook/documents").json()["total"] == MANY
    with worker(site):
        expect(page.get_by_text(f"{MANY} of {MANY} accepted")).to_be_visible()
        expect(bar).to_be_hidden()
        expect(page.get_by_text("No matching documents")).to_be_visible()


@pytest.mark.usefixtures("full")
def test_a_bulk_job_can_be_cancelled_in_its_bar(page: Page, site: Site) -> None:
    bar = delete_everything(page)
    bar.get_by_role("button", name="Cancel").click()
    expect(page.get_by_text(f"Cancelled. 0 of {MANY} were processed.")).to_be_visible()
    expect(bar).to_be_hidden()
    assert site.api.get("/bases/handbook/documents").json()["total"] == MANY


def test_the_queue_and_the_settings_name_the_jobs_that_they_start(page: Page, site: Site, full: str) -> None:
    site.api.post(f"/bases/{full}/documents:index", json={"filter": {}}).raise_for_status()
    with worker(site):
        site.rested(f"/jobs/{site.api.get('/jobs', params={'base': full}).json()['items'][0]['id']}")
    page.goto(f"/queue?base={full}")
    page.get_by_role("button", name="Cancel all jobs").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel all jobs").click()
    expect(page.get_by_text("The queue shows its progress.")).to_be_visible()
    row = page.get_by_role("row").filter(has_text="Bulk operation").filter(has_text="Cancel").first
    expect(row).to_contain_text("queued")

    page.goto(f"/settings?base={full}")
    page.get_by_role("button", name="Clear…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("textbox").fill(full)
    dialog.get_by_role("button").last.click()
    link = page.locator("#toasts").get_by_role("link", name="Show job")
    expect(link).to_have_attribute("href", re.compile(r"^/queue#job-\w+$"))
    with worker(site):
        link.click()
        expect(page.get_by_role("dialog")).to_contain_text("Bulk operation")
    expect(page.get_by_role("dialog")).to_be_visible()
