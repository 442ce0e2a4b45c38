"""An error message states a cause and what to do. Whether the work is tried again only the slot's state knows."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCE = Path(__file__).parents[2] / "src" / "holdfast"
ERRORS = {"Fault", "Outage", "RetryLater", "Permanent", "FailureRule", "Transient", "WorkError"}
PROMISE = re.compile(r"(is|are) (tried|looked at|asked for) (again|when)|will be |by itself|continues|goes on")
PROMISE_ZH = re.compile("稍后重试|自动继续|会等待|将会重试")


def messages() -> Iterator[tuple[str, str]]:
    """Return every text that is passed to an error, with its place; constants of the module are resolved."""
    for file in sorted(SOURCE.rglob("*.py")):
        tree = ast.parse(file.read_text("utf-8"))
        constants = {
            target.id: node.value
            for node in tree.body
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
            if getattr(call.func, "id", "") in ERRORS:
                texts = " ".join(_texts(call, constants))
                yield f"{file.relative_to(SOURCE)}:{call.lineno}", texts


def _texts(node: ast.AST, constants: dict[str, ast.expr]) -> Iterator[str]:
    for part in ast.walk(node):
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield part.value
        elif isinstance(part, ast.Name) and part.id in constants:
            yield from _texts(constants[part.id], {})


def test_the_texts_of_errors_are_found() -> None:
    found = " ".join(text for _, text in messages())
    for part in ("The provider refuses the key", "cannot be reached or is down", "could not be resolved"):
        assert part in found


def test_no_error_message_says_that_the_work_is_tried_again() -> None:
    assert [(place, text) for place, text in messages() if PROMISE.search(text)] == []


@pytest.mark.parametrize("language", [0, 1])
def test_no_problem_on_the_page_says_that_the_work_is_tried_again(language: int) -> None:
    words = json.loads((SOURCE / "web" / "words" / "problems.json").read_text("utf-8"))
    promise = (PROMISE, PROMISE_ZH)[language]
    said = {key: texts[language] for key, texts in words.items() if key.startswith("problem.")}
    assert {key: text for key, text in said.items() if promise.search(text)} == {}
