"""CPU time of short commands on a small base, beside an interpreter that does nothing.

The goals are seconds of CPU on a quiet machine. A busy machine raises them together with the bare interpreter, so they
are compared after dividing by it: BARE_SECONDS is what `python -c pass` took where the goals were set.
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
BARE_SECONDS = 0.016
HOLDFAST = str(Path(sys.executable).with_name("holdfast"))


class Command(NamedTuple):
    """A command, and how much CPU it may take."""

    name: str
    arguments: Sequence[str]
    goal: float | None  # seconds of CPU; None: only reported


COMMANDS = (
    Command("import holdfast", (sys.executable, "-c", "import holdfast"), 0.05),
    Command("holdfast --help", (HOLDFAST, "--help"), 0.12),
    Command("holdfast status", (HOLDFAST, "status"), 0.5),
    Command("holdfast ls", (HOLDFAST, "ls"), 0.5),
    Command("holdfast search", (HOLDFAST, "search", "tides"), None),
)


def report(goals: dict[str, bool]) -> dict[str, float]:
    """Print every figure, and note which goals are reached."""
    print(f"Starting a command on a base of {DOCUMENTS} documents; CPU, the best of {ROUNDS}")
    figures = {}
    with TemporaryDirectory() as name:
        environment = {**os.environ, "HOLDFAST_HOME": str(Path(name) / "home")}
        _fill(Path(name), environment)
        bare = measure_cpu((sys.executable, "-c", "pass"), environment)
        print(f"  {'python -c pass':16} {bare:.3f} s")
        for command in COMMANDS:
            took = measure_cpu(command.arguments, environment)
            figures[command.name] = round(took, 3)
            goal = f", goal {command.goal} s" if command.goal else ""
            print(f"  {command.name:16} {took:.3f} s, {took / bare:.0f} times a bare interpreter{goal}")
            if command.goal:
                goals[f"start: {command.name}"] = took / bare <= command.goal / BARE_SECONDS
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
