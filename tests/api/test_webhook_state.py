"""A webhook that fails is shown as failing over HTTP, on the page and by the command."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from holdfast.cli.app import app
from holdfast.web.site import install_pages
from holdfast.webhooks.retry_policy import AttemptResult
from tests.support.harness import Rig
from tests.support.http_site import HttpSite

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.clock import FakeClock


@pytest.fixture
def site(database_url: str, tmp_path: Path, clock: FakeClock) -> Iterator[HttpSite]:
    rig = Rig(database_url, tmp_path / "blobs", clock, indexes=("fulltext",), settings={"webhook_allow": "127.0.0.1"})
    site = HttpSite(rig, pages=install_pages)
    yield site
    site.close()
    rig.close()


def fail_once(site: HttpSite) -> None:
    """Record a failed attempt for the first of three messages."""
    for name in "abc":
        site.upload(f"{name}.txt", name)
    deliveries = site.rig.library.deliveries
    while deliveries.collect_events() is not None:
        pass
    (attempt, *_) = deliveries.claim(1)
    deliveries.record_result(attempt, AttemptResult(reason="unreachable"), 0.0)


def test_a_failing_webhook_shows_its_state_everywhere(site: HttpSite) -> None:
    site.http.post("/webhooks", json={"url": "http://127.0.0.1/in", "types": ["job.*"]}).raise_for_status()
    fail_once(site)

    (hook,) = site.http.get("/webhooks").json()
    assert (hook["state"], hook["failures"], hook["enabled"]) == ("failing", 1, True)
    assert hook["waiting"] >= 3
    assert hook["retry_at"] > hook["failing_since"]

    page = site.http.get(f"{site.address}/settings?tab=webhooks").text
    assert 'data-status="degraded">failing<' in page
    assert "Failed attempts in a row: 1" in page
    assert f"Waiting messages: {hook['waiting']}. Next attempt:" in page
    deliveries = site.http.get(f"{site.address}/activity?view=deliveries&webhook={hook['id']}").text
    assert "Failed attempts in a row: 1." in deliveries

    listed = CliRunner().invoke(app, ["--at", site.address, "webhooks", "ls"])
    assert listed.exit_code == 0, listed.stderr
    (row,) = [line.split("\t") for line in listed.stdout.splitlines() if "127.0.0.1/in" in line]
    assert row[4:7] == ["failing", "1", str(hook["waiting"])]
    assert row[7]  # when the next probe is sent
