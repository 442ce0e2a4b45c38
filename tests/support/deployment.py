"""The roles that the files in deploy/ start, in one form for all of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import click
from celery.bin.worker import worker as celery_worker

from holdfast.wiring import list_kinds
from tests.support.command_lines import parse
from tests.support.compose import SERVERS, read_services, seconds
from tests.support.manifests import container_of, environment_of, port_of, read_manifests
from tests.support.processes import ROOT
from tests.support.units import read_units

DEPLOY = ROOT / "deploy"
VARIABLES = {
    "DATABASE_PASSWORD": "a" * 64,
    "SECRET_KEY": "b" * 64,
    "STORAGE_ACCESS_KEY": "c" * 64,
    "STORAGE_SECRET_KEY": "d" * 64,
}
CELERY = ["celery", "--app=holdfast.celery", "worker"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeployedRole:
    """A process of Holdfast that stays: its command, its environment, and the seconds it may take to stop."""

    name: str
    command: list[str]
    environment: dict[str, str]
    grace: float
    health_port: int  # where it is asked for its health
    replicas: int = 1  # the maximum

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of work it does."""
        if self.command[0] != "celery":
            return frozenset()
        options = self.celery_options
        chosen, excluded = _kinds_of(options.get("queues", "")), _kinds_of(options.get("exclude_queues", ""))
        assert not (chosen and excluded)
        return chosen or frozenset(list_kinds()) - excluded

    @property
    def celery_options(self) -> dict[str, Any]:
        """The options of its command, as Celery's own parser reads them."""
        assert self.command[: len(CELERY)] == CELERY
        parser = celery_worker.make_parser(click.Context(celery_worker))
        options: dict[str, Any]
        options, others, _ = parser.parse_args(self.command[len(CELERY) :])
        assert others == []
        return options

    @property
    def processes(self) -> int:
        """How many of its processes claim work."""
        return self.replicas * int(self.celery_options["concurrency"]) if self.command[0] == "celery" else 0

    def check_command(self) -> None:
        """Raise an error if a parser refuses the command."""
        if self.command[0] == "celery":
            assert self.kinds
        else:
            assert parse(" ".join(self.command)) in {"web", "reconcile"}


def _kinds_of(queues: str) -> frozenset[str]:
    names = [name.split(".") for name in queues.split(",") if name]
    assert all(len(name) == 2 and name[0] == "holdfast" and name[1] in list_kinds() for name in names), queues
    return frozenset(kind for _, kind in names)


def compose_roles() -> list[DeployedRole]:
    services = read_services(VARIABLES)
    return [
        DeployedRole(
            name=name,
            command=service["command"],
            environment=service["environment"],
            grace=seconds(service["stop_grace_period"]),
            health_port=int(service["healthcheck"]["test"][-1].split("127.0.0.1:")[1].split("/")[0]),
        )
        for name, service in services.items()
        if name not in SERVERS and service["restart"] != "no"
    ]


def systemd_roles() -> list[DeployedRole]:
    return [
        DeployedRole(
            name=unit.name,
            command=unit.command,
            environment={name: text for name, text in unit.environment.items() if name != "OPTIONS"},
            grace=seconds(unit.value("TimeoutStopSec")),
            health_port=int(unit.environment["HOLDFAST_PORT" if unit.command[1] == "web" else "HOLDFAST_HEALTH_PORT"]),
        )
        for unit in read_units()
    ]


def kubernetes_roles() -> list[DeployedRole]:
    return [_kubernetes_role(deployment) for deployment in read_manifests("Deployment")]


def _kubernetes_role(deployment: dict[str, Any]) -> DeployedRole:
    container, pod = container_of(deployment), deployment["spec"]["template"]["spec"]
    probes = [container[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")]
    assert [probe["path"] for probe in probes] == ["/healthz", "/healthz", "/readyz"]
    (port,) = {port_of(container, probe["port"]) for probe in probes}
    before_stop = container.get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command", ["sleep", "0"])
    return DeployedRole(
        name=deployment["metadata"]["name"],
        command=container["command"],
        environment=environment_of(container),
        grace=pod["terminationGracePeriodSeconds"] - float(before_stop[1]),
        health_port=port,
        replicas=deployment["spec"]["replicas"],
    )
