"""Every log call names a stable event, followed by key=value pairs: `provider.paused name=%s until=%s`.

Operators search the log by event and by id, and programs can parse it. So a line contains no sentence, and the event
name is written in full at the call.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.support.message_sites import SOURCE, trees

if TYPE_CHECKING:
    from collections.abc import Iterator

LEVELS = frozenset({"debug", "info", "warning", "error", "exception", "critical", "log"})
LOGGER = "log"  # the name of the logger in every module
EVENT = re.compile(r"[a-z_]+(?:\.[a-z_]+)+(?P<pairs>(?: [a-z_]+=%[srd])*)")
KEY = re.compile(r" ([a-z_]+)=%[srd]")


class LogCall(NamedTuple):
    """A log call in the source: its place, its format, and the number of its arguments."""

    where: str
    form: str | None  # None: not a constant
    arguments: int


def find_log_calls(tree: ast.Module, file: str) -> Iterator[LogCall]:
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in LEVELS:
            if not _is_logger(call.func.value):
                continue
            given = call.args[1:] if call.func.attr == "log" else call.args  # the first is the level
            form = given[0].value if given and isinstance(given[0], ast.Constant) else None
            yield LogCall(f"{file}:{call.lineno}", form if isinstance(form, str) else None, len(given) - 1)


def describe_mistake(call: LogCall) -> str | None:
    """Return what is wrong with a log call, or None."""
    if call.form is None:
        return f"{call.where}: the format is not a constant"
    found = EVENT.fullmatch(call.form)
    if found is None:
        return f"{call.where}: {call.form!r} is not an event with key=value pairs"
    keys = KEY.findall(found["pairs"])
    if len(keys) != call.arguments or len(set(keys)) != len(keys):
        return f"{call.where}: {call.form!r} needs one placeholder per argument, each with its own key"
    if "error" in keys[:-1]:
        return f"{call.where}: {call.form!r} must end with the error, whose text may contain spaces"
    return None


def _is_logger(node: ast.expr) -> bool:
    return (isinstance(node, ast.Name) and node.id in (LOGGER, "logger", "logging")) or _makes_logger(node)


def _makes_logger(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func).endswith("getLogger")


def test_every_log_call_names_an_event_and_its_values() -> None:
    calls = [call for file, tree in trees().items() for call in find_log_calls(tree, str(file.relative_to(SOURCE)))]
    assert len(calls) > 40
    assert [mistake for call in calls if (mistake := describe_mistake(call))] == []


def test_every_module_calls_its_logger_log() -> None:
    """Otherwise the test above would not find its calls."""
    names = {
        (str(file.relative_to(SOURCE)), ast.unparse(target))
        for file, tree in trees().items()
        for node in tree.body
        if isinstance(node, ast.Assign) and _makes_logger(node.value)
        for target in node.targets
    }
    assert {name for _, name in names} == {LOGGER}


@pytest.mark.parametrize(
    "source",
    [
        'log.info("The server ended.")',
        'log.info("ended job=%s", job)',
        'log.info("job.ended %s", job)',
        'log.info("job.ended job=%s: it failed", job)',
        'log.info("job.%s job=%s", outcome, job)',
        'log.info("job.ended job=%s")',
        'log.info("job.ended job=%s", job, outcome)',
        'log.info("job.ended job=%s job=%s", job, outcome)',
        'log.info("job.ended error=%s job=%s", error, job)',
        'log.info(f"job.ended job={job}")',
        'log.log(level, "job ended")',
        'logging.getLogger("holdfast").warning("job.ended %s", job)',
    ],
)
def test_a_log_call_of_another_form_is_found(source: str) -> None:
    (call,) = find_log_calls(ast.parse(source), "example.py")
    assert describe_mistake(call) is not None


@pytest.mark.parametrize(
    "source",
    [
        'log.exception("erase.failed")',
        'log.info("job.ended job=%s generation=%d", job, generation, exc_info=True)',
        'log.log(level, "job.ended job=%s error=%s", job, error)',
    ],
)
def test_a_log_call_of_this_form_is_accepted(source: str) -> None:
    (call,) = find_log_calls(ast.parse(source), "example.py")
    assert describe_mistake(call) is None
