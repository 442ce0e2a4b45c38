"""The page of a base with very many documents stays fast."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from playwright.sync_api import expect

from holdfast.catalog.repository import BaseSettings
from holdfast.documents import lists, queries
from holdfast.web.site import install_pages
from tests.support.bulk_rows import fill
from tests.support.harness import Rig
from tests.support.http_site import HttpSite
from tests.support.read_cost import counting_reads

if TYPE_CHECKING:
    from pathlib import Path

    import pytest
    from playwright.sync_api import Browser

    from tests.support.clock import FakeClock

COUNTS = {"few": 100, "many": 10_000}


def test_the_page_of_a_large_base_costs_at_most_twice_as_much_as_that_of_a_small_one(
    database_url: str, tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (lists, queries):
        monkeypatch.setattr(module, "MAX_COUNT", 50)
    rig = Rig(database_url, tmp_path / "blobs", clock, indexes=("fulltext",))
    site = HttpSite(rig, pages=install_pages)
    for name, count in COUNTS.items():
        fill(rig, rig.library.catalog.create_base(name, BaseSettings(indexes=("fulltext",))), count)
    if rig.store.database.engine.dialect.name == "postgresql":
        with rig.store.database.autocommit() as tx:
            tx.run_sql("VACUUM ANALYZE")

    def open_page(name: str) -> None:
        answer = site.http.get(f"{site.address}/bases/{name}/documents")
        assert answer.text.count("<tr data-id=") == 51  # fifty rows and the template

    for name in COUNTS:
        open_page(name)
    with counting_reads(rig.store.database) as cost:
        costs = {name: cost(partial(open_page, name)) for name in COUNTS}
    site.close()
    rig.close()
    assert 0 < costs["many"] <= 2 * costs["few"], costs


def test_pages_after_the_last_number_are_reached_by_next_and_previous(
    sqlite_url: str, tmp_path: Path, clock: FakeClock, browser: Browser
) -> None:
    rig = Rig(sqlite_url, tmp_path / "blobs", clock, indexes=("fulltext",))
    fill(rig, rig.base, 10_500)
    site = HttpSite(rig, pages=install_pages)
    page = browser.new_page()
    page.goto(f"{site.address}/bases/shelf/documents?page=200")
    pager = page.get_by_role("navigation", name="Pagination")

    def turn(to: str, shown: str) -> None:
        pager.get_by_role("link", name=to).click()
        expect(pager.get_by_text(f"{shown} of 10,000+", exact=True)).to_be_visible()
        expect(page.locator("tbody tr")).to_have_count(50)

    expect(pager.get_by_text("9,951–10,000 of 10,000+", exact=True)).to_be_visible()
    expect(pager.get_by_role("link", name="Last page")).to_have_attribute("aria-disabled", "true")
    expect(page.locator("#states data").first).to_have_attribute("data-more", "")
    turn("Next page", "10,001–10,050")
    first = page.locator("tbody tr").first.inner_text()
    turn("Next page", "10,051–10,100")
    turn("Previous page", "10,001–10,050")
    assert page.locator("tbody tr").first.inner_text() == first
    page.reload()
    expect(pager.get_by_text("10,001–10,050 of 10,000+", exact=True)).to_be_visible()
    assert page.locator("tbody tr").first.inner_text() == first
    turn("Previous page", "9,951–10,000")
    page.close()
    site.close()
    rig.close()
