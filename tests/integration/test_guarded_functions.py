"""Guarded functions without a broker: whatever calls them runs them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import create_engine, text

from holdfast.engine.states import Outcome, Status
from holdfast.errors import BadRequest, BadSettings, Permanent, StaleLease, Transient
from holdfast.guard import Finished, Guard, Run
from holdfast.settings import Settings
from tests.support.processes import ROOT
from tests.support.timeouts import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SECOND = timedelta(seconds=1)


@pytest.fixture
def guard(database_url: str) -> Iterator[Guard]:
    made = Guard(Settings(database=database_url, backoff=SECOND / 50, attempts=2))
    yield made
    made.close()


def test_a_call_runs_the_function_once_and_is_skipped_afterwards(guard: Guard) -> None:
    paid: list[Any] = []

    @guard.work("report")
    def report(run: Run, tenant: str, *, year: int = 2026) -> str:
        """Build a report."""
        paid.append((run.key, tenant, year))
        return f"report of {tenant}"

    done = report("acme", year=2025)
    assert (done.verdict, done.outcome, done.value) == ("done", Outcome.SUCCESS, "report of acme")
    again = report("acme")
    assert (again.verdict, again.reason) == ("skipped", "already_indexed")
    assert paid == [("acme", "acme", 2025)]
    assert report.__doc__ == "Build a report."
    forced = report.with_options(operation="force", requester="cron")("acme")
    assert forced.outcome is Outcome.SUCCESS
    assert [job.requester for job in report.work.history("acme")] == ["cron", ""]


def test_of_many_threads_that_call_at_once_one_runs_the_function(guard: Guard) -> None:
    begun, release = threading.Event(), threading.Event()
    paid: list[int] = []

    @guard.work("report")
    def report(run: Run, tenant: str) -> str:
        paid.append(run.fence)
        begun.set()
        assert release.wait(PATIENCE_SECONDS)
        return tenant

    with ThreadPoolExecutor(8) as pool:
        first = pool.submit(report, "acme")
        assert begun.wait(PATIENCE_SECONDS)
        others = [one.result() for one in [pool.submit(report, "acme") for _ in range(7)]]
        release.set()
        assert first.result().outcome is Outcome.SUCCESS
    assert {one.verdict for one in others} == {"lock_held"}
    assert all(one.redeliver_in for one in others)
    assert len(paid) == 1


def test_a_function_that_fails_for_now_continues_with_the_next_call(guard: Guard) -> None:
    attempts: list[int] = []

    @guard.work("report")
    def report(run: Run, tenant: str) -> str:
        attempts.append(run.attempt)
        if run.attempt == 1:
            raise Transient("rate_limited")
        return tenant

    first = report("acme")
    assert (first.verdict, first.reason) == ("postponed", "rate_limited")
    assert first.redeliver_in is not None
    threading.Event().wait(first.redeliver_in.total_seconds())
    assert report("acme").outcome is Outcome.SUCCESS
    assert attempts == [1, 2]
    assert len(report.work.history("acme")) == 1


def test_a_function_that_fails_for_good_says_why(guard: Guard) -> None:
    @guard.work("report")
    def report(_run: Run, _tenant: str) -> str:
        raise Permanent("quota_exhausted")

    done = report("acme")
    assert (done.outcome, done.reason, done.redeliver_in) == (Outcome.FAILED, "quota_exhausted", None)


def test_a_function_publishes_its_rows_with_its_result_and_a_late_one_cannot(guard: Guard, database_url: str) -> None:
    engine = create_engine(database_url)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE answers (body TEXT)"))

    @guard.work("report", operation="change")
    def report(run: Run, tenant: str, *, late: bool) -> None:
        if late:
            report.work.admit(tenant, operation="change", fingerprint="newer")
        with run.commit() as connection:
            connection.execute(text("INSERT INTO answers VALUES (:body)"), {"body": str(late)})

    assert report("acme", late=False).outcome is Outcome.SUCCESS
    assert report("acme", late=True).outcome is Outcome.SUPERSEDED
    with engine.connect() as connection:
        assert connection.execute(text("SELECT body FROM answers")).scalars().all() == ["False"]
    engine.dispose()
    assert StaleLease.code == "stale_lease"


def test_requests_wait_until_a_process_runs_them(guard: Guard, database_url: str) -> None:
    told: list[Finished] = []
    ran: list[tuple[str, int]] = []

    def declare(where: Guard) -> Any:
        @where.work("report", on_finished=told.append)
        def report(run: Run, tenant: str, *, year: int) -> str:
            ran.append((tenant, year))
            if tenant == "slow" and run.attempt == 1:
                raise Transient("rate_limited")
            return tenant

        return report

    report = declare(guard)
    for number, tenant in enumerate(("acme", "slow", "other")):
        assert report.request(tenant, year=2000 + number).accepted
    assert report.run_waiting(limit=1) == 1
    elsewhere = Guard(Settings(database=database_url, backoff=SECOND / 50))
    there = declare(elsewhere)
    assert there.run_waiting() >= 2
    threading.Event().wait(0.1)
    there.run_waiting()
    assert there.run_waiting() == 0
    assert sorted(ran) == [("acme", 2000), ("other", 2002), ("slow", 2001), ("slow", 2001)]
    assert sorted(end.key for end in told) == ["acme", "other", "slow"]
    assert report.work.status("slow").status is Status.SUCCESS
    elsewhere.close()


KILLED = """
import os, signal, sys
from holdfast.guard import Guard

guard = Guard(sys.argv[1])

@guard.work("report")
def report(run, tenant, year):
    os.kill(os.getpid(), signal.SIGKILL)

report("acme", 2024)
"""


def test_the_next_call_continues_the_job_of_a_killed_process(guard: Guard, database_url: str, tmp_path: Path) -> None:
    """As a pod of a Kubernetes job that starts again."""
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, database_url], env={**os.environ, "PYTHONPATH": str(ROOT / "src")}, check=False
    )
    assert killed.returncode == -signal.SIGKILL
    seen: list[Any] = []

    @guard.work("report")
    def report(run: Run, tenant: str, year: int) -> str:
        seen.append((run.attempt, tenant, year))
        return tenant

    assert report("acme", 2026).outcome is Outcome.SUCCESS
    assert seen == [(2, "acme", 2024)]  # with the arguments of the job
    assert len(report.work.history("acme")) == 1


def test_the_key_is_the_first_parameter_a_named_one_or_computed(guard: Guard) -> None:
    def build(run: Run, tenant: str, year: int = 2026) -> str:
        return f"{tenant} {year} {run.key}"

    assert guard.work("first")(build)("acme").value == "acme 2026 acme"
    assert guard.work("named", key="year")(build)("acme").value == "acme 2026 2026"
    assert guard.work("computed", key=lambda tenant, year: f"{tenant}-{year}")(build)("a", 1).value == "a 1 a-1"
    with pytest.raises(BadSettings, match="no parameter 'color'"):
        guard.work("unknown", key="color")(build)
    with pytest.raises(BadSettings, match="no parameter"):
        guard.work("none")(lambda _run: None)


def test_arguments_that_cannot_be_stored_are_refused(guard: Guard) -> None:
    report = guard.work("report")(lambda _run, _tenant: "built")
    with pytest.raises(BadRequest, match="not JSON"):
        report(object())
    with pytest.raises(BadRequest, match="no value for its key"):
        report()
