"""The page of the queue shows jobs that have been running for long, in a real browser."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from tests.support.question_harness import crustaceans, sections

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Page

    from tests.support.paid_provider import PaidProvider
    from tests.web.conftest import Site


@pytest.fixture(scope="module")
def reply() -> Callable[[dict[str, Any]], str]:
    return crustaceans


@pytest.fixture(scope="module")
def environment(speaking: dict[str, str]) -> dict[str, str]:
    return speaking | {"HOLDFAST_LONG_RUNNING": "1s"}


def test_the_queue_shows_jobs_that_run_for_long_and_opens_their_details(
    page: Page, site: Site, paid: PaidProvider
) -> None:
    wanted = {"name": "deep", "indexes": ["questions"], "chunk_size": 48, "chunk_overlap": 0}
    site.api.post("/bases", json=wanted).raise_for_status()
    paid.stall()
    site.api.post("/bases/deep/documents", params={"name": "krill.md"}, content=sections(2).encode())
    page.goto("/queue?base=deep")
    long = page.get_by_role("region", name="Running for longer than 1 sec")
    expect(long.get_by_role("link", name="krill.md")).to_be_visible()
    section = page.request.get("/queue?base=deep").text().split('id="long"')[1].split("</section>")[0]
    assert "krill.md" in section  # the server renders it, too
    long.get_by_role("link", name="krill.md").click()
    expect(page.get_by_role("dialog", name="New content: krill.md")).to_be_visible()
    paid.release()
    expect(page.locator("#long")).to_be_hidden()
