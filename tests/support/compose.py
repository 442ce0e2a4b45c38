"""Reads a compose file, and runs its services as plain processes on the loopback address.

No container engine is needed. Everything that the file says about a role is used: its command, its environment, its
ports, its health check, what it waits for, and how long it may take to stop. The programs come from an environment that
contains only what the image contains. The other services run from the servers of the tests, with the options of the
file. Networks, volumes, limits and the images themselves are not tried.
"""

from __future__ import annotations

import re
import signal
import subprocess
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Self

import psycopg
import yaml

from tests.support.processes import ROOT, until
from tests.support.servers import Child, Postgres, SeaweedFS, Server, Valkey, free_port, log_tail

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from types import TracebackType

COMPOSE_FILE = ROOT / "deploy/compose/compose.yaml"
DOCKERFILE = ROOT / "deploy/Dockerfile"
VARIABLE = re.compile(r"\$\{(\w+)(?::([-?])([^}]*))?\}")
PLAIN_PATH = "/usr/bin:/bin"


def read_services(variables: Mapping[str, str], file: Path = COMPOSE_FILE) -> dict[str, Any]:
    """Return the services of a compose file with its variables filled in."""
    content = yaml.safe_load(file.read_text("utf-8"))
    services: dict[str, Any] = _fill(content["services"], variables)
    return services


def _fill(value: Any, variables: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {name: _fill(inner, variables) for name, inner in value.items()}
    if isinstance(value, list):
        return [_fill(inner, variables) for inner in value]
    return VARIABLE.sub(lambda found: _value(found, variables), value) if isinstance(value, str) else value


def _value(found: re.Match[str], variables: Mapping[str, str]) -> str:
    name, rule, word = found.groups()
    if variables.get(name):
        return variables[name]
    assert rule == "-", f"{name} is not set: {word}"
    return str(word)


def image_environment() -> dict[str, str]:
    """Return the variables that the image sets."""
    lines = re.findall(r"^ENV (.+)$", DOCKERFILE.read_text("utf-8"), re.MULTILINE)
    return dict(word.split("=", 1) for line in lines for word in line.split())


def image_extras() -> str:
    """Return the extras of Holdfast that the image installs, separated by commas."""
    (extras,) = re.findall(r"pip install .*'\.\[([\w,]+)\]'$", DOCKERFILE.read_text("utf-8"), re.MULTILINE)
    return str(extras)


def seconds(duration: str) -> float:
    """Return the seconds of a duration such as `150s`."""
    assert re.fullmatch(r"\d+s", duration), duration
    return float(duration[:-1])


class _Database(Postgres):
    """PostgreSQL with the options, the user and the database of the service."""

    def __init__(self, directory: Path, service: Mapping[str, Any]) -> None:
        super().__init__(directory)
        self._service = service

    def _command(self) -> list[str]:
        return [*super()._command(), *self._service["command"][1:]]

    def start(self) -> None:
        super().start()
        user, name = (self._service["environment"][variable] for variable in ("POSTGRES_USER", "POSTGRES_DB"))
        self.create_database(name)
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(f'CREATE ROLE "{user}" SUPERUSER LOGIN')  # as the image does


class _Broker(Valkey):
    def __init__(self, directory: Path, service: Mapping[str, Any]) -> None:
        super().__init__(directory)
        self._options = service["command"][1:]

    def _command(self) -> list[str]:
        program, *listen = super()._command()
        return [program, *listen, *self._options]


class _Storage(SeaweedFS):
    def __init__(self, directory: Path, service: Mapping[str, Any]) -> None:
        super().__init__(directory)
        self._service = service

    def _command(self) -> list[str]:
        program, _ = super()._command()[:2]
        folder = f"-dir={self.directory.resolve() / 'data'}"
        options = [folder if word == "-dir=/data" else word.replace("0.0.0.0", "127.0.0.1") for word in self._options]  # noqa: S104
        ports = [f"-{name}={port}" for name, port in self._ports.items()]
        others = ["-ip=127.0.0.1", "-s3.port.iceberg=0", "-s3.port.lance=0", "-master.volumeSizeLimitMB=64"]
        return [program, *options, *ports, *others]

    @property
    def _options(self) -> list[str]:
        return list(self._service["command"])

    def _account(self) -> dict[str, Any]:
        return {"env": {"PATH": PLAIN_PATH, **self._service["environment"]}}


SERVERS: dict[str, type[_Database | _Broker | _Storage]] = {
    "database": _Database,
    "broker": _Broker,
    "storage": _Storage,
}


class Role:
    """A service that runs Holdfast, as a process."""

    def __init__(self, topology: Topology, name: str) -> None:
        self.name = name
        self.service = topology.services[name]
        self.log = topology.folder / f"{name}.log"
        self._topology = topology
        self._child: Child | None = None

    @property
    def environment(self) -> dict[str, str]:
        scratch = self._topology.folder / self.name
        scratch.mkdir(exist_ok=True)
        given = image_environment() | self.service["environment"]
        placed = {name: re.sub(r"^/tmp\b", str(scratch), self.locate(value)) for name, value in given.items()}
        return placed | {"PATH": f"{self._topology.programs}:{PLAIN_PATH}", "TMPDIR": str(scratch)}

    def locate(self, text: str) -> str:
        """Replace the addresses of the file by those of this run."""
        return self._topology.locate(text, self.name)

    def command(self, words: list[str]) -> list[str]:
        program, *others = words
        return [str(self._topology.programs / program), *map(self.locate, others)]

    def run(self, *words: str) -> str:
        """Run another command in place of its own, as `docker compose run` does, and return its output."""
        done = subprocess.run(
            self.command(list(words)), env=self.environment, cwd="/", capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def start(self) -> None:
        self._child = Child(self.command(self.service["command"]), log=self.log, cwd="/", env=self.environment)

    @property
    def healthy(self) -> bool:
        """Whether its health check succeeds."""
        self.assert_alive()
        kind, *words = self.service["healthcheck"]["test"]
        assert kind == "CMD"
        checked = subprocess.run(self.command(words), env=self.environment, cwd="/", capture_output=True, check=False)
        return checked.returncode == 0

    def assert_alive(self) -> None:
        assert self._child is not None
        assert self._child.alive, f"{self.name} ended; the end of its log:\n{log_tail(self.log)}"

    def await_end(self) -> int:
        """Wait until it ends by itself, and return its exit status."""
        assert self._child is not None
        return self._child._process.wait(60)

    def stop(self) -> tuple[int, float]:
        """Stop it with SIGTERM; return its exit status and the seconds it took."""
        assert self._child is not None
        began = time.monotonic()
        self._child._process.send_signal(signal.SIGTERM)
        status = self._child._process.wait(seconds(self.service["stop_grace_period"]))
        return status, time.monotonic() - began

    def end(self) -> None:
        if self._child is not None:
            self._child.end(signal.SIGKILL)


class Topology:
    """All services of the compose file. They end with the block."""

    def __init__(self, folder: Path, programs: Path, variables: Mapping[str, str]) -> None:
        self.folder = folder
        self.programs = programs
        self.services = read_services(variables)
        self.servers: dict[str, Server] = {
            name: make(folder / name, self.services[name]) for name, make in SERVERS.items()
        }
        self.roles = {name: Role(self, name) for name in self.services if name not in SERVERS}
        self._ports: dict[tuple[str, str], int] = {}
        self._started: set[str] = set()
        self._held = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._held.__exit__(kind, error, trace)

    def port(self, role: str, inside: str) -> int:
        """Return the port of this machine for a port of a role."""
        if (role, inside) not in self._ports:
            self._ports[role, inside] = free_port()
        return self._ports[role, inside]

    def locate(self, text: str, role: str) -> str:
        for name, server in self.servers.items():
            text = re.sub(rf"\b{name}:\d+\b", f"127.0.0.1:{server.port}", text)
        text = text.replace("0.0.0.0", "127.0.0.1")  # noqa: S104
        return re.sub(r"^(734\d)$|(?<=127\.0\.0\.1:)734\d\b", lambda found: str(self.port(role, found[0])), text)

    def up(self, *names: str) -> None:
        """Start services, by default all, each after those it waits for."""
        for name in names or self.services:
            if name not in self._started:
                self._started.add(name)
                self._await(name)
                self._start(name)

    def _await(self, name: str) -> None:
        """Start what a service depends on, and wait for the conditions."""
        for other, rule in self.services[name].get("depends_on", {}).items():
            self.up(other)
            if rule["condition"] == "service_completed_successfully":
                assert self.roles[other].await_end() == 0, log_tail(self.roles[other].log)
            elif other in self.roles:
                self.await_healthy(other)  # a server of the tests answers when it has started

    def await_healthy(self, name: str) -> None:
        role = self.roles[name]
        until(lambda: role.healthy, f"{name} is not healthy")

    def _start(self, name: str) -> None:
        if name in self.servers:
            self._held.enter_context(self.servers[name])
        else:
            self._held.callback(self.roles[name].end)
            self.roles[name].start()
