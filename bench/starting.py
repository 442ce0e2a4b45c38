"""CPU time of short commands on a small base, beside the libraries that they cannot do without.

The floor of `--help` is Typer, that of a command that reads the database is Typer with SQLAlchemy. They are measured in
the same run, because a busy machine raises everything.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ROUNDS = 5
DOCUMENTS = 20
HOLDFAST = str(Path(sys.executable).with_name("holdfast"))


class Command(NamedTuple):
    """A command, and how much CPU it may take."""

    name: str
    arguments: Sequence[str]
    floor: str  # in FLOORS
    goal: float | None  # times the floor; None: only reported


FLOORS = {
    "Python": "pass",
    "Typer": "import typer",
    "Typer and SQLAlchemy": "import typer, sqlalchemy.dialects.sqlite, sqlalchemy.dialects.postgresql",
}
COMMANDS = (
    Command("import holdfast", (sys.executable, "-c", "import holdfast"), "Python", 3.0),
    Command("holdfast --help", (HOLDFAST, "--help"), "Typer", 1.5),
    Command("holdfast status", (HOLDFAST, "status"), "Typer and SQLAlchemy", 2.0),
    Command("holdfast ls", (HOLDFAST, "ls"), "Typer and SQLAlchemy", 2.0),
    Command("holdfast search", (HOLDFAST, "search", "tides"), "Typer and SQLAlchemy", None),
)


def report(goals: dict[str, bool]) -> dict[str, float]:
    """Print every figure, and note which goals are reached."""
    print(f"Starting a command on a base of {DOCUMENTS} documents; CPU, the best of {ROUNDS}")
    figures = {}
    with TemporaryDirectory() as name:
        environment = {**os.environ, "HOLDFAST_HOME": str(Path(name) / "home")}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # else every start compiles what a user has compiled once
        _fill(Path(name), environment)
        floors = {floor: measure_cpu((sys.executable, "-c", code), environment) for floor, code in FLOORS.items()}
        for floor, took in floors.items():
            print(f"  {floor:20} {took:.3f} s")
        for command in COMMANDS:
            took = measure_cpu(command.arguments, environment)
            figures[command.name] = round(took, 3)
            ratio = took / floors[command.floor]
            goal = f", goal {command.goal:.1f}" if command.goal else ""
            print(f"  {command.name:20} {took:.3f} s, {ratio:.1f} times {command.floor}{goal}")
            if command.goal:
                goals[f"start: {command.name}"] = ratio <= command.goal
    return figures


def measure_cpu(arguments: Sequence[str], environment: Mapping[str, str]) -> float:
    """Return the CPU seconds of a command and of the processes it waited for: the best of some rounds."""
    return min(_run(arguments, environment) for _ in range(ROUNDS))


def _run(arguments: Sequence[str], environment: Mapping[str, str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(arguments, env=environment, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _fill(folder: Path, environment: Mapping[str, str]) -> None:
    notes = folder / "notes"
    notes.mkdir()
    for number in range(DOCUMENTS):
        (notes / f"note {number}.md").write_text(f"# Note {number}\n\nThe tides of day {number} were high.\n")
    for command in (("base", "create", "default"), ("sync", str(notes))):
        subprocess.run((HOLDFAST, *command), env=environment, check=True, capture_output=True)


if __name__ == "__main__":
    reached: dict[str, bool] = {}
    report(reached)
    print(f"  {reached}")
    sys.exit(not all(reached.values()))
