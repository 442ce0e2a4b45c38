"""The whole app in examples/study_cards: its scripts, and its answers in a browser behind nginx and the backend.

A request goes from the browser through Debian's nginx and the backend to the FastAPI service. The service records each
response that it sends, and the tests compare it with what the browser received.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from playwright.sync_api import expect

from examples.study_cards.servers import Servers
from holdfast.guard import Guard
from tests.support.nginx import Nginx
from tests.support.processes import ROOT, until
from tests.support.timeouts import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Response

pytestmark = pytest.mark.celery
CALLS_OF_A_RUN = 7

projects = count(1)  # each test uses projects of its own


@dataclass(frozen=True, kw_only=True)
class Site:
    """The guarded app behind nginx."""

    servers: Servers
    http: httpx2.Client  # through nginx
    recorded: Path

    def click(self, project: int) -> httpx2.Response:
        return self.http.post(f"/projects/{project}/study-plan")

    def sent(self) -> list[tuple[int, str, bytes]]:
        """Return status, type and body of each response that the service has sent."""
        lines = [json.loads(line) for line in self.recorded.read_text().splitlines()]
        return [(line["status"], line["content_type"], line["body"].encode()) for line in lines]

    def ends(self, project: int) -> list[tuple[str, str]]:
        """Return job and state of each end that the backend knows."""
        ends = self.http.get(f"/projects/{project}/cards").json()["ends"]
        return [(end["job"], end["state"]) for end in ends]


@pytest.fixture(scope="module")
def site(nginx: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("study-cards")
    recorded = folder / "recorded"
    recorded.touch()
    service = "tests.support.recorded_service:api"
    with (
        Servers("guarded", api=service, RECORDED_RESPONSES=str(recorded)) as servers,
        Nginx(folder / "nginx", servers.backend) as proxy,
        httpx2.Client(base_url=proxy.url, timeout=PATIENCE_SECONDS, trust_env=False) as http,
    ):
        yield Site(servers=servers, http=http, recorded=recorded)


def received(answer: httpx2.Response) -> tuple[int, str, bytes]:
    assert answer.headers["server"].startswith("nginx")
    return answer.status_code, answer.headers["content-type"], answer.content


@pytest.mark.smoke
def test_the_409_of_a_double_click_passes_nginx_and_the_backend_unchanged(site: Site) -> None:
    project, together = next(projects), threading.Barrier(2)

    def click(_: int) -> httpx2.Response:
        together.wait()
        return site.click(project)

    with ThreadPoolExecutor(2) as pool:
        accepted, refused = sorted(pool.map(click, range(2)), key=lambda answer: answer.status_code)
    assert [accepted.status_code, refused.status_code] == [202, 409]
    sent = site.sent()
    assert received(accepted) in sent
    assert received(refused) in sent
    job = accepted.json()["job"]
    assert (refused.json()["job"], refused.json()["reason"]) == (job, "already_in_progress")
    assert refused.json()["state"] in refused.json()["message"]
    until(lambda: site.ends(project) == [(job, "succeeded")], "the backend does not get the end of the job")
    cards = site.http.get(f"/projects/{project}/cards").json()["cards"]
    assert len({card["question"] for card in cards}) == len(cards) > 0
    assert site.servers.provider.paid(project) == CALLS_OF_A_RUN
    (refusal,) = httpx2.get(f"{site.servers.service}/api/projects/{project}/refusals", trust_env=False).json()
    assert (refusal["job"], refusal["requester"]) == (job, "user-7")


def test_a_double_click_in_a_browser_shows_the_answer_that_the_service_sent(site: Site, browser: Browser) -> None:
    project, answers = next(projects), list[Any]()

    def keep(answer: Response) -> None:
        if answer.request.method == "POST":
            answers.append(answer)

    with browser.new_context(base_url=str(site.http.base_url)) as context:
        page = context.new_page()
        page.on("response", keep)
        page.goto(f"/projects/{project}")
        page.get_by_role("button", name="Generate study plan").dblclick()
        notice = page.get_by_role("alert")
        expect(notice).to_have_text(re.compile("already (queued|running)"))
        expect(page.get_by_role("status")).to_have_text("succeeded, 12 cards")
        accepted, refused = sorted(answers, key=lambda answer: answer.status)
        seen = [(answer.status, answer.headers["content-type"], answer.body()) for answer in (accepted, refused)]
        assert notice.text_content() == refused.json()["message"]
    assert [status for status, _, _ in seen] == [202, 409]
    assert set(seen) <= set(site.sent())
    assert site.servers.provider.paid(project) == CALLS_OF_A_RUN


def test_a_job_that_is_cancelled_in_the_page_before_it_runs_is_reported_and_costs_nothing(
    site: Site, browser: Browser
) -> None:
    project = next(projects)
    site.servers.kill_workers()
    with browser.new_context(base_url=str(site.http.base_url)) as context:
        page = context.new_page()
        page.goto(f"/projects/{project}")
        page.get_by_role("button", name="Generate study plan").click()
        page.get_by_role("button", name="Cancel").click()
        expect(page.get_by_role("status")).to_have_text("cancelled, 0 cards")
    site.servers.start_worker()
    until(lambda: [state for _, state in site.ends(project)] == ["cancelled"], "the backend does not get the end")
    assert site.servers.provider.paid(project) == 0
    assert site.click(project).status_code == 202


def test_a_used_up_quota_of_a_project_passes_the_proxies_as_429(site: Site) -> None:
    project = next(projects)
    guard = Guard(site.servers.environment["GUARD_DATABASE"])
    work = guard.work("study_cards")
    quota = work.quotas()[0].per_day
    work.set_quota(1, scope="project")
    job = site.click(project).json()["job"]
    site.http.post(f"/study-plans/{job}/cancel").raise_for_status()
    refused, other = site.click(project), site.click(next(projects))
    work.set_quota(quota, scope="project")
    guard.close()
    assert other.status_code == 202
    assert refused.json()["reason"] == "project_quota_exhausted"
    assert refused.status_code == 429
    assert received(refused) in site.sent()


def test_an_unknown_job_is_explained_with_404(site: Site) -> None:
    answer = site.http.get("/study-plans/unknown")
    assert answer.status_code == 404
    assert "unknown" in answer.json()["message"]
    assert received(answer) in site.sent()


def test_the_page_also_shows_the_409_of_the_plain_service(nginx: Path, browser: Browser, tmp_path: Path) -> None:
    with Servers("plain") as servers, Nginx(tmp_path, servers.backend) as proxy:
        servers.kill_workers()
        with browser.new_context(base_url=proxy.url) as context:
            page = context.new_page()
            page.goto(f"/projects/{next(projects)}")
            button = page.get_by_role("button", name="Generate study plan")
            button.click()
            expect(page.get_by_role("status")).to_have_text("queued, 0 cards")
            button.click()
            expect(page.get_by_role("alert")).to_contain_text("already in progress for this project (status: queued)")


def test_a_script_serves_the_page_until_it_is_interrupted() -> None:
    command = [sys.executable, "examples/study_cards/after.py", "--serve"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as served:
        try:
            assert served.stdout is not None
            address = re.search(r"http://\S+/projects/1", served.stdout.readline())
            assert address is not None
            assert "Generate study plan" in httpx2.get(address[0], trust_env=False).text
            served.send_signal(signal.SIGINT)
            assert served.communicate(timeout=PATIENCE_SECONDS) == ("", "")
        finally:
            served.kill()
    assert served.returncode == 0


def play(script: str) -> dict[str, list[str]]:
    """Run a script, and return the cells of its table by the name of the accident."""
    ran = subprocess.run(
        [sys.executable, f"examples/study_cards/{script}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=4 * PATIENCE_SECONDS,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stderr == ""
    rows = [re.split(r" {2,}", line) for line in ran.stdout.splitlines()[1:]]
    return {row[0]: row[1:] for row in rows if len(row) > 1}


def test_without_the_guard_the_accidents_cost_money_repeat_cards_lose_jobs_and_jam_a_project() -> None:
    rows = play("before.py")
    accepted, paid, needed = (int(cell) for cell in rows["10 double clicks"][1:4])
    assert accepted > 10
    assert paid > needed
    state, next_click = rows["worker killed during a run"][-2:]
    assert state == "1 running"
    assert re.fullmatch(r"409, for another 2[34]\.\d h", next_click)
    assert rows["Redis emptied before a run"][-2] == "1 forgotten"
    assert rows["cancelled during a run"][-2] == "1 running"


def test_with_the_guard_the_same_accidents_do_no_damage() -> None:
    rows = play("after.py")
    assert rows["10 double clicks"][:5] == ["20", "10", "70", "70", "0"]
    assert rows["5 times ten clicks at once"][:5] == ["50", "5", "35", "35", "0"]
    assert rows["Redis emptied during a run"][:5] == ["2", "1", "7", "7", "0"]
    assert rows["Redis emptied before a run"][:5] == ["1", "1", "7", "7", "0"]
    ended = {row[-2] for row in rows.values()}
    assert ended == {"1 succeeded", "5 succeeded", "10 succeeded", "1 cancelled"}
    assert {row[-1] for row in rows.values()} == {"accepted"}
