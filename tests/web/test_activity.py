"""The activity page in a real browser: events, refused duplicates, and webhook deliveries."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from holdfast.engine.admission import ADMISSION_RULES, Verdict
from holdfast.events.public_events import EVENT_TYPES
from holdfast.events.public_events import TOPICS as EVERY_TOPIC
from holdfast.messages import load_catalogue
from holdfast.web.pages.activity import TOPICS
from tests.support.receiver import Receiver, say
from tests.web.conftest import Site

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Locator, Page


@pytest.fixture(scope="module")
def environment() -> dict[str, str]:
    return {"HOLDFAST_WEBHOOK_ALLOW": "127.0.0.1"}


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as found:
        yield found


def rows(page: Page, name: str) -> Locator:
    return page.get_by_role("table", name=name, exact=True).locator("tbody tr")


def test_every_topic_event_and_refusal_has_a_text() -> None:
    assert set(TOPICS) == EVERY_TOPIC
    assert {f"activity.topic.{topic}" for topic in TOPICS} <= load_catalogue().keys()
    assert {f"activity.event.{type_}" for type_ in EVENT_TYPES} <= load_catalogue().keys()
    refusals = {rule.reason for rule in ADMISSION_RULES if rule.verdict is not Verdict.ACCEPTED}
    assert {f"activity.reason.{reason}" for reason in refusals} <= load_catalogue().keys()


def test_new_events_appear_on_top_and_wait_while_the_user_reads_below(
    page: Page, site: Site, put: Callable[[str, str], int]
) -> None:
    hostile = "<b>rope</b>.md"
    page.goto("/activity?base=handbook")
    first = put("first.md", "# First")
    events = rows(page, "Events")
    expect(events.first).to_contain_text("Job succeeded")
    expect(events.filter(has_text="Document added").get_by_role("link", name="first.md")).to_have_attribute(
        "href", f"/bases/handbook/documents/{first}"
    )
    expect(events.filter(has_text="New content: accepted")).to_contain_text("This machine")
    put(hostile, "# Rope")
    expect(events.filter(has=page.get_by_role("link", name=hostile)).first).to_be_visible()
    for number in range(10):
        put(f"more-{number}.md", f"# More {number}")
    expect(events.first.get_by_role("link", name="more-9.md")).to_be_visible()
    page.mouse.wheel(0, 2000)
    page.wait_for_function("() => scrollY > 200")
    last = put("last.md", "# Last")
    expect(page.get_by_role("button", name=re.compile(r"^Show \d+ new$"))).to_be_visible()
    assert page.get_by_role("link", name="last.md").count() == 0
    page.get_by_role("button", name=re.compile(r"^Show \d+ new$")).click()
    expect(events.first.get_by_role("link", name="last.md")).to_be_visible()

    site.api.delete(f"/bases/handbook/documents/{last}")
    expect(events.filter(has_text="Document clean-up finished")).to_contain_text(f"Deleted document #{last}")
    expect(page.get_by_role("link", name="last.md")).to_have_count(0)
    assert page.locator("main b").count() == 0


def test_older_events_can_be_loaded_with_and_without_scripts(
    page: Page, browser: Browser, site: Site, put: Callable[[str, str], int]
) -> None:
    for number in range(15):
        put(f"n{number}.md", f"# {number}")
    page.goto("/activity?base=handbook")
    events = rows(page, "Events")
    expect(events).to_have_count(50)
    page.get_by_role("link", name="Show older").click()
    expect(page.get_by_role("link", name="n0.md").first).to_be_visible()
    seen = events.evaluate_all("rows => rows.map((row) => row.dataset.id)")
    assert len(seen) == len(set(seen)) > 50
    page.get_by_label("Type").select_option("Documents")
    expect(page).to_have_url(re.compile("topic=document"))
    expect(events.filter(has_text="Index ready")).to_have_count(0)
    expect(events.filter(has_text="Document added")).to_have_count(15)

    context = browser.new_context(base_url=site.url, java_script_enabled=False, locale="zh-CN")
    plain = context.new_page()
    plain.goto("/activity?base=handbook")
    plain.get_by_role("link", name="查看更早").click()
    expect(plain.get_by_role("link", name="n0.md").first).to_be_visible()
    expect(plain.locator("tbody")).to_contain_text("已接受")
    context.close()


def test_refused_duplicates_show_the_requester_and_the_conflicting_job(page: Page, site: Site, base: str) -> None:
    site.api.post("/jobs:pause", json={"base": base})
    same: dict[str, Any] = {"params": {"name": "same.md"}, "content": b"# Same"}
    sent = [site.api.post(f"/bases/{base}/documents", **same).json() for _ in range(3)]
    page.goto("/activity?view=duplicates&base=handbook")
    refused = rows(page, "Refused duplicates")
    expect(refused).to_have_count(2)
    expect(refused.first.get_by_role("link", name="same.md")).to_be_visible()
    expect(refused.first).to_contain_text("The same content was already indexed or being indexed.")
    counted = rows(page, "Refused duplicates by base and requester")
    expect(counted).to_contain_text(re.compile(r"handbook.*This machine.*2", re.DOTALL))

    site.api.post(f"/bases/{base}/documents", **same)
    site.api.post("/jobs:resume", json={"base": base})  # an event makes the page refresh
    expect(refused).to_have_count(3)
    expect(counted).to_contain_text("3")
    refused.first.get_by_role("link", name="Show job").click()
    expect(page.get_by_role("dialog")).to_contain_text(sent[0]["replies"][0]["job"])


def test_deliveries_update_live_and_can_be_sent_again(page: Page, site: Site, base: str, receiver: Receiver) -> None:
    receiver.answers.append(say(500))
    made = site.api.post("/webhooks", json={"url": receiver.url("/hook"), "types": ["base.changed"]}).json()
    hook = made["webhook"]["id"]
    page.goto("/activity?view=deliveries")
    expect(page.get_by_text("No deliveries yet")).to_be_visible()
    site.api.patch(f"/bases/{base}", json={"jobs_per_day": 1000}).raise_for_status()
    sent = rows(page, "Webhook deliveries")
    expect(sent).to_contain_text("waiting")
    expect(sent).to_contain_text("HTTP 500 rejected")
    expect(sent).to_contain_text(re.compile(r"base\.changed"))
    expect(page.get_by_text("Failed attempts in a row: 1")).to_be_visible()
    page.get_by_role("button", name="Send again: base.changed").click()
    expect(sent.get_by_text("sent", exact=True)).to_be_visible()
    expect(sent).to_contain_text("HTTP 204")
    expect(page.get_by_text("This webhook is healthy.")).to_be_visible()
    assert len(receiver.got) == 2

    site.api.post(f"/webhooks/{hook}:disable")
    page.reload()
    expect(page.get_by_text("A user disabled this webhook")).to_be_visible()
    expect(page.get_by_role("button", name=re.compile("^Send again"))).to_have_attribute("aria-disabled", "true")
    site.api.delete(f"/webhooks/{hook}")


def test_long_names_fit_a_phone_in_every_view(browser: Browser, site: Site, base: str, receiver: Receiver) -> None:
    hook = site.api.post("/webhooks", json={"url": receiver.url("/a/long/path" * 8)}).json()["webhook"]["id"]
    for _ in range(2):
        site.api.post(f"/bases/{base}/documents", params={"name": "a-long-name-" * 9}, content=b"Long.")
    context = browser.new_context(base_url=site.url, viewport={"width": 360, "height": 800}, color_scheme="dark")
    page = context.new_page()
    for view in ("events", "duplicates", "deliveries"):
        page.goto(f"/activity?view={view}")
        expect(page.locator("#list tbody tr").first).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        assert Axe().run(page).response["violations"] == []
    context.close()
    site.api.delete(f"/webhooks/{hook}")


def test_a_key_for_some_bases_sees_only_those_and_an_explanation(browser: Browser, tmp_path: Path) -> None:
    site = Site(tmp_path / "home")
    for name in ("also ours", "ours", "theirs"):
        site.api.post("/bases", json={"name": name})
        site.put(name, f"{name}.md", f"# Of {name}")
    admin = site.api.post("/keys", json={"name": "admin", "scope": "admin"}).json()["secret"]
    wanted = {"name": "reader", "scope": "read", "bases": ["also ours", "ours"]}
    reader = site.api.post("/keys", json=wanted, headers={"X-API-Key": admin}).json()["secret"]
    context = browser.new_context(base_url=site.url, locale="en-GB", extra_http_headers={"X-API-Key": reader})
    page = context.new_page()
    page.goto("/queue")
    # Without a filter, a key for some bases sees the first of them.
    expect(page.get_by_role("link", name="also ours.md")).to_be_visible()
    page.get_by_role("combobox", name="Base").select_option("ours")
    expect(page.get_by_role("link", name="ours.md", exact=True)).to_be_visible()
    expect(page.get_by_role("link", name="theirs.md")).to_have_count(0)
    expect(page.get_by_role("button", name="Cancel all jobs")).to_have_attribute(
        "title", "Your key does not allow this. Sign in with a key that does."
    )
    page.goto("/activity")
    expect(page.get_by_role("link", name="ours.md", exact=True).first).to_be_visible()
    expect(page.get_by_role("link", name="theirs.md")).to_have_count(0)
    page.goto("/activity?view=duplicates")
    expect(page.get_by_text("No refused requests")).to_be_visible()
    page.goto("/activity?view=deliveries")
    expect(page.get_by_text("Your key cannot view webhooks")).to_be_visible()
    context.close()
    site.close()


def test_two_jobs_of_the_same_second_have_different_short_ids(page: Page, site: Site, base: str) -> None:
    site.api.post("/jobs:pause", json={"base": base})
    sent = [
        site.api.post(f"/bases/{base}/documents", params={"name": f"{name}.md"}, content=f"# {name}".encode()).json()
        for name in ("one", "two")
    ]
    jobs = [one["replies"][0]["job"] for one in sent]
    page.goto("/activity?base=handbook&topic=job")
    shown = page.locator("#list td.job a")
    expect(shown).to_have_text([job[-8:] for job in reversed(jobs)])
    expect(shown.first).to_have_attribute("title", jobs[1])
    assert len(set(shown.all_inner_texts())) == 2
    expect(page.locator("#live")).to_have_attribute("data-state", "on")
    site.api.post("/jobs:resume", json={"base": base})
    for job in jobs:  # the script renders the ids like the server
        expect(shown.filter(has_text=job[-8:])).to_have_count(2)
