"""Operating a guard: the commands with tables and JSON, and the read-only page."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient
from typer.testing import CliRunner

from holdfast.cli.app import app
from holdfast.engine import Fault, Request
from holdfast.engine.states import Operation, Outcome, Status
from holdfast.errors import BadRequest, Permanent
from holdfast.guard import Guard, Run, Work
from holdfast.guard.overview import list_jobs, list_refusals, summarise_works
from tests.support.processes import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator, MutableMapping
    from pathlib import Path

    from typer.testing import Result

HOSTILE = "<script>alert(1)</script>"


@pytest.fixture
def guard(database_url: str) -> Iterator[Guard]:
    """A guard with a queued, a done, a failed and a cancelled job, and a refused request."""
    made = Guard(database_url)
    index = made.work("index")
    made.work("cards")

    def fail(_run: Run) -> str:
        raise Permanent("quota_exhausted")

    index.perform(str(index.admit("done", requester="alice").job), lambda _run: "built")
    index.perform(str(index.admit("failed", requester="bob", payload='{"args": [1]}').job), fail)
    index.admit("cancelled")
    index.cancel("cancelled")
    index.admit(HOSTILE)
    index.admit(HOSTILE, requester="carol", cost=0.25)
    yield made
    made.close()


def test_the_summary_of_a_work_counts_its_jobs_and_refused_requests(guard: Guard) -> None:
    index, cards = summarise_works(guard)
    assert (index.work, index.queued, index.running, index.succeeded, index.failed) == ("index", 1, 0, 1, 1)
    assert (index.refused, index.saved, index.paused) == (1, 0.25, False)
    assert index.oldest_queued is not None
    assert (cards.queued, cards.oldest_queued) == (0, None)
    guard.store.pause("index")
    assert [one.paused for one in summarise_works(guard)] == [True, False]


def test_jobs_are_listed_by_work_and_state(guard: Guard) -> None:
    assert [(one.key, one.state) for one in list_jobs(guard, "index")] == [
        (HOSTILE, "queued"), ("cancelled", "cancelled"), ("failed", "failed"), ("done", "succeeded"),
    ]  # fmt: skip
    (failed,) = list_jobs(guard, state="failed")
    assert (failed.key, failed.error, failed.requester) == ("failed", "quota_exhausted", "bob")
    assert list_jobs(guard, "cards") == []
    with pytest.raises(BadRequest, match="no state 'odd'"):
        list_jobs(guard, state="odd")


def test_refused_requests_are_listed(guard: Guard) -> None:
    (refused,) = list_refusals(guard, "index", HOSTILE)
    assert (refused.reason, refused.requester, refused.cost) == ("already_in_progress", "carol", 0.25)


def test_a_retry_keeps_the_arguments_and_sends_the_message(guard: Guard) -> None:
    work = guard.works["index"]
    sent: list[Any] = []
    work.resend = lambda job: sent.append((job.owner, job.payload))
    assert work.retry("failed", requester="operator").accepted
    assert sent == [("failed", '{"args": [1]}')]
    assert not work.retry("failed").accepted
    assert len(sent) == 1
    assert work.retry("nobody").http_status == 404


def test_a_retry_of_work_that_has_no_messages_waits_for_a_process(guard: Guard) -> None:
    work = guard.works["index"]
    again = work.retry("failed")
    assert again.accepted
    assert work.status("failed").status is Status.QUEUED


def test_only_the_running_attempt_of_a_job_can_be_failed_from_outside(guard: Guard) -> None:
    work = guard.works["cards"]
    limit = Fault("time_limit_exceeded", {})
    old = str(work.admit("7", operation="change", fingerprint="one").job)
    new = str(work.admit("7", operation="change", fingerprint="two").job)

    def build(_run: Run) -> str:
        work.fail(old, limit)
        return "built"

    assert work.perform(new, build).outcome is Outcome.SUCCESS
    work.fail(new, limit)
    assert work.status("7").status is Status.SUCCESS
    waiting = str(work.admit("8").job)
    work.fail(waiting, limit)
    assert work.status("8").status is Status.QUEUED
    guard.store.admit([Request(base="cards", owner="8", operation=Operation.DELETE)])
    guard.store.forget(guard.store.claim_next(("cards",), "anybody", 1))
    work.fail(waiting, limit)
    assert work.status("8").status is Status.NOT_INDEXED


def run(database: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "shop.py").write_text(
        "import os\nfrom holdfast.guard import Guard\nguard = Guard(os.environ['SHOP'])\n"
        "guard.work('index')\nguard.work('cards')\n"
    )
    return subprocess.run(
        [sys.executable, "-m", "holdfast.cli", *arguments],
        cwd=folder,
        env=os.environ | {"SHOP": database, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_commands_show_and_change_what_the_guard_does(guard: Guard, database_url: str, tmp_path: Path) -> None:
    def ask(*arguments: str) -> Any:
        done = run(database_url, tmp_path, "--json", "guard", *arguments)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    assert ask("status", "shop:guard")[0]["failed"] == 1
    assert [one["key"] for one in ask("jobs", "shop:guard", "--state", "failed")] == ["failed"]
    assert ask("refusals", "shop:guard", "--work", "index", "--key", HOSTILE)[0]["reason"] == "already_in_progress"
    assert ask("retry", "shop:guard", "index", "failed", "--by", "operator")["verdict"] == "accepted"
    assert guard.works["index"].history("failed")[0].requester == "operator"
    assert ask("cancel", "shop:guard", "index", "failed")["verdict"] == "accepted"
    table = run(database_url, tmp_path, "guard", "jobs", "shop:guard", "--work", "index")
    assert "succeeded" in table.stdout
    refused = run(database_url, tmp_path, "guard", "cancel", "shop:guard", "index", "done")
    assert refused.returncode == 1
    assert "nothing to cancel" in refused.stdout
    unknown = run(database_url, tmp_path, "guard", "retry", "shop:guard", "other", "1")
    assert unknown.returncode == 1
    assert "other" in unknown.stderr
    loose = run(database_url, tmp_path, "guard", "refusals", "shop:guard", "--key", "1")
    assert "--work" in loose.stderr


def spend(work: Work, requester: str) -> None:
    def build(attempt: Run) -> str:
        attempt.spent(tokens=1200, price=1234.5678)
        return "built"

    work.perform(str(work.admit("1", requester=requester, project="biology").job), build)


def test_the_commands_show_spending_and_set_quotas(guard: Guard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setitem(sys.modules, "shop", SimpleNamespace(guard=guard))
    cards = guard.works["cards"]
    spend(cards, requester="alice")

    def show(*arguments: str, end: int = 0) -> Result:
        ran = CliRunner().invoke(app, ["guard", *arguments])
        assert ran.exit_code == end, ran.output
        return ran

    def ask(*arguments: str) -> Any:
        return json.loads(show(*arguments, "--json").stdout)

    lines = ask("spending", "shop:guard", "--days", "1")
    assert ("cards", "alice", "biology", 1, 1200, 1234.5678) in [
        tuple(one[name] for name in ("work", "requester", "project", "jobs", "tokens", "price")) for one in lines
    ]
    assert ask("spending", "shop:guard", "--by", "project")[0] == {
        "project": "biology", "jobs": 1, "tokens": 1200, "price": 1234.5678,
    }  # fmt: skip
    table = show("spending", "shop:guard", "--by", "work")
    assert table.stdout.splitlines()[:2] == ["work\tjobs\ttokens\tprice", "cards\t1\t1200\t1234.5678"]

    quota = {"work": "cards", "scope": "project", "unit": "jobs", "per_day": 1.0, "used": 1.0, "used_by": "biology"}
    assert ask("quota", "shop:guard", "cards", "1", "--scope", "project") == [quota]
    assert cards.admit("2", project="biology").http_status == 429
    assert ask("quota", "shop:guard") == ask("quota", "shop:guard", "cards") == [quota]
    assert ask("quota", "shop:guard", "index") == []
    shown = show("quota", "shop:guard", "cards", "2.5", "--unit", "price")
    assert shown.stdout == "The daily quota of price per work for 'cards' is now 2.5.\n"
    assert len(ask("quota", "shop:guard")) == 2
    removed = show("quota", "shop:guard", "cards", "--scope", "project", "--remove")
    assert removed.stdout == "The daily quota of jobs per project for 'cards' was removed.\n"
    assert [one["unit"] for one in ask("quota", "shop:guard")] == ["price"]
    assert cards.admit("2", project="biology").http_status != 202  # the price is spent
    ask("quota", "shop:guard", "cards", "--unit", "price", "--remove")
    assert cards.admit("2", project="biology").accepted

    assert "number above 0" in show("quota", "shop:guard", "cards", "0", end=1).stderr
    assert "no work named 'other'" in show("quota", "shop:guard", "other", end=1).stderr
    for incomplete in (("--remove",), ("cards", "5", "--remove")):
        assert "--remove" in show("quota", "shop:guard", *incomplete, end=1).stderr


def test_the_page_shows_quotas_and_spending(guard: Guard) -> None:
    cards = guard.works["cards"]
    spend(cards, requester=HOSTILE)
    cards.set_quota(1, scope="requester")
    cards.set_quota(0.005, scope="project", unit="tokens")
    site = Starlette(routes=[Mount("/guard", guard.page())])
    with TestClient(site) as client:
        text = client.get("/guard/").text
        assert HOSTILE not in text
        assert "<td>cards</td><td>requester</td><td>jobs</td><td>&lt;script" in text
        assert "<td>biology</td><td class='number failed'>1,200</td><td class=number>0.005</td>" in text
        assert "<b>day</b>" in text
        spent = "<td class=number>1</td><td class=number>1,200</td><td class=number>1,234.57</td>"
        by_project = client.get("/guard/", params={"by": "project", "work": "cards"}).text
        assert f"<td>biology</td>{spent}" in by_project
        assert "<a href='?by=day&amp;work=cards'>day</a>" in by_project
        assert spent not in client.get("/guard/", params={"by": "project", "work": "index"}).text
        assert "(none)" in client.get("/guard/", params={"by": "requester", "work": "index"}).text
        assert client.get("/guard/", params={"by": HOSTILE}).status_code == 404


def test_the_page_shows_the_works_and_escapes_keys(guard: Guard) -> None:
    site = Starlette(routes=[Mount("/guard", guard.page())])
    with TestClient(site) as client:
        shown = client.get("/guard/")
        assert shown.status_code == 200
        assert HOSTILE not in shown.text
        assert "&lt;script&gt;" in shown.text
        failed = "<td class=failed>failed</td><td class=key title='failed'>failed</td><td>index</td>"
        assert failed in shown.text  # what an operator needs comes first, on a narrow screen too
        assert "default-src 'none'" in shown.headers["content-security-policy"]
        one = client.get("/guard/", params={"work": "cards"})
        assert "None." in one.text
        assert "quota_exhausted" not in one.text
        assert client.get("/guard/", params={"work": HOSTILE}).status_code == 404
        assert client.post("/guard/").status_code == 405
        assert client.head("/guard/").text == ""


def test_the_page_runs_as_an_app_of_its_own(guard: Guard) -> None:
    with TestClient(guard.page()) as client:  # also sends the events of the lifespan
        assert "<h1>Guard</h1>" in client.get("/").text


def test_the_page_does_not_block_the_event_loop(guard: Guard, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[str] = []
    page = guard.page()

    def render(_work: str | None, _by: str) -> bytes:
        threads.append(threading.current_thread().name)
        return b""

    monkeypatch.setattr(page, "_render", render)
    sent: list[Any] = []

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    async def receive() -> MutableMapping[str, Any]:
        return {}

    asyncio.run(page({"type": "http", "method": "GET"}, receive, send))
    assert threads[0].startswith("holdfast-guard")
