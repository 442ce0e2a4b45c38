"""The manifests in deploy/kubernetes/ follow the schemas of Kubernetes, and name what exists."""

from __future__ import annotations

from typing import Any

import pytest
from kubernetes_validate import ValidationError, latest_version, validate

from holdfast.content.readers.base import ReadLimits
from tests.support.deployment import kubernetes_roles
from tests.support.manifests import MANIFESTS, TEMPLATE, container_of, port_of, read_kustomization, read_manifests

VERSIONS = ["1.30", latest_version().rpartition(".")[0]]
OBJECTS = read_manifests()
DEPLOYMENTS = read_manifests("Deployment")
OWN_MEMORY = 400 << 20  # of a group of workers without its readers; measured with 40 documents: at most 325 MB


def name_of(one: dict[str, Any]) -> str:
    return f"{one['kind']}-{one['metadata']['name']}"


def pod_labels(deployment: dict[str, Any]) -> dict[str, str]:
    return dict(deployment["spec"]["template"]["metadata"]["labels"])


def selected_by(selector: dict[str, str]) -> list[str]:
    """Return the deployments whose pods have these labels."""
    return [one["metadata"]["name"] for one in DEPLOYMENTS if selector.items() <= pod_labels(one).items()]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("manifest", OBJECTS, ids=name_of)
def test_every_object_follows_the_schema_of_kubernetes(manifest: dict[str, Any], version: str) -> None:
    assert validate(manifest, version, strict=True) == version


def test_the_schema_refuses_a_field_that_does_not_exist() -> None:
    with pytest.raises(ValidationError):
        validate({**DEPLOYMENTS[0], "replicas": 2}, VERSIONS[-1], strict=True)


def test_the_kustomization_applies_every_file_but_the_template_of_the_secret() -> None:
    files = {file.name for file in MANIFESTS.glob("*.yaml")} - {"kustomization.yaml", TEMPLATE}
    assert files == set(read_kustomization()["resources"])


def test_the_objects_have_different_names_and_the_namespace_exists() -> None:
    names = [name_of(one) for one in OBJECTS]
    assert len(set(names)) == len(names)
    namespace = read_kustomization()["namespace"]
    assert f"Namespace-{namespace}" in names
    (secret,) = read_manifests("Secret")  # applied without the kustomization
    assert secret["metadata"]["namespace"] == namespace


@pytest.mark.parametrize("deployment", DEPLOYMENTS, ids=name_of)
def test_a_deployment_selects_its_own_pods(deployment: dict[str, Any]) -> None:
    assert selected_by(deployment["spec"]["selector"]["matchLabels"]) == [deployment["metadata"]["name"]]


@pytest.mark.parametrize("deployment", DEPLOYMENTS, ids=name_of)
def test_a_deployment_has_a_budget_for_disruptions(deployment: dict[str, Any]) -> None:
    name = deployment["metadata"]["name"]
    (budget,) = [one for one in read_manifests("PodDisruptionBudget") if one["metadata"]["name"] == name]
    assert selected_by(budget["spec"]["selector"]["matchLabels"]) == [name]
    assert budget["spec"]["maxUnavailable"] < deployment["spec"]["replicas"]


@pytest.mark.parametrize("deployment", DEPLOYMENTS, ids=name_of)
def test_kubernetes_sets_no_variables_that_look_like_settings(deployment: dict[str, Any]) -> None:
    # A Service named `holdfast` would set HOLDFAST_PORT in pods that accept links to services.
    assert deployment["spec"]["template"]["spec"]["enableServiceLinks"] is False


@pytest.mark.parametrize("deployment", DEPLOYMENTS, ids=name_of)
def test_a_pod_has_no_rights_and_can_write_only_its_temporary_folder(deployment: dict[str, Any]) -> None:
    pod, container = deployment["spec"]["template"]["spec"], container_of(deployment)
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 10001,
        "runAsGroup": 10001,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert [mount["mountPath"] for mount in container["volumeMounts"]] == ["/tmp"]  # noqa: S108 - of the container
    (volume,) = pod["volumes"]
    assert set(volume["emptyDir"]) == {"sizeLimit"}  # a disk: one in memory could be mounted noexec


def test_the_web_server_is_reached_through_the_service_and_the_ingress() -> None:
    (service,), (ingress,) = read_manifests("Service"), read_manifests("Ingress")
    assert selected_by(service["spec"]["selector"]) == ["web"]
    (port,) = service["spec"]["ports"]
    (web,) = [one for one in DEPLOYMENTS if one["metadata"]["name"] == "web"]
    assert port_of(container_of(web), port["targetPort"]) == 7340
    (rule,) = ingress["spec"]["rules"]
    (path,) = rule["http"]["paths"]
    assert path["backend"]["service"] == {"name": service["metadata"]["name"], "port": {"name": port["name"]}}
    assert ingress["spec"]["tls"][0]["hosts"] == [rule["host"]]


def test_only_the_web_server_accepts_requests() -> None:
    accepting = [one["spec"] for one in read_manifests("NetworkPolicy") if one["spec"].get("ingress")]
    refusing = [one["spec"] for one in read_manifests("NetworkPolicy") if not one["spec"].get("ingress")]
    assert [selected_by(one["podSelector"]["matchLabels"]) for one in accepting] == [["web"]]
    assert [len(selected_by(one["podSelector"]["matchLabels"])) for one in refusing] == [len(DEPLOYMENTS)]


def test_the_pods_that_read_files_have_memory_for_the_largest_of_them() -> None:
    (role,) = [role for role in kubernetes_roles() if "content" in role.kinds]
    (pod,) = [container_of(one) for one in DEPLOYMENTS if one["metadata"]["name"] == role.name]
    limit = pod["resources"]["limits"]["memory"]
    assert limit.endswith("Gi")
    assert int(limit[:-2]) << 30 >= role.processes // role.replicas * ReadLimits().memory + OWN_MEMORY
