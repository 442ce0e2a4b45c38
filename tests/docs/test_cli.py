"""docs/cli.md documents every command, every option and every exit code, in the words of the help texts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli.app import COMMANDS as TABLE
from holdfast.cli.command import COMMON_OPTIONS, EXAMPLE_HEADING, format_argument
from holdfast.cli.exit_codes import ExitCode
from tests.support.command_lines import COMMANDS, TOP, examples

TEXT = (Path(__file__).resolve().parents[2] / "docs/cli.md").read_text()
HEADINGS = list(dict.fromkeys(entry.section for entry in TABLE.values()))
REFERENCE = TEXT[TEXT.index(f"## {HEADINGS[0]}\n") :]
SECTIONS = {
    name: text.partition("\n## ")[0]
    for name, text in re.findall(
        r"^### `holdfast ([^`]+)`\n(.*?)(?=^### |\Z)", REFERENCE, flags=re.MULTILINE | re.DOTALL
    )
}


def own_options(command: Any) -> list[Any]:
    """Return the options of a command without those that every command has."""
    options = (one for one in command.params if one.param_type_name == "option")
    return [one for one in options if not one.hidden and one.name not in COMMON_OPTIONS and one.name != "help"]


def rows(command: Any) -> list[str]:
    """Return the table of a command: its arguments and options with their help texts."""
    arguments = (one for one in command.params if one.param_type_name == "argument")
    found = [(format_argument(one), one) for one in arguments]
    found += [(" ".join((", ".join(one.opts), *option_value(one))), one) for one in own_options(command)]
    return [f"`{escape(name)}` | {escape(meaning(one))}" for name, one in found]


def escape(cell: str) -> str:
    return cell.replace("|", r"\|")


def option_value(option: Any) -> list[str]:
    if option.is_flag:
        return []
    choices = getattr(option.type, "choices", None)
    return ["|".join(map(str, choices))] if choices else [option.metavar]


def meaning(parameter: Any) -> str:
    is_option = parameter.param_type_name == "option"
    default = parameter.default if is_option and not parameter.is_flag else None
    return " ".join(
        [
            parameter.help,
            *(["Required."] if is_option and parameter.required else []),
            *([f"Default: `{default}`."] if isinstance(default, (str, int)) else []),
        ]
    )


def description(command: Any) -> list[str]:
    """Return the paragraphs of a help text without the example."""
    return [
        " ".join(part.split())
        for part in command.help.replace("\b\n", "").partition(EXAMPLE_HEADING)[0].strip().split("\n\n")
    ]


def told(text: str) -> set[str]:
    """Return the options that the first column of a table names."""
    return {
        word
        for line in re.findall(r"^\| (`[^|]*`) \|", text, re.MULTILINE)
        for word in re.findall(r"(?<![\w-])--?[a-z][a-z-]*", line)
    }


def test_every_command_is_documented_in_the_order_of_the_help() -> None:
    assert list(SECTIONS) == list(COMMANDS)
    assert re.findall(r"^## (.+)$", REFERENCE, re.MULTILINE) == HEADINGS


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_documented_by_its_example_and_its_help(name: str) -> None:
    section = SECTIONS[name]
    block = "".join(f"$ {line}\n" for line in examples(COMMANDS[name].help))
    assert section.lstrip().startswith(f"```console\n{block}```\n")
    words = " ".join(section.split())
    for paragraph in description(COMMANDS[name]):
        assert paragraph in words


@pytest.mark.parametrize("name", COMMANDS)
def test_every_argument_and_option_is_documented_by_its_help_and_no_other(name: str) -> None:
    table = re.findall(r"^\| (`.+) \|$", SECTIONS[name], re.MULTILINE)
    assert table == rows(COMMANDS[name])


def test_the_common_options_are_documented() -> None:
    common = TEXT.partition("## Common options")[2].partition("## Exit codes")[0]
    options = {option for one in TOP.params for option in one.opts}
    assert told(common) == options | {"--help", "-h"}


def test_every_exit_code_is_documented() -> None:
    found = re.findall(r"^\| (\d+) \| `(\w+)` \|", TEXT, re.MULTILINE)
    assert {(int(code), name) for code, name in found} == {(int(one), one.name.lower()) for one in ExitCode}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_json_option_and_a_short_help_that_fits_a_line(name: str) -> None:
    assert any("--json" in one.opts for one in COMMANDS[name].params)
    assert not COMMANDS[name].get_short_help_str(72).endswith("...")


@pytest.mark.parametrize("name", TABLE)
def test_the_table_of_commands_has_the_summary_of_the_command_itself(name: str) -> None:
    assert TABLE[name].summary == TOP.commands[name].get_short_help_str(limit=200)
