"""Finds every place in the source that uses a text of the catalogue, with the code and the parameters of each."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from holdfast.errors import HoldfastError
from holdfast.indexes import NotEnabled

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCE = Path(__file__).parents[2] / "src" / "holdfast"
CODE = re.compile(r"[a-z][a-z0-9_]*")
FAULT = "Fault"  # (code, params)
KEYWORD = {"FailureRule", "StatusRule"}  # code="…"
# Functions of the API that take a code at this position, or a subcode by name.
CODE_POSITIONS = {"RequestRejected": 1, "_answer_and_close": 1, "build_problem_response": 2}
NOT_PARAMETERS = {"subcode", "headers", "detail", "errors"}  # other arguments of these functions


class Site(NamedTuple):
    """One place in the source that uses a code."""

    where: str
    code: str
    params: frozenset[str] | None  # None: not known from the source


def error_classes(kind: type[HoldfastError] = HoldfastError) -> dict[str, type[HoldfastError]]:
    """Return all error classes by name."""
    found = {kind.__name__: kind, NotEnabled.__name__: NotEnabled}
    for below in kind.__subclasses__():
        found |= error_classes(below)
    return found


@cache
def trees() -> dict[Path, ast.Module]:
    return {file: ast.parse(file.read_text("utf-8")) for file in sorted(SOURCE.rglob("*.py"))}


@cache
def literals() -> frozenset[str]:
    """Return all strings of the source, for codes that are not written at a call."""
    return frozenset(
        node.value
        for tree in trees().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


@cache
def sites() -> list[Site]:
    return list(_sites())


@cache
def sentences() -> list[str]:
    """Return the places that pass a sentence to an error instead of a code of the catalogue."""
    found = []
    for place, call in _calls():
        name = _name(call)
        if name in error_classes():
            texts = call.args[:2]
        elif name in KEYWORD:
            texts = [one.value for one in call.keywords if one.arg == "message"]
        elif name in CODE_POSITIONS:
            texts = [*call.args[CODE_POSITIONS[name] :], *(one.value for one in call.keywords if one.arg == "detail")]
        else:
            continue
        if any(_is_sentence(text) for text in texts):
            found.append(place)
    return found


def _sites() -> Iterator[Site]:
    constants = {name: text for tree in trees().values() for name, text in _constants(tree)}
    for place, call in _calls():
        code = _text(_code(call), constants) or _class_code(call)
        if code:
            yield Site(place, code, _params(call))
    for kind in ast.walk(trees()[SOURCE / "errors.py"]):
        if isinstance(kind, ast.ClassDef):
            yield from _class_site(kind)


def _class_site(kind: ast.ClassDef) -> Iterator[Site]:
    """Yield the code of an error class, with the parameters that its constructor passes on."""
    code = error_classes()[kind.name].code if kind.name in error_classes() else ""
    for call in ast.walk(kind):
        if not isinstance(call, ast.Call) or ast.unparse(call.func) != "super().__init__":
            continue
        named = _text(call.args[0], {}) if call.args else code
        if named and not any(one.arg is None for one in call.keywords):
            yield Site(f"errors.py:{call.lineno}", named, frozenset(one.arg for one in call.keywords if one.arg))


def _calls() -> Iterator[tuple[str, ast.Call]]:
    for file, tree in trees().items():
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
            yield f"{file.relative_to(SOURCE)}:{call.lineno}", call


def _constants(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    yield target.id, node.value.value


def _name(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _code(call: ast.Call) -> ast.expr | None:
    name = _name(call)
    kind = error_classes().get(name)
    if name in KEYWORD:
        return next((one.value for one in call.keywords if one.arg == "code"), None)
    if name in CODE_POSITIONS:
        position = CODE_POSITIONS[name]
        subcode = next((one.value for one in call.keywords if one.arg == "subcode"), None)
        return subcode or (call.args[position] if len(call.args) > position else None)
    if name == FAULT or (kind is not None and _takes_code(kind)):
        return call.args[0] if call.args else None
    return None


def _class_code(call: ast.Call) -> str | None:
    """Return the code of an error that is raised without a subcode, such as `StoreFull(place=…)`."""
    kind = error_classes().get(_name(call))
    return kind.code if kind is not None and _takes_code(kind) and not call.args else None


def _takes_code(kind: type[HoldfastError]) -> bool:
    """Check whether the first argument is a code; some classes take only the names in their message."""
    first = next(iter(kind.__init__.__annotations__), "")
    return first in ("subcode", "reason", "code")


def _text(node: ast.expr | None, constants: dict[str, str]) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return constants.get(node.id) if isinstance(node, ast.Name) else None


def _params(call: ast.Call) -> frozenset[str] | None:
    """Return the names of the parameters; None if the source passes a variable mapping."""
    if _name(call) in KEYWORD or any(one.arg is None for one in call.keywords):
        return None
    named = {one.arg: one.value for one in call.keywords if one.arg}
    if _name(call) in CODE_POSITIONS:
        named = {name: value for name, value in named.items() if name not in NOT_PARAMETERS}
    mapping = named.pop("params", call.args[1] if _name(call) == FAULT and len(call.args) > 1 else None)
    if mapping is not None and not isinstance(mapping, ast.Dict):
        return None
    keys = mapping.keys if isinstance(mapping, ast.Dict) else []
    if None in keys:  # {**others}
        return None
    return frozenset(named) | {str(key.value) for key in keys if isinstance(key, ast.Constant)}


def _is_sentence(node: ast.expr) -> bool:
    if isinstance(node, ast.BinOp):
        return _is_sentence(node.left) or _is_sentence(node.right)
    if isinstance(node, ast.JoinedStr):
        return True
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and not CODE.fullmatch(node.value or "x")
