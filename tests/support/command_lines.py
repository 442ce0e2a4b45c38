"""Parses command lines of `holdfast` with its own parser, without running a command."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from typer.main import get_command

from holdfast.cli.app import app
from holdfast.cli.command import EXAMPLE_HEADING

if TYPE_CHECKING:
    from collections.abc import Iterator

TOP: Any = get_command(app)


def commands() -> Iterator[tuple[str, Any]]:
    """Yield every command with its name, such as `queue ls`."""
    for name, command in TOP.commands.items():
        for below, one in getattr(command, "commands", {"": command}).items():
            yield f"{name} {below}".strip(), one


COMMANDS = dict(commands())


def examples(help_text: str) -> list[str]:
    """Return the command lines of the example in a help text."""
    lines = help_text.partition(f"\n{EXAMPLE_HEADING}\n")[2].partition("\n\n")[0].splitlines()
    return [line.strip() for line in lines if line.strip()]


def parse(line: str) -> str:
    """Parse a command line and return the name of its command. Raise the error of the parser if it is invalid."""
    program, *words = shlex.split(line)
    assert program == "holdfast", line
    command = TOP
    context = command.make_context(program, words)
    names = []
    while hasattr(command, "commands"):
        name, command, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        names.append(name)
        context = command.make_context(name, rest, parent=context)
    return " ".join(names)
