"""Rules, dashboard and documents name only metrics and labels that the exposition has."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from holdfast.engine.store.tables import schema_version
from holdfast.metrics import METRICS, MetricType

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "deploy" / "prometheus" / "holdfast.rules.yml"
DASHBOARD = ROOT / "deploy" / "grafana" / "holdfast.json"
LABELS = {metric.name: set(metric.labels) for metric in METRICS if metric.type is not MetricType.HISTOGRAM} | {
    f"{metric.name}_{part}": {*metric.labels, "le"}
    for metric in METRICS
    if metric.type is MetricType.HISTOGRAM
    for part in ("bucket", "sum", "count")
}
OURS = re.compile(r"\bholdfast_\w+")
FAMILIES = {metric.name for metric in METRICS}
PAGES = sorted((ROOT / "docs").glob("*.md"))
MENTION = re.compile(r"`(holdfast_[a-z_]+)`|\((?:rate|increase)?\(?(holdfast_[a-z_]+)")


def dashboard() -> list[dict[str, Any]]:
    panels: list[dict[str, Any]] = json.loads(DASHBOARD.read_text("utf-8"))["panels"]
    return panels


def expressions() -> list[str]:
    return [target["expr"] for panel in dashboard() for target in panel["targets"]]


def test_the_rules_name_only_metrics_that_exist() -> None:
    assert set(OURS.findall(RULES.read_text("utf-8"))) <= LABELS.keys()


def test_the_dashboard_names_only_metrics_that_exist_and_shows_every_kind_of_them() -> None:
    named = set(OURS.findall(" ".join(expressions())))
    assert named <= LABELS.keys()
    shown = {name for name in FAMILIES if any(one.startswith(name) for one in named)}
    assert shown == FAMILIES


@pytest.mark.parametrize("expression", expressions())
def test_an_expression_uses_only_labels_of_its_metrics(expression: str) -> None:
    named = OURS.findall(expression)
    labels = set().union(*(LABELS[name] for name in named)) | {"job", "instance"}
    groups = re.findall(r"(?:by|on) \(([^)]*)\)", expression)
    grouped = {label.strip() for group in groups for label in group.split(",")}
    matched = {label for inside in re.findall(r"\{([^}]*)\}", expression) for label in re.findall(r"(\w+)=", inside)}
    assert grouped | matched <= labels


def test_the_panels_of_the_dashboard_do_not_overlap() -> None:
    cells: set[tuple[int, int]] = set()
    for panel in dashboard():
        place = panel["gridPos"]
        own = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not own & cells
        assert max(x for x, _ in own) < 24
        cells |= own


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_names_only_metrics_that_exist(page: Path) -> None:
    named = {one or other for one, other in MENTION.findall(page.read_text("utf-8"))}
    assert named <= LABELS.keys() | FAMILIES | {schema_version.name}
