"""Signing in to a server that requires a key, in a real browser."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from holdfast.web.pages.signin import restrict_to_site
from tests.web.conftest import Site

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, FilePayload, Page


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("site") / "home"


@pytest.fixture(scope="module")
def secret(home: Path) -> str:
    """A key of an administrator, created with the command that the page shows."""
    command = [
        sys.executable,
        "-m",
        "holdfast.cli",
        "--home",
        str(home),
        "keys",
        "create",
        "captain",
        "--scope",
        "admin",
    ]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture(scope="module")
def site(home: Path, secret: str) -> Iterator[Site]:
    """A server that requires a key; the HTTP client of the tests sends it."""
    found = Site(home, {"HOLDFAST_KEYS": "on"})
    found.api.headers["Authorization"] = f"Bearer {secret}"
    found.api.post("/bases", json={"name": "logbook"}).raise_for_status()
    yield found
    found.close()


def show_key(page: Page, secret: str) -> None:
    page.get_by_label("Key").fill(secret)
    page.get_by_label("Key").press("Enter")


def sign_in(page: Page, secret: str) -> None:
    show_key(page, secret)
    expect(page).not_to_have_url(re.compile("/signin"))


@pytest.mark.smoke
def test_a_key_opens_the_requested_page_and_signing_out_removes_access(page: Page, site: Site, secret: str) -> None:
    page.goto("/bases/logbook/documents?text=tide")
    expect(page).to_have_url(re.compile(r"/signin\?next=%2Fbases%2Flogbook"))
    expect(page.get_by_text("holdfast keys create NAME --scope admin")).to_be_visible()
    field = page.get_by_label("Key")
    expect(field).to_be_focused()
    expect(field).to_have_attribute("type", "password")
    show_key(page, "hf_" + "x" * 43)
    expect(page.get_by_role("alert")).to_have_text(
        "This key is unknown, revoked or expired. Check it, or ask for a new one."
    )
    expect(field).to_be_focused()

    sign_in(page, secret)
    expect(page).to_have_url(f"{site.url}/bases/logbook/documents?text=tide")
    expect(page.locator("#live")).to_have_text("Live")
    assert secret not in page.evaluate("document.cookie")
    kept = next(one for one in page.context.cookies() if one["name"] == "holdfast_key")
    assert (kept["httpOnly"], kept["sameSite"]) == (True, "Strict")

    tide: FilePayload = {"name": "tide.md", "mimeType": "text/markdown", "buffer": b"# Tide\n\nIt rises."}
    page.locator("input[type=file][multiple]").set_input_files([tide])
    row = page.get_by_role("row").filter(has=page.get_by_role("link", name="tide.md", exact=True))
    expect(row.get_by_text("ready", exact=True)).to_be_visible()
    row.get_by_role("button", name=re.compile("^Reindex")).click()
    expect(page.locator(".toast").first).to_be_visible()

    page.locator("summary[aria-label*='Language']").click()
    page.get_by_role("button", name="Sign out").click()
    expect(page).to_have_url(re.compile("/signin"))
    assert "holdfast_key" not in {one["name"] for one in page.context.cookies()}
    page.goto("/settings?tab=keys")
    expect(page).to_have_url(re.compile(r"/signin\?next=%2Fsettings%3Ftab%3Dkeys"))


@pytest.mark.parametrize("place", ["//evil.example", "/\\evil.example", "https://evil.example", "/\t/evil.example"])
def test_sign_in_redirects_only_to_pages_of_this_site(page: Page, site: Site, secret: str, place: str) -> None:
    context = page.context
    context.add_cookies([{"name": "holdfast_key", "value": secret, "url": site.url}])
    answer = context.request.get("/signin", params={"next": place}, max_redirects=0)
    assert (answer.status, answer.headers["location"]) == (303, "/")
    context.clear_cookies()
    assert f'"next": "{restrict_to_site(place)}"' in context.request.get("/signin", params={"next": place}).text()


def test_sign_in_ignores_a_redirect_to_another_host(page: Page, site: Site, secret: str) -> None:
    page.goto("/signin?next=//evil.example/settings")
    sign_in(page, secret)
    expect(page).to_have_url(f"{site.url}/")


def test_the_redirect_target_is_restricted_to_paths_of_this_site() -> None:
    for place in ("/", "/settings?tab=keys", "/bases/a%2Fb/documents?text=//x"):
        assert restrict_to_site(place) == place
    for place in ("", "settings", "//x", "/\\x", "/a\\b", "/\n/x", "/ /x", "javascript:alert(1)", "/signin?next=/"):
        assert restrict_to_site(place) == "/"


def test_a_revoked_key_is_sent_to_sign_in(page: Page, site: Site, secret: str) -> None:
    page.goto("/settings?tab=keys")
    sign_in(page, secret)
    page.get_by_role("button", name="Create key").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name", exact=True).fill("mate")
    dialog.get_by_label("Scope").select_option("admin")
    dialog.get_by_role("button", name="Create key").click()
    mate = dialog.get_by_label("Secret").input_value()
    dialog.get_by_role("button", name="I have saved it").click()
    row = page.get_by_role("row").filter(has_text="mate")
    expect(row.get_by_text("valid")).to_be_visible()

    other = page.context.browser.new_context(base_url=site.url)  # type: ignore[union-attr]
    theirs = other.new_page()
    theirs.goto("/settings?tab=bases")
    sign_in(theirs, mate)
    expect(theirs.get_by_role("button", name="Create base")).to_be_visible()
    row.get_by_role("button", name="Revoke mate").click()
    expect(dialog).to_contain_text("Revoke the key mate?")
    dialog.get_by_role("button", name="Revoke").click()
    expect(row.get_by_text("revoked", exact=True)).to_be_visible()
    expect(row.get_by_role("button", name=re.compile("Revoke mate"))).to_have_attribute("aria-disabled", "true")
    theirs.get_by_role("button", name="Create base").click()
    theirs.get_by_role("dialog").get_by_label("Name").fill("theirs")
    theirs.get_by_role("dialog").get_by_role("button", name="Create").click()
    expect(theirs).to_have_url(re.compile("/signin"))
    other.close()


def test_each_tab_of_the_settings_explains_which_key_it_needs(page: Page, site: Site) -> None:
    reader = site.api.post("/keys", json={"name": "reader"}).json()["secret"]
    page.goto("/settings")
    sign_in(page, reader)
    needs = page.get_by_text(
        re.compile(
            "You need a key with the scope admin (to make changes|for this section)[.] The scope of your key is read."
        )
    )
    for tab in ("bases", "providers", "keys", "webhooks", "server"):
        page.goto(f"/settings?tab={tab}")
        expect(needs.first).to_be_visible()
        expect(page.locator("main").get_by_role("button", name=re.compile("Create|Import|Check"))).to_have_count(0)
    page.goto("/settings?tab=providers")
    expect(page.get_by_role("button", name=re.compile("^Test the connections of logbook"))).to_have_attribute(
        "aria-disabled", "true"
    )
    page.goto("/settings?base=logbook")
    expect(page.get_by_label("Chunk size")).to_be_disabled()
    expect(page.get_by_role("button", name=re.compile("Save|Delete|Clear"))).to_have_count(0)
    limited = {"name": "limited", "scope": "admin", "bases": ["logbook"]}
    keeper = site.api.post("/keys", json=limited).json()["secret"]
    page.context.add_cookies([{"name": "holdfast_key", "value": keeper, "url": site.url}])
    page.goto("/settings?tab=keys")
    expect(
        page.get_by_text("needs an admin key for all of them. Your key is limited to certain bases.")
    ).to_be_visible()
    page.goto("/settings?base=logbook")
    page.get_by_label("Jobs per day").fill("40")
    page.get_by_role("button", name="Save").click()
    expect(page.locator("#saved")).to_have_text("Settings saved.")


def test_without_scripts_the_sign_in_page_explains_that_it_needs_them(browser: Browser, site: Site) -> None:
    context = browser.new_context(base_url=site.url, java_script_enabled=False, locale="zh-CN")
    page = context.new_page()
    page.goto("/settings")
    expect(page.locator("noscript .warn")).to_be_visible()
    expect(page.locator("noscript .warn")).to_contain_text("登录需要 JavaScript")
    expect(page.get_by_label("密钥")).to_be_hidden()
    context.close()
