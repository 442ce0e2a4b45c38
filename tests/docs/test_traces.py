"""docs/traces.md lists exactly the spans and attributes that the code records."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.engine.executor import _show_result
from tests.support.message_sites import trees

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "traces.md").read_text("utf-8")
ATTRIBUTE = re.compile(r"(?:holdfast|http|gen_ai|error)\.[a-z_.]+")
RECORDERS = {"span", "call", "record"}  # methods of a tracer
TRACERS = {"tracer", "_tracer"}
NOT_CONSTANT = {"{method} {route}", "{stage}"}  # `Span.rename` and `Span.stage` take them from the request and the task


def test_the_page_lists_every_attribute() -> None:
    listed = re.findall(r"^\| `([a-z_]+\.[a-z_.]+)` \|", PAGE, re.MULTILINE)
    used = {text for tree in traced_modules() for text in constants(tree) if ATTRIBUTE.fullmatch(text)}
    used.remove("http.response.start")  # a message of ASGI
    assert sorted(listed) == sorted(used)


def test_the_page_lists_every_span() -> None:
    _, _, spans = PAGE.partition("| span | kind |")
    listed = set(re.findall(r"^\| `([^`]+)` \|", spans.partition("| attribute |")[0], re.MULTILINE))
    assert {re.sub(r"{.*?}", "{}", name) for name in listed - NOT_CONSTANT} == {
        name for tree in traced_modules() for name in span_names(tree)
    }


def test_the_page_lists_every_outcome() -> None:
    (line,) = (line for line in PAGE.splitlines() if line.startswith("| `holdfast.outcome`"))
    written = {text for text in constants(ast.parse(inspect.getsource(_show_result))) if text.isalpha()}
    assert set(re.findall(r"`([a-z]+)`", line)) == written


def traced_modules() -> Iterator[ast.Module]:
    """Return the modules that record spans."""
    for file, tree in trees().items():
        imports = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        if "holdfast.tracing" in imports or file.name == "executor.py":
            yield tree


def constants(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def span_names(tree: ast.Module) -> Iterator[str]:
    """Return the names of spans, with `{}` for each value in them."""
    for call in ast.walk(tree):
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in RECORDERS):
            continue
        if ast.unparse(call.func.value).rpartition(".")[2] not in TRACERS:
            continue
        name = call.args[0]
        for one in (name.body, name.orelse) if isinstance(name, ast.IfExp) else (name,):
            if isinstance(one, ast.Constant):
                yield str(one.value)
            elif isinstance(one, ast.JoinedStr):
                yield "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in one.values)
