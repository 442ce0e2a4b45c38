"""The accidents that both scripts cause, and the table of what happened. Every number is measured.

Nothing is slowed down except the provider, which takes 0.25 s for each call. The requests of one click leave at the
same moment, and the service has two processes, as on any web server.
"""

import argparse
import itertools
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields

import httpx

from examples.processes import until, wait
from examples.study_cards.servers import Servers

DOUBLE_CLICKS = 10
BURSTS = 5
CALLS_BEFORE_THE_ACCIDENT = 3  # so many paid calls show that a job is running


@dataclass(frozen=True, kw_only=True)
class Row:
    """What one accident did."""

    accident: str
    clicks: int
    accepted: int
    paid: int  # calls of the provider
    needed: int  # calls of the provider if each project is generated once
    repeated_cards: int
    callbacks: int
    jobs: str  # the states of the accepted jobs at the end
    next_click: str


class Accidents:
    """Causes the accidents on one version of the app.

    Some jobs of the plain version never end. So it stops waiting when nothing has happened for `quiet_seconds`.
    """

    def __init__(self, servers: Servers, quiet_seconds: float) -> None:
        self._servers = servers
        self._quiet_seconds = quiet_seconds
        self._http = httpx.Client(base_url=servers.backend, timeout=60, trust_env=False)
        self._projects = itertools.count(1)
        self._calls_of_a_run = 0

    def cause_all(self) -> list[Row]:
        """Cause each accident once, on projects of its own."""
        return [
            self.click_once(),
            self.click_twice(),
            self.click_ten_times(),
            self.kill_the_worker(),
            self.empty_redis_during_a_run(),
            self.empty_redis_before_a_run(),
            self.cancel(),
        ]

    def click_once(self) -> Row:
        """Nothing goes wrong: this shows what a run costs."""
        project = next(self._projects)
        jobs = self.click(project)
        self._settle([project], jobs)
        self._calls_of_a_run = self._servers.provider.paid(project)
        return self._measure("one click", [project], 1, jobs)

    def click_twice(self) -> Row:
        return self._click_together(f"{DOUBLE_CLICKS} double clicks", DOUBLE_CLICKS, 2)

    def click_ten_times(self) -> Row:
        return self._click_together(f"{BURSTS} times ten clicks at once", BURSTS, 10)

    def _click_together(self, accident: str, count: int, times: int) -> Row:
        """Cause the accident on several projects, one after the other, since chance decides who wins a race."""
        projects = [next(self._projects) for _ in range(count)]
        jobs = [job for project in projects for job in self.click(project, times)]
        return self._measure(accident, projects, count * times, jobs)

    def kill_the_worker(self) -> Row:
        """Kill the worker during a run, and start another one."""
        project, jobs = self._begin()
        self._servers.kill_workers()
        self._servers.start_worker()
        return self._measure("worker killed during a run", [project], 1, jobs)

    def empty_redis_during_a_run(self) -> Row:
        """Empty Redis during a run, and click again."""
        project, jobs = self._begin()
        self._servers.empty_redis()
        jobs += self.click(project)
        return self._measure("Redis emptied during a run", [project], 2, jobs)

    def empty_redis_before_a_run(self) -> Row:
        """Click while no worker runs, as during a deployment, and empty Redis before a worker starts."""
        self._servers.kill_workers()
        project = next(self._projects)
        jobs = self.click(project)
        self._servers.empty_redis()
        self._servers.start_worker()
        return self._measure("Redis emptied before a run", [project], 1, jobs)

    def cancel(self) -> Row:
        """Cancel a job during its run."""
        project, jobs = self._begin()
        self._http.post(f"/study-plans/{jobs[0]}/cancel").raise_for_status()
        return self._measure("cancelled during a run", [project], 1, jobs)

    def click(self, project: int, times: int = 1) -> list[str]:
        """Click so many times at the same moment, and return the jobs that were accepted.

        Each browser polls a job before, as the page does, so that the connections to all servers are open.
        """
        together = threading.Barrier(times)

        def send(_: int) -> httpx.Response:
            together.wait()
            self._http.get("/study-plans/unknown")
            together.wait()
            return self._http.post(f"/projects/{project}/study-plan")

        with ThreadPoolExecutor(times) as pool:
            answers = list(pool.map(send, range(times)))
        return [answer.json()["job"] for answer in answers if answer.status_code == httpx.codes.ACCEPTED]

    def _begin(self) -> tuple[int, list[str]]:
        """Begin a job, and return when it has paid for some calls."""
        project = next(self._projects)
        jobs = self.click(project)
        until(lambda: self._servers.provider.paid(project) >= CALLS_BEFORE_THE_ACCIDENT, "the job does not run")
        return project, jobs

    def _measure(self, accident: str, projects: list[int], clicks: int, jobs: list[str]) -> Row:
        """Wait for the ends of the jobs, count, and then click once more."""
        self._settle(projects, jobs)
        found = [self._http.get(f"/projects/{project}/cards").json() for project in projects]
        states = [self._state(job) for job in jobs]
        return Row(
            accident=accident,
            clicks=clicks,
            accepted=len(jobs),
            paid=self._servers.provider.paid(*projects),
            needed=self._calls_of_a_run * len(projects),
            repeated_cards=sum(len(one["cards"]) - len({card["question"] for card in one["cards"]}) for one in found),
            callbacks=sum(end["callbacks"] for one in found for end in one["ends"]),
            jobs=", ".join(f"{states.count(state)} {state}" for state in sorted(set(states))),
            next_click="accepted" if self.click(projects[0]) else self._describe_jam(projects[0]),
        )

    def _settle(self, projects: list[int], jobs: list[str]) -> None:
        """Wait until the backend knows the ends of all jobs, or nothing has happened for some time."""
        before = (-1, -1)
        while not wait(lambda: self._ended(projects) >= set(jobs), self._quiet_seconds):
            now = self._servers.provider.paid(*projects), len(self._ended(projects))
            if now == before:
                return
            before = now

    def _ended(self, projects: list[int]) -> set[str]:
        found = [self._http.get(f"/projects/{project}/cards").json() for project in projects]
        return {end["job"] for one in found for end in one["ends"]}

    def _state(self, job: str) -> str:
        return str(self._http.get(f"/study-plans/{job}").json().get("state", "forgotten"))

    def _describe_jam(self, project: int) -> str:
        """Return for how long the project stays jammed, although no job of it is running."""
        hours = self._servers.ttl(f"project_job:{project}") / 3600
        return f"409, for another {hours:.1f} h" if hours > 0 else "409"


def play(version: str, quiet_seconds: float, judge: Callable[[Servers, list[Row]], int]) -> int:
    """Cause all accidents on one version, print what happened and judge it. With `--serve`, only serve the page."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--serve", action="store_true", help="serve the page until Ctrl-C, so that you can click")
    serve = parser.parse_args().serve
    with Servers(version) as servers:
        if serve:
            stopped = threading.Event()
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, lambda *_: stopped.set())
            print(f"The page is at {servers.backend}/projects/1. End with Ctrl-C.", flush=True)
            stopped.wait()
            return 0
        rows = Accidents(servers, quiet_seconds).cause_all()
        print_table(rows)
        return judge(servers, rows)


def print_table(rows: list[Row]) -> None:
    names = [one.name for one in fields(Row)]
    lines = [[name.replace("_", " ") for name in names], *([str(getattr(row, name)) for name in names] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(names))]
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
