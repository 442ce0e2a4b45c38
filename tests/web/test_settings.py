"""The settings in a real browser, with a provider that can fail."""

from __future__ import annotations

import os
import re
import time
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.support.paid_provider import BAD_KEY, NO_MODEL, PaidProvider, unpaid
from tests.web.conftest import Site

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Locator, Page

PLACE = "/settings?base=handbook"
# Long enough that another chunk size creates other chunks, whose vectors must be paid.
TIDES = "# Tides\n\n" + " ".join(f"The tide number {number} comes and goes again." for number in range(60))


@pytest.fixture(autouse=True)
def healed(paid: PaidProvider) -> Iterator[None]:
    """Reset the provider after each test."""
    yield
    paid.always(None)
    paid.release()


@pytest.fixture(scope="module")
def environment(embedding: dict[str, str]) -> dict[str, str]:
    return embedding


def row(page: Page, name: str) -> Locator:
    return page.get_by_role("row").filter(has_text=name)


def test_a_base_can_be_created_and_a_duplicate_name_is_reported_in_the_form(page: Page, site: Site, base: str) -> None:
    page.goto("/settings")
    page.get_by_role("button", name="Create base").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill(base)
    dialog.get_by_label("graph").check()
    dialog.get_by_role("button", name="Create").click()
    expect(dialog.get_by_role("alert")).to_contain_text("handbook")
    dialog.get_by_label("Name").fill("<i>log<i>book")
    dialog.get_by_role("button", name="Create").click()
    expect(page.get_by_role("heading", name="<i>log<i>book")).to_be_visible()
    assert site.api.get("/bases/<i>log<i>book").json()["settings"]["indexes"] == ["fulltext", "graph", "vector"]
    site.api.delete("/bases/<i>log<i>book")
    expect(page).to_have_url(re.compile("tab=bases"))  # the base was deleted, so the browser leaves its page
    expect(row(page, "handbook")).to_be_visible()


def test_the_list_of_bases_updates_live(page: Page, site: Site, put: Callable[[str, str], int]) -> None:
    page.goto("/settings")
    expect(row(page, "handbook").locator("[data-field=documents]")).to_have_text("0")
    put("tides.md", "# Tides\n\nThe moon pulls the sea.")
    expect(row(page, "handbook").locator("[data-field=documents]")).to_have_text("1")
    site.api.patch("/bases/handbook", json={"name": "manual"})
    expect(row(page, "manual")).to_be_visible()
    site.api.patch("/bases/manual", json={"name": "handbook"})
    expect(row(page, "manual")).to_have_count(0)


def test_saving_shows_the_rollout_and_writes_only_changed_settings(
    page: Page, site: Site, paid: PaidProvider, put: Callable[[str, str], int]
) -> None:
    put("tides.md", TIDES)
    page.goto(PLACE)
    page.get_by_label("Chunk size").fill("5")
    page.get_by_role("button", name="Save").click()
    expect(page.locator("#saved")).to_have_class(re.compile("trouble"))  # the error is shown beside the button

    with page.expect_response(re.compile(r"/bases/handbook/counts$")):  # the page loads the changed settings
        site.api.patch("/bases/handbook", json={"jobs_per_day": 500})  # a concurrent change by another user
    expect(page.get_by_label("Jobs per day")).to_have_value("500")
    expect(page.get_by_label("Chunk size")).to_have_value("5")  # the typed value stays
    paid.stall()
    page.get_by_label("Chunk size").fill("100")
    page.get_by_label("Chunk overlap").fill("10")
    page.get_by_role("checkbox", name="questions").check()
    page.get_by_role("button", name="Save").click()
    expect(page.locator("#saved")).to_have_text("Settings saved.")
    expect(page.locator("#rollout")).to_contain_text("Updated: 0 of 1. The current indexes stay searchable.")
    expect(page.get_by_text("Not available: A language model writes the questions")).to_be_visible()
    paid.release()
    expect(page.locator("#rollout")).to_be_hidden()
    settings = site.api.get("/bases/handbook").json()["settings"]
    assert (settings["chunk_size"], settings["chunk_overlap"], settings["jobs_per_day"]) == (100, 10, 500)
    assert settings["missing_share"] == 0.05
    page.get_by_role("button", name="Save").click()
    expect(page.locator("#saved")).to_have_text("No changes to save.")


def test_a_rollout_can_be_cancelled(page: Page, site: Site, paid: PaidProvider, put: Callable[[str, str], int]) -> None:
    put("tides.md", TIDES)
    page.goto(PLACE)
    paid.stall()
    page.get_by_label("Chunk size").fill("100")
    page.get_by_label("Chunk overlap").fill("10")
    page.get_by_role("button", name="Save").click()
    page.locator("#rollout").get_by_role("button", name="Cancel update").click()
    expect(page.locator("#rollout")).to_be_hidden()
    assert site.api.get("/bases/handbook").json()["rollout_job"] is None
    (job,) = [
        one for one in site.api.get("/jobs", params={"base": "handbook"}).json()["items"] if one["subject"] == "rollout"
    ]
    assert job["outcome"] == "cancelled"
    paid.release()


def test_irreversible_actions_require_typing_the_name(page: Page, site: Site, put: Callable[[str, str], int]) -> None:
    put("tides.md", "# Tides\n\nThe moon pulls the sea.")
    page.goto(PLACE)
    page.get_by_role("button", name="Clear…").click()
    dialog = page.get_by_role("dialog")
    yes = dialog.get_by_role("button", name="Clear")
    expect(dialog).to_contain_text("Delete all documents of handbook (1)?")
    expect(yes).to_have_attribute("aria-disabled", "true")
    dialog.get_by_role("textbox").fill("Handbook")
    dialog.get_by_role("textbox").press("Enter")
    expect(dialog.get_by_role("alert")).to_have_text("Type the name to confirm.")
    assert site.api.get("/bases/handbook/counts").json()["documents"] == 1
    dialog.get_by_role("textbox").fill("handbook")
    yes.click()
    expect(page.locator("#documents")).to_have_text("0")

    page.get_by_role("button", name="Rename…").click()
    dialog.get_by_label("New name").fill("manual")
    dialog.get_by_role("button", name="Rename").click()
    expect(page.get_by_role("heading", name="manual")).to_be_visible()
    page.get_by_role("button", name="Delete…").click()
    dialog.get_by_role("textbox").fill("manual")
    dialog.get_by_role("button", name="Delete").click()
    expect(page.get_by_text("No bases yet")).to_be_visible()
    assert site.api.get("/bases").json() == []


def test_a_failed_base_shows_its_reason_and_is_repaired(
    page: Page, site: Site, paid: PaidProvider, put: Callable[[str, str], int]
) -> None:
    page.goto("/settings")
    paid.always(NO_MODEL)
    put("tides.md", unpaid())
    expect(row(page, "handbook").get_by_text("failed", exact=True)).to_be_visible()
    row(page, "handbook").get_by_role("button", name="Repair handbook").click()
    expect(page.locator(".toast.bad")).to_be_visible()  # the repair fails again
    page.goto(PLACE)
    banner = page.get_by_role("alert").filter(has_text="Nothing is indexed until you repair it")
    expect(banner).to_be_visible()
    paid.always(None)
    banner.get_by_role("button", name="Repair").click()
    expect(banner).to_have_count(0)
    expect(page.locator("#standing")).to_have_text("ready")


def test_a_document_of_a_failed_base_is_shown_without_its_chunks(
    page: Page, site: Site, paid: PaidProvider, put: Callable[[str, str], int]
) -> None:
    paid.always(NO_MODEL)
    document = put("rope.md", unpaid())
    place = f"/bases/handbook/documents/{document}"
    assert site.api.get(f"{place}/chunks").json()["code"] == "base_failed"
    page.goto(place)
    expect(page.get_by_role("alert")).to_contain_text("This base has failed. Nothing is indexed until you repair it.")
    expect(page.get_by_role("heading", name="rope.md", level=1)).to_be_visible()
    expect(page.get_by_role("region", name="Extracted text")).to_contain_text("Text number")
    chunks = page.get_by_role("list", name="Chunks").get_by_role("listitem")
    expect(chunks).to_have_count(0)
    expect(page.locator("#pager [data-field=shown]")).to_be_empty()  # the page shows no count of unlisted chunks
    paid.always(None)
    page.get_by_role("button", name="Repair", exact=True).click()
    expect(page.get_by_role("alert")).to_have_count(0)
    expect(chunks).to_have_count(1)


@pytest.mark.usefixtures("base")
def test_a_connection_test_shows_its_duration_or_the_error(page: Page, paid: PaidProvider) -> None:
    page.goto("/settings?tab=providers")
    panel = page.get_by_role("region", name="handbook")
    expect(panel).to_contain_text("127.0.0.1 · embedder")
    test = panel.get_by_role("button", name="Test the connections of handbook")
    test.click()
    expect(panel.get_by_role("status")).to_contain_text(
        re.compile(r"Embedding model · 127\.0\.0\.1 · embedder.*responded in [\d,.]+ ms")
    )
    expect(panel.get_by_role("status")).to_contain_text("Features that need a language model are not available.")
    paid.always(BAD_KEY)
    test.click()
    expect(panel.locator("[data-ok=false]")).to_contain_text(re.compile("failed: .*key", re.IGNORECASE))


def test_an_archive_can_be_exported_and_imported(
    page: Page, site: Site, put: Callable[[str, str], int], tmp_path: Path
) -> None:
    put("tides.md", "# Tides\n\nThe moon pulls the sea.")
    page.goto(PLACE)
    with page.expect_download() as download:
        page.get_by_role("link", name="Export", exact=True).click()
    archive = tmp_path / "handbook.zip"
    download.value.save_as(archive)
    page.goto("/settings")
    page.get_by_role("button", name="Import archive").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Archive (").set_input_files(archive)
    dialog.get_by_role("button", name="Import").click()
    expect(dialog.get_by_role("alert")).to_contain_text("handbook")  # the name is taken; the form keeps its values
    dialog.get_by_label("Base name").fill("copy")
    dialog.get_by_role("button", name="Import").click()
    expect(page.get_by_text("Documents imported into copy: 1")).to_be_visible()
    expect(row(page, "copy").locator("[data-field=documents]")).to_have_text("1")
    site.api.delete("/bases/copy")


def test_a_webhook_can_be_created_disabled_and_removed_and_its_secret_is_shown_once(page: Page, site: Site) -> None:
    page.goto("/settings?tab=webhooks")
    expect(page.get_by_text("No webhooks yet")).to_be_visible()
    page.get_by_role("button", name="Create webhook").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("URL").fill("https://hooks.example.org/in")
    dialog.get_by_label("cards.*").check()
    dialog.get_by_label("Other event types").fill("job.nonsense")
    dialog.get_by_role("button", name="Create webhook").click()
    expect(dialog.get_by_role("alert")).to_contain_text("job.nonsense")
    dialog.get_by_label("Other event types").fill("queue.paused")
    dialog.get_by_role("button", name="Create webhook").click()
    first = dialog.get_by_label("Secret").input_value()
    assert first.startswith("whsec_")
    page.mouse.click(5, 5)  # a click outside does not close the dialog
    expect(dialog.get_by_label("Secret")).to_be_visible()
    dialog.get_by_role("button", name="I have saved it").click()

    hook = row(page, "https://hooks.example.org/in")
    expect(hook).to_contain_text("cards.*, queue.paused")
    expect(hook.get_by_role("link", name="Show deliveries")).to_have_attribute(
        "href", re.compile(r"view=deliveries&webhook=\d+")
    )
    hook.get_by_role("button", name=re.compile("^Disable")).click()
    expect(hook).to_contain_text("disabled by a user")
    expect(hook.get_by_role("button", name=re.compile("^Enable"))).to_be_focused()
    hook.get_by_role("button", name=re.compile("^Enable")).click()
    expect(hook).to_contain_text("healthy")
    hook.get_by_role("button", name=re.compile("^Replace secret")).click()
    dialog.get_by_role("button", name="Replace secret").click()
    expect(dialog.get_by_label("Secret")).not_to_have_value(first)
    dialog.get_by_role("button", name="I have saved it").click()
    hook.get_by_role("button", name=re.compile("^Delete")).click()
    dialog.get_by_role("button", name="Delete").click()
    expect(hook).to_have_count(0)
    assert site.api.get("/webhooks").json() == []


def test_the_doctor_shows_and_repairs_its_findings(page: Page, site: Site) -> None:
    left = site.home / "files" / "a" / f"{'a' * 64}-{'0' * 16}"
    left.parent.mkdir(parents=True, exist_ok=True)
    left.write_text("Nobody names this.")
    os.utime(left, (time.time() - 200_000,) * 2)
    page.goto("/settings?tab=server")
    expect(row(page, "HOLDFAST_EMBEDDING_MODEL")).to_contain_text("embedder")
    expect(page.get_by_text("HOLDFAST_EMBEDDING_KEY")).to_have_count(0)
    page.get_by_role("button", name="Check now").click()
    expect(page.locator("#findings")).to_contain_text("1 files belong to no document")
    page.get_by_role("button", name="Repair").click()
    expect(page.locator("#findings")).to_contain_text("1 of 1 repaired")
    assert not left.exists()
    page.get_by_role("button", name="Check now").click()
    expect(page.locator("#verdict")).to_have_text("No problems found.")


def test_the_first_key_signs_in_this_browser_and_its_secret_is_shown_once(browser: Browser, tmp_path: Path) -> None:
    site = Site(tmp_path / "home")
    context = browser.new_context(base_url=site.url, locale="en-GB")
    page = context.new_page()
    page.goto("/settings?tab=keys")
    page.get_by_role("button", name="Create key").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("every browser, command and program needs a key")
    expect(dialog.get_by_label("Scope").locator("option")).to_have_text(["admin: everything"])
    dialog.get_by_label("Name").fill("first")
    dialog.get_by_role("button", name="Create key").click()
    secret = dialog.get_by_label("Secret").input_value()
    page.keyboard.press("Escape")
    expect(dialog).to_contain_text("It is shown only once.")
    assert site.api.get("/bases").status_code == 401
    assert site.api.get("/bases", headers={"Authorization": f"Bearer {secret}"}).status_code == 200
    dialog.get_by_role("button", name="I have saved it").click()
    expect(row(page, "first")).to_contain_text("this browser")
    expect(row(page, "first")).to_contain_text(f"{secret[:11]}…")
    assert secret not in page.content()
    page.reload()
    expect(row(page, "first")).to_be_visible()
    context.close()
    site.close()


def test_the_settings_are_readable_without_scripts_and_in_chinese(browser: Browser, site: Site, base: str) -> None:
    context = browser.new_context(base_url=site.url, java_script_enabled=False, locale="zh-CN")
    page = context.new_page()
    for tab, text in {
        "bases": base,
        "providers": "127.0.0.1 · embedder",
        "keys": "还没有密钥",
        "server": "工作进程数",
    }.items():
        page.goto(f"/settings?tab={tab}")
        expect(page.locator("main")).to_contain_text(text)
    page.goto(PLACE)
    expect(page.get_by_label("分块大小")).to_have_value("512")
    # Without scripts nothing could be saved, so the field is disabled.
    expect(page.get_by_label("分块大小")).to_be_disabled()
    expect(page.get_by_role("link", name="导出", exact=True)).to_be_visible()
    context.close()


def test_values_in_the_description_of_a_setting_are_marked_up(page: Page) -> None:
    page.goto("/settings?tab=server")
    expect(page.locator("td code").filter(has_text=re.compile("^auto$"))).to_be_visible()
    assert "`" not in page.locator("main").inner_text()
