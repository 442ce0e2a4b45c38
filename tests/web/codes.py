"""Collects from the source every code that has an explanation for users, with the parameters of each."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from holdfast.api.problems import CODES_BY_STATUS
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCE = Path(__file__).parents[2] / "src" / "holdfast"
CODED = {
    "Permanent",
    "Transient",
    "Outage",
    "RetryLater",
    "WorkError",
    "Fault",
    "StateConflict",
}  # the code is the first argument
SUBCODED = {"BadRequest", "BadSettings", "BadArchive", "NotEnabled"}  # the code is the second argument
BY_NAME = {"FailureRule", "RequestRejected", "StatusRule"}  # the code is a keyword argument


class Site(NamedTuple):
    """One place in the source that uses a code."""

    where: str
    code: str
    params: frozenset[str]


@cache
def sites() -> list[Site]:
    return list(_sites())


def _sites() -> Iterator[Site]:
    trees = {file: ast.parse(file.read_text("utf-8")) for file in sorted(SOURCE.rglob("*.py"))}
    constants = {name: text for tree in trees.values() for name, text in _constants(tree)}
    for file, tree in trees.items():
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
            code = _text(_code(call), constants)
            if code:
                yield Site(f"{file.relative_to(SOURCE)}:{call.lineno}", code, frozenset(_params(call)))
    for meaning in [*_codes_of_errors(HoldfastError), *CODES_BY_STATUS.values()]:
        yield Site("api/problems.py", meaning, frozenset())


def _codes_of_errors(kind: type[HoldfastError]) -> Iterator[str]:
    """Yield the code of each error class that HTTP reports."""
    if "code" in vars(kind) and kind.http_status is not None:
        yield kind.code
    for below in kind.__subclasses__():
        yield from _codes_of_errors(below)


def _constants(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    yield target.id, node.value.value


def _code(call: ast.Call) -> ast.expr | None:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    named = next((one.value for one in call.keywords if one.arg == "code"), None)
    if name in CODED and call.args:
        return call.args[0]
    if name in SUBCODED and len(call.args) > 1:
        return call.args[1]
    if name == "_answer_and_close":  # a connection that reaches no route
        return call.args[1]
    if name == "build_problem_response" and len(call.args) > 2:
        return next((one.value for one in call.keywords if one.arg == "subcode"), call.args[2])
    return named if name in BY_NAME else None


def _text(node: ast.expr | None, constants: dict[str, str]) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return constants.get(node.id) if isinstance(node, ast.Name) else None


def _params(call: ast.Call) -> Iterator[str]:
    """Yield the names of the parameters that accompany the message."""
    dicts = [one.value for one in call.keywords if one.arg == "params"] + call.args[1:]
    for one in dicts:
        if isinstance(one, ast.Dict):
            yield from (str(key.value) for key in one.keys if isinstance(key, ast.Constant))
    name = getattr(call.func, "id", "")
    if name in SUBCODED:
        yield from (one.arg for one in call.keywords if one.arg)
