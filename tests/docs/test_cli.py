"""docs/cli.md documents every command, every option and every exit code, and no others."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.main import get_command

from holdfast.cli.app import COMMANDS as TABLE
from holdfast.cli.app import app
from holdfast.cli.command import COMMON_OPTIONS
from holdfast.cli.exit_codes import ExitCode

if TYPE_CHECKING:
    from collections.abc import Iterator

TEXT = (Path(__file__).resolve().parents[2] / "docs/cli.md").read_text()
SECTIONS = {
    part.partition("`")[0]: part
    for part in re.split(r"^### `holdfast ", TEXT.partition("## Putting in")[2], flags=re.MULTILINE)
}
TOP: Any = get_command(app)


def commands() -> Iterator[tuple[str, Any]]:
    for name, command in TOP.commands.items():
        for below, one in getattr(command, "commands", {"": command}).items():
            yield f"{name} {below}".strip(), one


COMMANDS = dict(commands())


def told(text: str) -> set[str]:
    """Return the options that the first column of a table names."""
    return {
        word
        for line in re.findall(r"^\| (`[^|]*`) \|", text, re.MULTILINE)
        for word in re.findall(r"(?<![\w-])--?[a-z][a-z-]*", line)
    }


def test_every_command_is_documented_and_no_other() -> None:
    assert {name for name in SECTIONS if name.strip()} == set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_documented_and_no_other(name: str) -> None:
    options = {
        option
        for one in COMMANDS[name].params
        if one.param_type_name == "option" and not one.hidden and one.name not in COMMON_OPTIONS and one.name != "help"
        for option in one.opts
    }
    assert told(SECTIONS[name]) == options


@pytest.mark.parametrize("name", COMMANDS)
def test_every_argument_is_documented(name: str) -> None:
    for one in COMMANDS[name].params:
        if one.param_type_name == "argument":
            assert one.metavar.replace("|", "\\|") in SECTIONS[name]


def test_the_common_options_are_documented() -> None:
    everywhere = TEXT.partition("## Everywhere")[2].partition("## Exit codes")[0]
    options = {option for one in TOP.params for option in one.opts}
    assert told(everywhere) == options | {"--help", "-h"}


def test_every_exit_code_is_documented() -> None:
    rows = re.findall(r"^\| (\d+) \| `(\w+)` \|", TEXT, re.MULTILINE)
    assert {(int(code), name) for code, name in rows} == {(int(one), one.name.lower()) for one in ExitCode}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_json_option_and_a_short_help_that_fits_a_line(name: str) -> None:
    assert any("--json" in one.opts for one in COMMANDS[name].params)
    assert not COMMANDS[name].get_short_help_str(72).endswith("...")


@pytest.mark.parametrize("name", TABLE)
def test_the_table_of_commands_has_the_summary_of_the_command_itself(name: str) -> None:
    assert TABLE[name].summary == TOP.commands[name].get_short_help_str(limit=200)
