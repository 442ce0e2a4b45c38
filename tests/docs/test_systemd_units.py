"""The units in deploy/systemd/: systemd accepts them, they are restricted, and they can run on one machine."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.deployment import systemd_roles
from tests.support.units import PROGRAMS, UNITS, Unit, read_units

MOST_EXPOSED = 20  # on the scale of `systemd-analyze security` from 0 to 100; without any restriction it is 96
OWN_KEYS = {"Description", "ExecStart", "Environment", "EnvironmentFile"}


@pytest.fixture
def units(tmp_path: Path) -> list[Path]:
    """Copies of the units that name the programs of this environment."""
    programs = f"{Path(sys.executable).parent}/"
    for file in UNITS.iterdir():
        if file.suffix in {".service", ".target"}:
            name = file.name.replace("@", "@vectors")
            (tmp_path / name).write_text(file.read_text("utf-8").replace(PROGRAMS, programs))
    return sorted(tmp_path.iterdir())


def analyze(systemd: Path, *words: object) -> subprocess.CompletedProcess[str]:
    """Run `systemd-analyze` from the unpacked package."""
    libraries = [folder for top in ("lib", "usr/lib") for folder in (systemd / top).glob("*-linux-gnu*")]
    path = ":".join(map(str, [*libraries, *(folder / "systemd" for folder in libraries)]))
    known = f"{systemd / 'lib/systemd/system'}:"  # the units of systemd itself, and those of this machine
    return subprocess.run(
        [systemd / "usr/bin/systemd-analyze", *map(str, words)],
        env=os.environ | {"LD_LIBRARY_PATH": path, "SYSTEMD_UNIT_PATH": known},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def test_systemd_accepts_every_unit_without_a_remark(systemd: Path, units: list[Path]) -> None:
    verified = analyze(systemd, "verify", "--man=no", *units)
    assert (verified.returncode, verified.stdout) == (0, "")


def test_systemd_rates_every_service_as_hardly_exposed(systemd: Path, units: list[Path]) -> None:
    for unit in units:
        if unit.suffix == ".service":
            rated = analyze(systemd, "security", "--offline=true", "--no-pager", f"--threshold={MOST_EXPOSED}", unit)
            assert rated.returncode == 0, rated.stdout
            assert "Overall exposure level" in rated.stdout


def test_the_services_differ_only_in_their_command_and_their_variables() -> None:
    shared = [[line for line in unit.lines if line.partition("=")[0] not in OWN_KEYS] for unit in read_units()]
    assert all(lines == shared[0] for lines in shared)


@pytest.mark.parametrize("unit", read_units(), ids=lambda unit: unit.name)
def test_a_reconciler_sees_the_processes_of_workers_and_their_death(unit: Unit) -> None:
    assert not unit.values("ProtectProc")
    assert not unit.values("ProcSubset")
    assert unit.value("KillMode") == "mixed"
    assert unit.value("OOMPolicy") == "continue"


def test_the_roles_of_a_machine_use_different_ports() -> None:
    ports = [role.health_port for role in systemd_roles()]
    assert len(set(ports)) == len(ports)


def test_every_file_that_a_unit_reads_is_there() -> None:
    files = {re.sub(r"^/etc/holdfast/", "", path) for unit in read_units() for path in unit.values("EnvironmentFile")}
    assert files == {file.name for file in UNITS.glob("*.env")}
