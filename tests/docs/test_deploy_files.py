"""Settings, commands, queues, ports and times in the files of deploy/ are those of Holdfast, in each way to deploy."""

from __future__ import annotations

import json
import re
import tomllib
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from jsonschema import Draft7Validator  # type: ignore[import-untyped]  # it has no types

from holdfast.settings import Settings
from holdfast.wiring import list_kinds
from tests.support.compose import COMPOSE_FILE, DOCKERFILE, VARIABLE, image_environment, image_extras, read_services
from tests.support.deployment import DEPLOY, VARIABLES, DeployedRole, compose_roles, kubernetes_roles, systemd_roles
from tests.support.processes import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable

WAYS: dict[str, Callable[[], list[DeployedRole]]] = {
    "compose": compose_roles,
    "systemd": systemd_roles,
    "kubernetes": kubernetes_roles,
}
# What every way to deploy sets in the same way. The rest are addresses, secrets and ports of a machine.
COMMON = ("production", "data", "scheduler", "keys", "port", "drain")
SPARE_SECONDS = 20  # between the end of the drain and a kill
# docs/postgres.md: connections of a web server, of a worker process or reconciler, and for administration.
WEB_CONNECTIONS, WORK_CONNECTIONS, ADMINISTRATION = 44, 9, 10


@pytest.fixture(params=WAYS)
def roles(request: pytest.FixtureRequest) -> list[DeployedRole]:
    return WAYS[request.param]()


def test_every_role_starts_with_settings_that_holdfast_accepts(roles: list[DeployedRole]) -> None:
    for role in roles:
        settings = Settings.from_environment(image_environment() | role.environment)
        assert settings.production, role.name


def test_the_parsers_of_the_programs_accept_every_command(roles: list[DeployedRole]) -> None:
    for role in roles:
        role.check_command()
    assert sorted(role.command[1] for role in roles if role.command[0] == "holdfast") == ["reconcile", "web"]


def test_every_kind_of_work_has_exactly_one_group_of_workers(roles: list[DeployedRole]) -> None:
    assert sorted(kind for role in roles for kind in role.kinds) == sorted(list_kinds())


def test_one_group_also_does_the_kinds_of_other_packages(roles: list[DeployedRole]) -> None:
    excluding = [role for role in roles if role.kinds and "exclude_queues" in role.celery_options]
    assert len(excluding) == 1


def test_the_number_of_workers_is_that_of_all_processes(roles: list[DeployedRole]) -> None:
    processes = sum(role.processes for role in roles)
    assert {Settings.from_environment(role.environment).workers for role in roles} == {processes}


def test_a_role_that_stops_has_more_time_than_it_drains(roles: list[DeployedRole]) -> None:
    for role in roles:
        drain = Settings.from_environment(role.environment).drain.total_seconds()
        assert role.grace >= drain + SPARE_SECONDS, role.name


def test_health_checks_use_the_port_on_which_a_role_answers(roles: list[DeployedRole]) -> None:
    for role in roles:
        settings = Settings.from_environment(role.environment)
        answering = settings.port if role.command[1] == "web" else settings.health_port
        assert role.health_port == answering, role.name


def test_every_way_to_deploy_has_the_same_roles_and_the_same_settings() -> None:
    compared = []
    for make in WAYS.values():
        roles = make()
        commands = sorted(sorted(role.command) for role in roles)
        settings = [Settings.from_environment(role.environment) for role in roles]
        compared.append((commands, {tuple(getattr(one, name) for name in COMMON) for one in settings}))
    assert all(one == compared[0] for one in compared)
    assert len(compared[0][1]) == 1


def test_the_compose_file_follows_the_schema_of_the_specification() -> None:
    schema = json.loads(files("check_jsonschema.builtin_schemas").joinpath("vendor/compose-spec.json").read_text())
    content = yaml.safe_load(COMPOSE_FILE.read_text("utf-8"))
    assert [error.message for error in Draft7Validator(schema).iter_errors(content)] == []


def test_the_compose_file_declares_every_volume_network_and_service_it_names() -> None:
    content = yaml.safe_load(COMPOSE_FILE.read_text("utf-8"))
    services: dict[str, Any] = content["services"]
    named = {volume.split(":")[0] for service in services.values() for volume in service.get("volumes", [])}
    assert named == content["volumes"].keys()
    assert {name for service in services.values() for name in service["networks"]} == content["networks"].keys()
    assert {name for service in services.values() for name in service.get("depends_on", ())} <= services.keys()


def test_example_env_names_every_variable_that_the_compose_file_requires() -> None:
    required = {name for name, rule, _ in VARIABLE.findall(COMPOSE_FILE.read_text("utf-8")) if rule == "?"}
    named = re.findall(r"^(\w+)=$", (DEPLOY / "compose/example.env").read_text("utf-8"), re.MULTILINE)
    assert required == set(named) == VARIABLES.keys()


def test_a_role_in_compose_has_no_rights_and_can_write_only_its_temporary_folder() -> None:
    services = read_services(VARIABLES)
    for role in compose_roles():
        service = services[role.name]
        assert service["read_only"]
        assert service["cap_drop"] == ["ALL"]
        (folder,) = service["tmpfs"]
        assert folder.startswith("/tmp:exec,")  # noqa: S108 - readers load a library from there
        assert "volumes" not in service


def test_only_the_roles_of_holdfast_reach_other_networks() -> None:
    content = yaml.safe_load(COMPOSE_FILE.read_text("utf-8"))
    assert content["networks"]["inside"] == {"internal": True}
    outside = {name for name, service in content["services"].items() if "outside" in service["networks"]}
    assert outside == {role.name for role in compose_roles()} | {"bucket"}
    published = [port for service in content["services"].values() for port in service.get("ports", ())]
    assert published == ["127.0.0.1:7340:7340"]


def test_postgresql_in_compose_accepts_the_connections_of_all_roles() -> None:
    needed = ADMINISTRATION
    for role in compose_roles():
        needed += WEB_CONNECTIONS if role.command[1] == "web" else WORK_CONNECTIONS * max(role.processes, 1)
    (setting,) = [word for word in read_services(VARIABLES)["database"]["command"] if word.startswith("max_conn")]
    assert int(setting.partition("=")[2]) >= needed


def test_the_image_installs_known_extras_and_runs_as_a_user_without_rights() -> None:
    text = DOCKERFILE.read_text("utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert set(image_extras().split(",")) <= project["optional-dependencies"].keys()
    assert re.findall(r"^USER (.+)$", text, re.MULTILINE) == ["10001:10001"]
    copied = [word for line in re.findall(r"^COPY (?!--)(.+) \S+$", text, re.MULTILINE) for word in line.split()]
    assert all((ROOT / name).exists() for name in copied)
    kept = (DEPLOY / "Dockerfile.dockerignore").read_text("utf-8").splitlines()
    assert sorted(line[1:] for line in kept if line.startswith("!")) == sorted(copied)
