"""Reads the manifests in deploy/kubernetes/."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

from tests.support.processes import ROOT

if TYPE_CHECKING:
    from pathlib import Path

MANIFESTS = ROOT / "deploy/kubernetes"
AUTOSCALING = ROOT / "deploy/kubernetes-autoscaling"
TEMPLATE = "secret.example.yaml"
SECRET = "f" * 64  # in place of an empty value, which the operator fills in


def read_kustomization(folder: Path = MANIFESTS) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((folder / "kustomization.yaml").read_text("utf-8"))
    return content


def read_autoscalers() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((AUTOSCALING / "autoscalers.yaml").read_text("utf-8")))


def read_manifests(kind: str = "") -> list[dict[str, Any]]:
    """Return the objects that the kustomization applies, and the template of the secret; only those of a kind."""
    names = [*read_kustomization()["resources"], TEMPLATE]
    found = [one for name in names for one in yaml.safe_load_all((MANIFESTS / name).read_text("utf-8"))]
    return [one for one in found if kind in {"", one["kind"]}]


def environment_of(container: dict[str, Any]) -> dict[str, str]:
    """Return the variables of a container from the ConfigMap and the Secret that it names."""
    maps = {one["metadata"]["name"]: one["data"] for one in read_manifests("ConfigMap")}
    secrets = {one["metadata"]["name"]: one["stringData"] for one in read_manifests("Secret")}
    given: dict[str, str] = {}
    for source in container["envFrom"]:
        if "configMapRef" in source:
            given |= maps[source["configMapRef"]["name"]]
        else:
            given |= {name: text or SECRET for name, text in secrets[source["secretRef"]["name"]].items()}
    return given


def container_of(deployment: dict[str, Any]) -> dict[str, Any]:
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return dict(container)


def port_of(container: dict[str, Any], name: str) -> int:
    (port,) = [port["containerPort"] for port in container["ports"] if port["name"] == name]
    return int(port)
