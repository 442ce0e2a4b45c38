"""A real Prometheus reads the rules in `deploy/` and a server: each alert fires at its fault, and no other does.

The rules wait for minutes and hours. The test shortens how long Prometheus looks back and waits; the ages of work come
from the clock of the test.
"""

from __future__ import annotations

import json
import re
import subprocess
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.catalog.repository import BaseSettings
from holdfast.engine.reconciler import Reconciler
from holdfast.engine.schedulers.inline import InlineScheduler
from holdfast.engine.slot import Fault
from holdfast.engine.store.base import Failure
from holdfast.llm.paid_cache import Charge
from holdfast.settings import Settings
from tests.support.harness import Rig
from tests.support.http_site import HttpSite
from tests.support.processes import until
from tests.support.servers import Prometheus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.clock import FakeClock

RULES = Path(__file__).resolve().parents[2] / "deploy" / "prometheus" / "holdfast.rules.yml"
DASHBOARD = RULES.parents[1] / "grafana" / "holdfast.json"
SUMMARY = re.compile(r"^Checking .*\n  SUCCESS: \d+ rules found$", re.MULTILINE)
TOKEN = "observe-me"  # noqa: S105 - of this test only


class Watched:
    """A server with one live worker that does nothing, and a Prometheus that scrapes it."""

    def __init__(self, site: HttpSite, prometheus: Prometheus, clock: FakeClock) -> None:
        self.site = site
        self.prometheus = prometheus
        self._clock = clock

    @property
    def rig(self) -> Rig:
        return self.site.rig

    def alerts(self) -> dict[str, str]:
        """Return the state of each alert that is pending or firing."""
        return {alert["labels"]["alertname"]: alert["state"] for alert in self.prometheus.get("alerts")["alerts"]}

    def query(self, expression: str) -> list[Any]:
        found: list[Any] = self.prometheus.get("query", query=expression)["result"]
        return found

    def advance(self, duration: timedelta) -> None:
        """Advance the clock. The worker stays alive."""
        self._clock.advance(duration)
        self.rig.store.register_worker("worker")

    def put(self, count: int) -> None:
        for number in range(count):
            self.rig.put(f"note-{number}.md", f"Note {number}.")

    def kill_workers(self) -> None:
        """Let a reconciler find that the process of every holder has ended."""
        store = self.rig.store
        Reconciler(store, InlineScheduler(Settings()), ["content"], store.rules, dead=lambda _: True).reconcile()


@pytest.fixture
def watched(prometheus: Path, tmp_path: Path, sqlite_url: str, clock: FakeClock) -> Iterator[Watched]:
    rig = Rig(sqlite_url, tmp_path / "blobs", clock, indexes=("fulltext",))
    rig.index("first.md", "A document that is ready.")
    rig.store.register_worker("worker")
    site = HttpSite(rig, needs_key=True, metrics_token=TOKEN)
    rules = shorten(RULES.read_text("utf-8"))
    server = Prometheus(tmp_path / "prometheus", site.address.removeprefix("http://"), rules, token=TOKEN)
    with server:
        one = Watched(site, server, clock)
        until(lambda: len(one.query("holdfast_claims_total offset 2s")) > 0, "Prometheus does not read the metrics")
        yield one
    site.close()
    rig.close()


def shorten(rules: str) -> str:
    """Shorten how long alerts wait and how far they look back, and nothing else."""
    return re.sub(r"\[\d+[mh]\]", "[60s]", re.sub(r"for: \d+[mh]", "for: 2s", rules))


def leave_work_in_the_queue(watched: Watched) -> None:
    watched.put(1)
    watched.advance(timedelta(minutes=20))


def run_for_hours(watched: Watched) -> None:
    watched.put(1)
    assert watched.rig.store.claim_next(["content"], "worker", 1)
    watched.advance(timedelta(hours=4))


def fail_often(watched: Watched) -> None:
    watched.put(8)
    store = watched.rig.store
    tickets = store.claim_next(["content"], "worker", 8)
    store.fail([Failure(ticket=ticket, fault=Fault("bad_file", {}), delay=None) for ticket in tickets])


def lose_leases(watched: Watched) -> None:
    watched.put(6)
    assert len(watched.rig.store.claim_next(["content"], "worker", 6)) == 6
    watched.kill_workers()


def delete_and_do_not_clean_up(watched: Watched) -> None:
    watched.rig.delete("first.md")


def clean_up_and_do_not_overwrite(watched: Watched) -> None:
    watched.rig.delete("first.md")
    watched.rig.work()
    watched.rig.store.register_worker("worker")


def spend_the_budget(watched: Watched) -> None:
    base = watched.rig.library.catalog.create_base("paid", BaseSettings(budget_tokens=1000))
    memos = watched.rig.library.paid_cache
    bill = Charge(kind="embedding", model="m@1", texts=1, tokens_in=950)
    memos.settle([(row, bill) for row in memos.reserve(base, [(None, bill)])])
    watched.advance(timedelta(minutes=1))


def lose_all_workers(watched: Watched) -> None:
    watched.rig.store.unregister_worker("worker")


def stop_the_server(watched: Watched) -> None:
    watched.site.close()


FAULTS: dict[str, Callable[[Watched], None]] = {
    "HoldfastQueueStuck": leave_work_in_the_queue,
    "HoldfastLongRunning": run_for_hours,
    "HoldfastFailing": fail_often,
    "HoldfastLeaseLosses": lose_leases,
    "HoldfastDeletesPending": delete_and_do_not_clean_up,
    "HoldfastErasuresPending": clean_up_and_do_not_overwrite,
    "HoldfastBudgetNearlyUsed": spend_the_budget,
    "HoldfastNoWorkers": lose_all_workers,
    "HoldfastDown": stop_the_server,
}
SMOKE = "HoldfastQueueStuck"


@pytest.mark.parametrize(
    "alert", [pytest.param(name, marks=[pytest.mark.smoke] if name == SMOKE else []) for name in FAULTS]
)
def test_an_alert_fires_at_its_fault_and_no_other_does(watched: Watched, alert: str) -> None:
    assert watched.alerts() == {}
    FAULTS[alert](watched)
    until(lambda: watched.alerts() == {alert: "firing"}, f"only {alert} fires")
    if alert != "HoldfastDown":
        assert watched.query('up{job="holdfast"}')[0]["value"][1] == "1"
    rules = [rule for group in watched.prometheus.get("rules")["groups"] for rule in group["rules"]]
    assert {rule["health"] for rule in rules} == {"ok"}


def test_the_age_of_the_queues_of_each_group_is_recorded_for_autoscalers(watched: Watched) -> None:
    def ages() -> dict[str, float]:
        found = watched.query("holdfast:group_queue_age_seconds")
        return {one["metric"]["group"]: float(one["value"][1]) for one in found}

    assert ages() == {"documents": 0, "vectors": 0, "models": 0}
    watched.put(1)
    watched.advance(timedelta(minutes=2))
    until(lambda: ages() == {"documents": 120, "vectors": 0, "models": 0}, "the age of the document is recorded")


def test_prometheus_evaluates_every_expression_of_the_dashboard(watched: Watched) -> None:
    panels = json.loads(DASHBOARD.read_text("utf-8"))["panels"]
    expressions = [target["expr"] for panel in panels for target in panel["targets"]]
    for expression in expressions:
        watched.query(expression.replace("$__rate_interval", "1m"))
    assert watched.query("sum by (state) (max by (kind, state) (holdfast_slots))")[0]["value"][1] == "2"


def test_every_alert_has_a_fault() -> None:
    assert re.findall(r"- alert: (\w+)", RULES.read_text("utf-8")) == sorted(FAULTS, key=RULES.read_text("utf-8").index)


@pytest.mark.smoke
def test_promtool_accepts_the_rules(prometheus: Path) -> None:
    ran = subprocess.run(
        [str(prometheus / "usr" / "bin" / "promtool"), "check", "rules", str(RULES)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert SUMMARY.search(ran.stdout)
