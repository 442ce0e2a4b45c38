"""Errors are a page for a browser and problem+json for a program."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from starlette.datastructures import Headers

from holdfast.messages import translations_for
from holdfast.web.error_pages import prefers_html
from holdfast.web.render import Formatter
from holdfast.web.site import install_pages
from tests.support.harness import Rig
from tests.support.http_site import HttpSite

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.clock import FakeClock

BROWSER = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8"}
CHINESE = BROWSER | {"Accept-Language": "zh-CN,zh;q=0.9"}
WRONG = {
    "/nowhere": (404, "no_such_address"),
    "/static/nothing.js": (404, "no_such_address"),
    "/bases/nowhere/documents": (404, "unknown_base"),
    "/queue?page=x": (422, "invalid_request"),
    "/api/v1/bases/nowhere": (404, "unknown_base"),
    "/api/v1/jobs:pause": (405, "method_not_allowed"),
}


@pytest.fixture
def site(database_url: str, tmp_path: Path, clock: FakeClock) -> Iterator[HttpSite]:
    rig = Rig(database_url, tmp_path / "blobs", clock, indexes=("fulltext",))
    made = HttpSite(rig, pages=install_pages)
    made.http.post("/bases", json={"name": "logbook"}).raise_for_status()
    yield made
    made.close()
    rig.close()


def test_a_browser_gets_a_page_for_every_error_and_a_program_gets_the_problem(site: HttpSite) -> None:
    for path, (status, code) in WRONG.items():
        page = site.http.get(site.address + path, headers=BROWSER)
        assert (page.status_code, page.headers["content-type"]) == (status, "text/html; charset=utf-8"), path
        assert "<nav" in page.text, path
        assert 'href="/bases/logbook/documents"' in page.text, path  # the page has the usual navigation
        assert page.headers["x-request-id"] in page.text, path
        assert "default-src 'none'" in page.headers["content-security-policy"], path
        assert 'lang="zh-Hans"' in site.http.get(site.address + path, headers=CHINESE).text, path
        for accept in ("*/*", "application/json", "application/json, text/html;q=0.5", "text/event-stream"):
            problem = site.http.get(site.address + path, headers={"Accept": accept})
            assert (problem.status_code, problem.headers["content-type"]) == (status, "application/problem+json"), path
            assert problem.json()["code"] == code, path


def test_the_reading_view_of_another_file_names_the_file_and_the_next_step(site: HttpSite) -> None:
    added = site.http.post("/bases/logbook/documents", params={"name": "log.txt"}, content=b"Calm sea.").json()
    address = f"{site.address}/bases/logbook/documents/{added['replies'][0]['document']}/reading"
    problem = site.http.get(address).json()
    assert (problem["code"], problem["subcode"]) == ("bad_request", "not_markdown")
    assert problem["detail"] == (
        "The reading view shows only notes and Markdown files, and 'log.txt' is neither. Open the page of the document "
        "to read its text."
    )
    assert "「log.txt」" in site.http.get(address, headers=CHINESE).text


def test_an_error_of_which_only_the_code_is_known_has_a_sentence_without_gaps() -> None:
    formatter = Formatter(translations_for("en"))
    assert formatter.explain_code("unreadable").startswith("The file is damaged")
    assert formatter.explain_code("unknown_key") == "Open the document for details."  # has parameters
    assert formatter.explain_code("plot_missing") == "plot missing"  # of a plug-in


def test_a_page_for_another_host_names_no_base(site: HttpSite) -> None:
    answer = site.http.get(f"{site.address}/", headers=BROWSER | {"Host": "evil.example"})
    assert (answer.status_code, answer.headers["content-type"]) == (421, "text/html; charset=utf-8")
    assert "HOLDFAST_HOSTS" in answer.text
    assert "logbook" not in answer.text


def test_a_browser_without_a_key_is_sent_to_sign_in_and_sees_no_base_names(site: HttpSite) -> None:
    site.key("admin")
    for path in ("/bases/logbook/documents?page=2", "/api/v1/bases/logbook"):
        answer = site.http.get(site.address + path, headers=BROWSER)
        assert answer.status_code == 303
        assert answer.headers["location"].startswith("/signin?next=%2F")
        assert site.http.get(site.address + path).status_code == 401
    assert "logbook" not in site.http.get(f"{site.address}/nowhere", headers=BROWSER).text


@pytest.mark.parametrize(
    ("accept", "html"),
    [
        (BROWSER["Accept"], True),
        ("TEXT/HTML", True),
        ("text/html;q=0.9, application/json;q=0.5", True),
        ("text/html, application/problem+json", False),
        ("text/html;q=0", False),
        ("text/html;q=none", False),
        ("*/*", False),
        ("text/*", False),
        ("", False),
    ],
)
def test_html_is_sent_only_if_the_accept_header_names_it(accept: str, html: bool) -> None:
    assert prefers_html(Headers({"accept": accept})) is html
