"""The autoscalers for Kubernetes follow the schema, and scale each group of workers by the age of its own queues."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml
from kubernetes_validate import latest_version, validate

from holdfast.wiring import list_kinds
from tests.support.deployment import DEPLOY, DeployedRole, kubernetes_roles
from tests.support.manifests import AUTOSCALING, read_autoscalers, read_kustomization

VERSIONS = ["1.30", latest_version().rpartition(".")[0]]
RECORD = "holdfast:group_queue_age_seconds"
AUTOSCALERS = {one["spec"]["scaleTargetRef"]["name"]: one for one in read_autoscalers()}
WORKERS = {role.name: role for role in kubernetes_roles() if role.kinds}
SELECTOR = re.compile(r'kind(=~|!~)"([^"]*)"')


def external_metric(autoscaler: dict[str, Any]) -> dict[str, Any]:
    (metric,) = autoscaler["spec"]["metrics"]
    found: dict[str, Any] = metric["external"]["metric"]
    return found


def recorded_kinds(group: str) -> frozenset[str]:
    """Return the kinds of work whose age is recorded for a group."""
    rules = yaml.safe_load((DEPLOY / "prometheus/holdfast.rules.yml").read_text("utf-8"))["groups"][0]["rules"]
    (rule,) = [one for one in rules if one.get("record") == RECORD and one["labels"]["group"] == group]
    ((operator, pattern),) = SELECTOR.findall(rule["expr"])
    return frozenset(kind for kind in list_kinds() if bool(re.fullmatch(pattern, kind)) == (operator == "=~"))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", AUTOSCALERS)
def test_an_autoscaler_follows_the_schema_of_kubernetes(name: str, version: str) -> None:
    assert validate(AUTOSCALERS[name], version, strict=True) == version


def test_every_group_of_workers_has_an_autoscaler_that_allows_its_replicas() -> None:
    assert AUTOSCALERS.keys() == WORKERS.keys()
    for name, role in WORKERS.items():
        limits = AUTOSCALERS[name]["spec"]
        assert limits["minReplicas"] == role.replicas < limits["maxReplicas"]


@pytest.mark.parametrize("role", WORKERS.values(), ids=WORKERS)
def test_a_group_is_scaled_by_the_age_of_the_work_that_it_does(role: DeployedRole) -> None:
    group = external_metric(AUTOSCALERS[role.name])["selector"]["matchLabels"]["group"]
    assert recorded_kinds(group) == role.kinds


def test_the_adapter_offers_the_metric_that_the_autoscalers_name() -> None:
    (rule,) = yaml.safe_load((DEPLOY / "prometheus/adapter.yaml").read_text("utf-8"))["rules"]["external"]
    assert RECORD in rule["seriesQuery"]
    assert rule["resources"] == {"namespaced": False}  # the series belong to no namespace
    assert {external_metric(one)["name"] for one in AUTOSCALERS.values()} == {rule["name"]["as"]}


def test_the_overlay_leaves_the_replicas_to_the_autoscalers_and_counts_all_workers() -> None:
    overlay = read_kustomization(AUTOSCALING)
    assert set(overlay["resources"]) == {"../kubernetes", "autoscalers.yaml"}
    removed, replaced = (yaml.safe_load(patch["patch"])[0] for patch in overlay["patches"])
    assert (removed["op"], removed["path"]) == ("remove", "/spec/replicas")
    pattern = overlay["patches"][0]["target"]["name"]
    assert {role.name for role in kubernetes_roles() if re.fullmatch(pattern, role.name)} == WORKERS.keys()
    most = sum(
        role.processes // role.replicas * AUTOSCALERS[name]["spec"]["maxReplicas"] for name, role in WORKERS.items()
    )
    assert (replaced["path"], int(replaced["value"])) == ("/data/HOLDFAST_WORKERS", most)
