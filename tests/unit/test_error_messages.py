"""No error message promises a retry, because only the state of the slot tells whether the work is retried."""

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
    """Yield every text that the source passes to an error, with its place. Module constants are resolved."""
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


def test_the_scan_of_the_source_finds_error_messages() -> None:
    found = " ".join(text for _, text in messages())
    for part in ("The provider refuses the key", "cannot be reached or is down", "could not be resolved"):
        assert part in found


def test_no_error_message_promises_a_retry() -> None:
    assert [(place, text) for place, text in messages() if PROMISE.search(text)] == []


@pytest.mark.parametrize("language", [0, 1])
def test_no_problem_text_of_the_page_promises_a_retry(language: int) -> None:
    words = json.loads((SOURCE / "web" / "words" / "problems.json").read_text("utf-8"))
    promise = (PROMISE, PROMISE_ZH)[language]
    said = {key: texts[language] for key, texts in words.items() if key.startswith("problem.")}
    assert {key: text for key, text in said.items() if promise.search(text)} == {}
