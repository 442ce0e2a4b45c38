"""Reads the systemd units in deploy/systemd/ and their files of variables."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

from tests.support.processes import ROOT

if TYPE_CHECKING:
    from pathlib import Path

UNITS = ROOT / "deploy/systemd"
PROGRAMS = "/opt/holdfast/bin/"
VARIABLES_FOLDER = "/etc/holdfast/"
SECRET = "e" * 64  # in place of an empty variable, which the operator fills in


class Unit:
    """A service unit. `instance` is the part of its name after the @."""

    def __init__(self, file: Path, instance: str = "") -> None:
        self.name = file.name.replace("@", f"@{instance}") if instance else file.name
        self.lines = [
            line.replace("%i", instance).replace("%%", "%")
            for line in file.read_text("utf-8").splitlines()
            if line and line[0] not in "#["
        ]

    def values(self, key: str) -> list[str]:
        return [line.partition("=")[2] for line in self.lines if line.partition("=")[0] == key]

    def value(self, key: str) -> str:
        (value,) = self.values(key)
        return value

    @property
    def environment(self) -> dict[str, str]:
        """The variables of the unit. Those of a file win over those of the unit, as in systemd."""
        given = dict(line.split("=", 1) for line in self.values("Environment"))
        for path in self.values("EnvironmentFile"):
            given |= read_variables(path.removeprefix(VARIABLES_FOLDER))
        return given

    @property
    def command(self) -> list[str]:
        """The command of the unit. A variable that is a word of its own becomes several words, as in systemd."""
        given = self.environment
        words: list[str] = []
        for word in shlex.split(self.value("ExecStart")):
            variable = re.fullmatch(r"\$(\w+)", word)
            words += given[variable[1]].split() if variable else [word]
        return [words[0].removeprefix(PROGRAMS), *words[1:]]


def read_variables(name: str) -> dict[str, str]:
    lines = (UNITS / name).read_text("utf-8").splitlines()
    given = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
    return {name: value or SECRET for name, value in given.items()}


def read_units() -> list[Unit]:
    """Return the units of one machine that runs every role."""
    groups = sorted(file.stem.removeprefix("worker-") for file in UNITS.glob("worker-*.env"))
    plain = [Unit(file) for file in sorted(UNITS.glob("*.service")) if "@" not in file.name]
    return plain + [Unit(UNITS / "holdfast-worker@.service", group) for group in groups]
