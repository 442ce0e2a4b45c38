"""`/metrics`: what Prometheus reads, in both formats, and who may read it."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import httpx2
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from holdfast.metrics import METRICS, MetricType
from tests.support.timeouts import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from prometheus_client import Metric as MetricFamily

    from tests.support.clock import FakeClock
    from tests.support.http_site import HttpSite

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
NAME, TEXT = "secretname.txt", "A canary word of a document: xylocanary."


def scrape(site: HttpSite, **headers: str) -> httpx2.Response:
    return httpx2.get(f"{site.address}/metrics", headers=headers, timeout=PATIENCE_SECONDS, trust_env=False)


def read_families(site: HttpSite) -> dict[str, MetricFamily]:
    answer = scrape(site)
    assert answer.status_code == 200
    return {family.name: family for family in parse_text(answer.text)}


def values(site: HttpSite) -> dict[tuple[Any, ...], float]:
    """Return the value of each sample, by its name and its labels."""
    return {
        (sample.name, *(sample.labels[label] for label in sorted(sample.labels))): sample.value
        for family in read_families(site).values()
        for sample in family.samples
    }


def test_every_metric_is_exposed_with_its_type_and_its_help(site: HttpSite) -> None:
    families = read_families(site)
    for metric in METRICS:
        family = families[metric.name.removesuffix("_total")]
        assert family.type == metric.type
        assert family.documentation.replace("\\", "") == metric.help
    assert "process_cpu_seconds" in families


def test_an_indexed_document_is_counted(site: HttpSite) -> None:
    site.index(NAME, TEXT)
    found = values(site)
    for kind in ("content", "fulltext"):
        assert found["holdfast_slots", kind, "ready"] == 1.0
        assert found["holdfast_claims_total", kind] == found["holdfast_commits_total", kind] == 1.0
    assert found["holdfast_pending_deletes",] == 0.0


def test_queued_work_has_an_age(site: HttpSite, clock: FakeClock) -> None:
    site.upload(NAME, TEXT)
    clock.advance(timedelta(seconds=90))
    assert values(site)["holdfast_oldest_queued_seconds", "content"] == 90.0


def test_the_counts_do_not_change_when_another_process_rolls_up(site: HttpSite) -> None:
    site.index(NAME, TEXT)
    site.upload(NAME, TEXT)  # a duplicate
    before = {key: value for key, value in values(site).items() if key[0].startswith("holdfast")}
    assert sum(value for key, value in before.items() if key[0] == "holdfast_duplicates_total") == 1.0
    site.rig.store.roll_up()
    assert {key: value for key, value in values(site).items() if key[0].startswith("holdfast")} == before


def test_an_open_event_stream_is_counted(site: HttpSite) -> None:
    with site.http.stream("GET", "/events/stream") as stream:
        received = stream.iter_bytes()
        next(received)
        assert values(site)["holdfast_event_streams",] == 1.0


def test_prometheus_gets_openmetrics_when_it_asks_for_it(site: HttpSite) -> None:
    site.index(NAME, TEXT)
    answer = scrape(site, accept=f"{OPENMETRICS},text/plain;version=0.0.4;q=0.5")
    assert answer.headers["content-type"].startswith(OPENMETRICS)
    families = {family.name: family for family in parse_openmetrics(answer.text)}  # type: ignore[no-untyped-call]
    assert {metric.name.removesuffix("_total") for metric in METRICS} <= families.keys()
    assert scrape(site).headers["content-type"].startswith("text/plain; version=0.0.4")


def test_no_name_and_no_text_of_a_document_is_in_the_metrics(site: HttpSite) -> None:
    site.index(NAME, TEXT)
    site.index("broken.pdf", "%PDF-1.4 broken")
    text = scrape(site).text
    assert 'state="failed"' in text
    assert not any(word in text for word in ("secretname", "xylocanary", "broken"))


def test_every_label_of_a_sample_is_declared(site: HttpSite) -> None:
    site.index(NAME, TEXT)
    declared = {metric.name.removesuffix("_total"): {*metric.labels} for metric in METRICS}
    histograms = {metric.name for metric in METRICS if metric.type is MetricType.HISTOGRAM}
    for name, family in read_families(site).items():
        for sample in family.samples if name in declared else ():
            assert sample.labels.keys() - ({"le"} if name in histograms else set()) == declared[name]


def test_without_keys_everybody_on_this_machine_may_read(site: HttpSite) -> None:
    assert scrape(site).status_code == 200


def test_with_keys_a_key_that_reads_all_bases_is_needed(open_site: Callable[..., HttpSite]) -> None:
    site = open_site(needs_key=True)
    assert scrape(site).status_code == 401
    assert scrape(site, authorization="Bearer hf_wrong").status_code == 401
    assert scrape(site, **site.key("read", "shelf")).status_code == 403
    assert scrape(site, **site.key("read")).status_code == 200


def test_the_token_for_metrics_opens_metrics_and_nothing_else(open_site: Callable[..., HttpSite]) -> None:
    site = open_site(needs_key=True, metrics_token="observe-me")  # noqa: S106 - of this test only
    token = {"authorization": "Bearer observe-me"}
    assert scrape(site, **token).status_code == 200
    assert scrape(site, authorization="Bearer observe-you").status_code == 401
    assert scrape(site, **site.key("read")).status_code == 200
    assert site.http.get("/bases", headers=token).status_code == 401


def test_with_a_token_nobody_reads_metrics_without_it(open_site: Callable[..., HttpSite]) -> None:
    site = open_site(metrics_token="observe-me")  # noqa: S106 - of this test only
    assert scrape(site).status_code == 401
    assert site.http.get("/bases").status_code == 200
