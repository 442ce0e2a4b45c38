"""docs/metrics.md lists every metric with its type, its labels and its meaning."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from holdfast.metrics import METRICS, Metric

TEXT = (Path(__file__).resolve().parents[2] / "docs/metrics.md").read_text("utf-8")
ROW = re.compile(r"^\| `(holdfast_\w+)` \| (\w+) \|([^|]*)\| (.+) \|$", re.MULTILINE)
ROWS = {name: (type_, re.findall(r"`(\w+)`", labels), meaning) for name, type_, labels, meaning in ROW.findall(TEXT)}


def test_the_page_lists_every_metric_in_the_order_of_the_code() -> None:
    assert list(ROWS) == [metric.name for metric in METRICS]


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_a_row_has_the_type_the_labels_and_the_meaning_of_its_metric(metric: Metric) -> None:
    assert ROWS[metric.name] == (str(metric.type), list(metric.labels), metric.help)


def test_every_metric_that_the_page_mentions_exists() -> None:
    families = {metric.name for metric in METRICS}
    assert set(re.findall(r"\bholdfast_\w+\b", TEXT)) <= families


def test_the_page_lists_every_alert_in_the_order_of_the_rules() -> None:
    rules = (Path(__file__).resolve().parents[2] / "deploy/prometheus/holdfast.rules.yml").read_text("utf-8")
    listed = re.findall(r"^\| `(Holdfast\w+)` \|", TEXT, re.MULTILINE)
    assert listed == re.findall(r"- alert: (\w+)", rules)
