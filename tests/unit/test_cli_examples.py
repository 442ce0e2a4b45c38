"""The help of every command has an example, and every example is a valid command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from typer._click.exceptions import UsageError
from typer.testing import CliRunner

from holdfast.cli.app import app
from tests.support.command_lines import COMMANDS, TOP, examples, parse

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_every_command_has_an_example_that_parses(name: str) -> None:
    found = examples(COMMANDS[name].help)
    assert found, f"`holdfast {name}` has no example in its docstring"
    assert [parse(line) for line in found] == [name] * len(found)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_prints_the_example_on_lines_of_its_own(name: str) -> None:
    printed = CliRunner().invoke(app, [*name.split(), "--help"]).stdout.splitlines()
    lines = [line.strip() for line in printed]
    start = lines.index("Example:") + 1
    found = examples(COMMANDS[name].help)
    assert lines[start : start + len(found)] == found


def test_the_examples_of_the_program_itself_parse() -> None:
    *found, help_of_add = examples(TOP.help)
    assert [parse(line) for line in found] == ["add", "search"]
    assert help_of_add == "holdfast add --help"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("holdfast ad report.pdf", "No such command"),
        ("holdfast add report.pdf --bas handbook", "No such option"),
        ("holdfast search", "Missing argument"),
        ("holdfast queue priority JOB 10", "not in the range"),
        ("holdfast ls --status asleep", "'asleep' is not a status. Use one of: deleting, indexing, queued, ready,"),
    ],
)
def test_the_parser_rejects_an_invalid_example(line: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(line)
    assert message in caught.value.format_message()


def test_an_example_is_parsed_without_running_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))
    assert parse("holdfast base create handbook") == "base create"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", COMMANDS)
def test_every_help_text_is_made_of_sentences(name: str) -> None:
    command = COMMANDS[name]
    for text in (command.help.partition("\n")[0], *(one.help or "" for one in command.params if not one.hidden)):
        assert text.endswith("."), f"{name}: {text!r}"
        assert text[0].isupper() or text.startswith(("-", "`")), f"{name}: {text!r}"
