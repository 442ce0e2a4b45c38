"""The table of documents in a real browser."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.web.interactions import row, upload

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from playwright.sync_api import Browser, Page

    from tests.web.conftest import Site

PLACE = "/bases/handbook/documents"
ENGLISH = re.compile(r"[A-Za-z]{2,} [a-z]{2,}")  # two English words in a row


@pytest.mark.usefixtures("base")
def test_an_upload_becomes_ready_live_and_a_duplicate_is_explained(page: Page) -> None:
    page.goto(PLACE)
    expect(page.get_by_text("No documents yet")).to_be_visible()
    upload(page, "tides.md", "# Tides\n\nThe moon pulls the sea.")
    expect(row(page, "tides.md").get_by_text("ready", exact=True)).to_be_visible()
    expect(row(page, "tides.md").get_by_text("32B", exact=True)).to_be_visible()
    expect(page.get_by_text("1–1 of 1")).to_be_visible()

    upload(page, "tides.md", "# Tides\n\nThe moon pulls the sea.")
    explained = page.get_by_role("region", name="Uploads").get_by_text(re.compile("was not added"))
    expect(explained).to_be_visible()
    expect(explained.get_by_role("link", name="Show document")).to_have_attribute("href", re.compile(r"/\d+$"))


def test_changes_made_elsewhere_appear_without_a_reload(page: Page, site: Site, put: Callable[[str, str], int]) -> None:
    page.goto(PLACE)
    page.get_by_label("Find by name").first.click()
    first = put("anchor.md", "# Anchor\n\nIt holds.")
    expect(row(page, "anchor.md").get_by_text("ready", exact=True)).to_be_visible()
    put("buoy.md", "# Buoy\n\nIt floats.")
    expect(page.locator("tbody tr").first).to_contain_text("buoy.md")  # newest first, in the order of the server
    site.api.delete(f"/bases/handbook/documents/{first}")
    expect(row(page, "anchor.md")).to_have_count(0)
    assert page.evaluate("performance.getEntriesByType('navigation').length") == 1


def test_a_double_click_starts_one_job(page: Page, site: Site, put: Callable[[str, str], int]) -> None:
    document = put("rope.md", "# Rope\n\nThree strands.")
    before = site.api.get("/jobs", params={"base": "handbook"}).json()["total"]
    page.goto(PLACE)
    row(page, "rope.md").get_by_role("button", name=re.compile("^Reindex")).dblclick()
    expect(page.locator(".toast").first).to_be_visible()
    site.api.get(f"/bases/handbook/documents/{document}", params={"wait": 30})
    assert site.api.get("/jobs", params={"base": "handbook"}).json()["total"] == before + 1


def test_a_disabled_button_explains_why(page: Page, put: Callable[[str, str], int]) -> None:
    put("rope.md", "# Rope\n\nThree strands.")
    page.goto(PLACE)
    cancel = row(page, "rope.md").get_by_role("button", name=re.compile("^Cancel"))
    expect(cancel).to_have_attribute("aria-disabled", "true")
    expect(cancel).to_have_attribute("title", "Cancel: No active job to cancel.")


def test_a_bulk_delete_includes_matching_documents_on_other_pages(page: Page, site: Site, base: str) -> None:
    for number in range(30):
        site.api.post(
            f"/bases/{base}/documents", params={"name": f"n{number:02}.md", "index": False}, content=f"Number {number}"
        )
    site.put(base, "kept.md", "Kept.")
    page.goto(f"{PLACE}?size=25&text=n")
    page.get_by_label("Select all on this page").check()
    page.get_by_role("button", name="Select all 30 matches").click()
    page.locator("#picked").get_by_role("button", name="Delete").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Delete the selected documents (30)?")
    dialog.get_by_role("button", name="Delete").click()
    expect(page.get_by_text("30 of 30 accepted")).to_be_visible()
    expect(page.get_by_text("No matching documents")).to_be_visible()
    left = site.api.get(f"/bases/{base}/documents").json()
    assert [one["name"] for one in left["items"]] == ["kept.md"]


def test_a_filter_without_matches_offers_all_documents(page: Page, put: Callable[[str, str], int]) -> None:
    put("rope.md", "# Rope")
    page.goto(PLACE)
    expect(page.locator("#live")).to_have_text("Live")
    page.get_by_role("searchbox").fill("anchor")
    expect(page.get_by_text("No matching documents")).to_be_visible()
    expect(page.get_by_text("No documents yet")).to_be_hidden()
    page.get_by_role("link", name="Show all documents").click()
    expect(row(page, "rope.md")).to_be_visible()


def test_a_document_being_deleted_is_listed_under_its_own_filter_until_it_is_removed(
    page: Page, site: Site, put: Callable[[str, str], int]
) -> None:
    document = put("rope.md", "# Rope\n\nThree strands.")
    put("sail.md", "# Sail\n\nCanvas.")
    digest = site.api.get(f"/bases/handbook/documents/{document}").json()["sha256"]
    (file,) = site.home.rglob(f"{digest}-*")
    file.unlink()
    file.mkdir()  # a folder cannot be unlinked like a file
    page.goto(PLACE)
    row(page, "rope.md").get_by_role("button", name=re.compile("^Delete")).click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(row(page, "rope.md")).to_have_count(0)
    expect(row(page, "sail.md")).to_be_visible()

    page.get_by_role("navigation", name="Filter by status").get_by_role("link", name="deleting").click()
    rope = page.get_by_role("row").filter(has_text="rope.md")
    expect(rope.get_by_text("deleting", exact=True)).to_be_visible()
    expect(rope.get_by_role("link")).to_have_count(0)  # its page no longer exists
    expect(rope).to_contain_text("Is a directory")
    expect(row(page, "sail.md")).to_have_count(0)
    delete = rope.get_by_role("button", name=re.compile("^Delete"))
    expect(delete).to_have_attribute("title", "Delete: Deletion is in progress.")
    again = rope.get_by_role("button", name="Retry: rope.md", exact=True)
    expect(again).not_to_have_attribute("aria-disabled", "true")
    # As if the clean-up had failed with another error.
    with closing(sqlite3.connect(site.home / "holdfast.db")) as database, database:
        database.execute("UPDATE slots SET error_params = ? WHERE state = 'deleting'", ['{"message": "It is away."}'])
    expect(rope).to_contain_text("It is away.")

    file.rmdir()
    again.click()
    expect(page.get_by_text("The clean-up is being tried again.")).to_be_visible()
    expect(rope).to_have_count(0)
    expect(page.get_by_text("No matching documents")).to_be_visible()
    assert site.api.get("/bases/handbook/documents", params={"deleting": True}).json()["total"] == 0


def test_the_page_shows_the_current_state_after_the_server_was_killed(
    page: Page, site: Site, put: Callable[[str, str], int]
) -> None:
    gone = put("gone.md", "# Gone\n\nSoon.")
    put("stays.md", "# Stays\n\nLong.")
    page.goto(PLACE)
    expect(page.locator("#live")).to_have_text("Live")
    page.evaluate("window.mark = 'the same page'")
    page.get_by_role("searchbox").fill(".md")
    site.kill()
    expect(page.locator("#live")).to_have_text("Reconnecting…")
    site.start()
    site.api.delete(f"/bases/handbook/documents/{gone}")
    site.put("handbook", "new.md", "# New\n\nAfter the restart.")
    expect(row(page, "new.md").get_by_text("ready", exact=True)).to_be_visible()
    expect(row(page, "gone.md")).to_have_count(0)
    expect(page.locator("#live")).to_have_text("Live")
    expect(page.get_by_role("searchbox")).to_have_value(".md")
    assert page.evaluate("window.mark") == "the same page"
    shown = page.locator("tbody a[data-field=name]").all_inner_texts()
    stored = site.api.get("/bases/handbook/documents").json()["items"]
    assert shown == [one["name"] for one in stored]


def test_hostile_names_are_rendered_as_text(page: Page, put: Callable[[str, str], int]) -> None:
    names = ["<img src=x onerror=alert(1)>.md", "javascript:alert(1).md", "</script><script>alert(1)</script>.md"]
    for name in names:
        put(name, f"# {name}\n\n<svg onload=alert(1)>")
    page.on("dialog", lambda dialog: pytest.fail(f"a script ran: {dialog.message}"))
    page.goto(PLACE)
    for name in names:
        expect(page.get_by_role("link", name=name, exact=True)).to_be_visible()
    put("last<b>.md", "Live, not painted.")
    expect(page.get_by_role("link", name="last<b>.md", exact=True)).to_be_visible()
    assert page.locator("main img, main svg[onload], main b").count() == 0


def test_the_table_of_documents_works_without_scripts(
    browser: Browser, site: Site, put: Callable[[str, str], int]
) -> None:
    put("rope.md", "# Rope\n\nThree strands.")
    context = browser.new_context(base_url=site.url, java_script_enabled=False, locale="zh-CN")
    page = context.new_page()
    page.goto(f"{PLACE}?text=rope")
    expect(page.get_by_role("link", name="rope.md")).to_be_visible()
    expect(page.locator("tbody")).to_contain_text("就绪")
    context.close()


def test_an_uploaded_folder_keeps_its_files(page: Page, site: Site, base: str, tmp_path: Path) -> None:
    (tmp_path / "ship" / "hull").mkdir(parents=True)
    (tmp_path / "ship" / "hull" / "keel.md").write_text("# Keel\n\nOak.")
    page.goto(PLACE)
    page.locator("input[webkitdirectory]").set_input_files(tmp_path / "ship")
    expect(page.get_by_role("link", name=re.compile("keel.md"))).to_be_visible()
    names = [one["name"] for one in site.api.get(f"/bases/{base}/documents").json()["items"]]
    assert any("keel.md" in name for name in names)


def test_rows_move_into_the_order_of_the_server_and_keep_focus_and_selection(
    page: Page, put: Callable[[str, str], int]
) -> None:
    for name in ("anchor.md", "buoy.md"):
        put(name, f"# {name}")
    page.goto(PLACE)
    row(page, "anchor.md").get_by_role("checkbox").check()
    button = row(page, "anchor.md").get_by_role("button", name=re.compile("^Delete"))
    button.focus()
    put("chart.md", "# Chart")
    expect(page.locator("tbody tr").first).to_contain_text("chart.md")
    expect(button).to_be_focused()
    expect(row(page, "anchor.md")).to_have_attribute("aria-selected", "true")
    expect(page.get_by_text("1 selected")).to_be_visible()


def test_a_hidden_tab_pauses_its_updates_and_catches_up_later(page: Page, put: Callable[[str, str], int]) -> None:
    page.goto(PLACE)
    expect(page.locator("#live")).to_have_text("Live")
    turn = """hidden => {
        Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
        document.dispatchEvent(new Event("visibilitychange"));
    }"""
    page.evaluate(turn, arg=True)
    expect(page.locator("#live")).to_have_text("Paused")
    put("unseen.md", "# Unseen")
    assert row(page, "unseen.md").count() == 0
    page.evaluate(turn, arg=False)
    expect(page.locator("#live")).to_have_text("Live")
    expect(row(page, "unseen.md").get_by_text("ready", exact=True)).to_be_visible()


def test_notes_and_server_folders_can_be_added_and_a_folder_opens(page: Page, base: str, tmp_path: Path) -> None:
    (tmp_path / "ship").mkdir()
    (tmp_path / "ship" / "keel.md").write_text("# Keel\n\nOak.")
    page.goto(f"/bases/{base}/documents?parent=0")
    page.get_by_text("Add", exact=True).click()
    page.get_by_role("button", name="Add note").click()
    page.get_by_role("dialog").get_by_label("Name").fill("Log")
    page.get_by_role("textbox", name="Text").fill("Calm sea.")
    page.get_by_role("dialog").get_by_role("button", name="Add").click()
    expect(row(page, "Log").get_by_text("ready", exact=True)).to_be_visible()

    page.get_by_text("Add", exact=True).click()
    page.get_by_role("button", name="Add server folder").click()
    page.get_by_label("Path of the folder on the server").fill(str(tmp_path / "ship"))
    page.get_by_role("dialog").get_by_role("button", name="Add").click()
    folder = page.get_by_role("link", name="ship")
    expect(folder).to_be_visible()
    expect(page.get_by_role("link", name="keel.md")).to_have_count(0)  # it is inside the folder
    folder.click()
    expect(row(page, "keel.md").get_by_text("ready", exact=True)).to_be_visible()
    page.get_by_label("Parent folder").click()
    expect(row(page, "Log")).to_be_visible()


@pytest.mark.parametrize("look", [{"locale": "zh-CN"}])
def test_every_explanation_appears_in_chinese_for_a_chinese_browser(
    page: Page, site: Site, put: Callable[[str, str], int]
) -> None:
    first = put("first.md", "# First\n\nThe same words.")
    empty = put("empty.md", " \n")
    page.goto(PLACE)
    expect(row(page, "empty.md").locator(".why")).to_contain_text("没有文本")

    upload(page, "second.md", "# First\n\nThe same words.")
    refused = page.locator("#uploads [data-field=result]")
    expect(refused).to_contain_text("内容相同")
    assert not ENGLISH.search(refused.inner_text().replace("second.md", ""))

    site.api.post("/jobs:pause", json={})
    site.api.post(f"/bases/handbook/documents/{first}:reindex")
    page.goto(f"{PLACE}/{first}")
    expect(page.locator("#waits")).to_contain_text("队列自")
    site.api.post("/jobs:resume", json={})
    expect(page.locator("#standing")).to_contain_text("就绪")
    page.goto(f"{PLACE}/{empty}")
    why = page.locator("#why")
    expect(why).to_contain_text("没有文本")
    assert not ENGLISH.search(why.inner_text())
    with page.expect_response("**/*:reindex"):
        page.locator('[data-action="reindex"]').click()
    assert not ENGLISH.search(page.locator("#toasts").inner_text())

    page.goto("/settings")
    page.get_by_role("button", name="新建知识库").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("textbox").first.fill("a/b")
    dialog.locator("button[type=submit]").click()
    expect(dialog.get_by_role("alert")).to_contain_text("知识库名称")
    assert not ENGLISH.search(dialog.get_by_role("alert").inner_text())
