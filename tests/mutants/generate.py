"""Generates mutants from the source, so that every new guard is tested without being listed here.

The mutants remove, one at a time:

- `engine/store/statements.py`, `engine/store/queue_statements.py`: each conjunct and each alternative of the shared
  predicates, and each condition of every UPDATE and DELETE.
- `engine/plan.py`, `engine/queue.py`: each branch, each conjunct, each side of a conditional expression.
- `engine/admission.py`: each row of the table, and each branch and conjunct of the functions that classify a situation.
- `guard/`: each branch, each conjunct, each side of a conditional expression in the code that answers and publishes.
- `documents/bulk*.py`, `bases/removal.py`, `blobs/`: the same in the functions of `GUARDS`, the conditions of their
  comprehensions, and the calls of `GUARD_CALLS`.
- `db/database.py`, `db/postgres.py`, `db/migrate.py`, `engine/loop.py`, `engine/store/leases.py` and
  `indexes/postgres.py`, `celery/`: each branch, each condition of a comprehension and each call in the functions of
  `SERVER_GUARDS`.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    Edit = tuple[str, Callable[[], None]]  # a description of the removal, and the function that applies it

SOURCE = Path(__file__).resolve().parents[2] / "src"
HOUSEKEEPING = frozenset({"__init__", "close"})
# Conditions in these functions are removed one at a time. `generate_mutants` fails if one of them no longer exists.
PREDICATES = frozenset({"claimable", "held", "unchanged_since_read", "releasable", "cancellable", "paused", "unpaused"})
DECISIONS = frozenset({"classify_situation", "stalled", "may_be_overtaken"})
TABLE = "ADMISSION_RULES"
GUARD_CALLS = frozenset({"_require_held", "require_held", "require_unchanged", "waiting_for_blobs"})
GUARDS = {
    "holdfast.documents.bulk": {
        "finished", "builds", "everything", "read_next_ids", "read_next_owners", "advance_in_queue", "request_matching",
        "clear", "_prepare_filter", "_resolve_filter",
    },
    "holdfast.documents.bulk_run": {
        "_delete_batch", "_request_batch", "_request_in_queue", "_lock", "_require_held", "_save", "_select",
    },
    "holdfast.documents.bulk_queue": {"_apply_or_start", "_prepare_cancel", "count_cancellable", "_count_retryable"},
    "holdfast.bases.removal": {"_remove_contents"},
    "holdfast.blobs.base": {"waiting_for_blobs", "check_name", "open_blob_store"},
    "holdfast.blobs.s3": {"_undo", "find_missing", "may_be_stored", "_remove_versions", "_name"},
    "holdfast.blobs.s3_bucket": {"get", "_request_versions", "_read"},
    "holdfast.blobs.s3_errors": {"translate_s3_errors", "make_refusal"},
    "holdfast.blobs.hashed_copy": {"_check_size"},
}  # fmt: skip
# Functions for lost connections, conflicts, upgrades, timeouts, poolers, the index of vectors, and Celery.
SERVER_GUARDS = {
    "holdfast.db.database": {"_begin_write", "next_pause"},
    "holdfast.db.postgres": {
        "_resolve_commit", "_set_timeouts", "_test", "_translate_connection_error", "begin_autocommit", "begin_write",
        "is_unreachable", "postgres_engine",
    },
    "holdfast.db.migrate": {"upgrade_tables", "wait_for_turn", "migrate"},
    "holdfast.engine.loop": {"run"},
    "holdfast.engine.store.leases": {"_check_schema"},
    "holdfast.indexes.postgres": {"_create_index", "tend"},
    "holdfast.guard.celery.request": {
        "maybe_expire", "terminate", "on_failure", "on_timeout", "_is_repeated", "_fail_overdue", "revoke",
        "revoked", "_announce_revoked",
    },
    "holdfast.celery.scheduler": {"room", "carry", "_connect", "_declare", "_disconnect", "_close"},
    "holdfast.celery.worker": {
        "make_worker_app", "_answer", "before_start", "after_fork", "drain", "_get_worker", "_consumed_kinds",
        "_wait_for_drain", "_check_time_limits", "_warn_of_consumer_timeout",
    },
}  # fmt: skip
CELERY_MODULES = ("calls", "decorator", "delivery", "message", "results", "task")  # of the guard
HARMLESS_CALLS = ("log.", "time.sleep")  # without them everything stays right
# Mutants that behave like the original, and why. `generate_mutants` fails if one of them no longer exists.
EQUIVALENT = {
    "guard.celery.calls: _decide: never not result.accepted": (
        "saves a statement: as an owner has one active job at most, the jobs of all older calls have ended"
    ),
    "guard.celery.statements: RELEASE_CALLS without _of_key": "selects the index; the id of the job is unique",
    "guard.celery.task: is_active: without call.job is not None": "for the type checker: no job has the id None",
}


@dataclass(frozen=True)
class Mutant:
    """One module with one removal."""

    module: str
    number: int
    what: str = ""  # the removal, in words

    @property
    def path(self) -> Path:
        return SOURCE / (self.module.replace(".", "/") + ".py")

    @property
    def tree(self) -> ast.Module:
        tree = ast.parse(self.path.read_text())
        edits = list(EDITS[self.module](tree))
        edits[self.number][1]()
        return ast.fix_missing_locations(tree)

    @property
    def function(self) -> str:
        """The name of the function that is changed, or of the statement."""
        return re.split(r":| without ", self.what)[0]

    @property
    def name(self) -> str:
        return f"{self.module.removeprefix('holdfast.')}: {self.what}"


def generate_mutants() -> Iterator[Mutant]:
    """Yield every mutant."""
    trees = {module: ast.parse((SOURCE / (module.replace(".", "/") + ".py")).read_text()) for module in EDITS}
    defined = {name for tree in trees.values() for top in tree.body for name in _defined(top)}
    missing = {*PREDICATES, *DECISIONS, TABLE} - defined
    for module, names in (GUARDS | SERVER_GUARDS).items():
        missing |= names - {node.name for node in ast.walk(trees[module]) if isinstance(node, ast.FunctionDef)}
    if missing:
        raise LookupError(f"no longer defined, so no mutant is made of them: {sorted(missing)}")
    mutants = [
        Mutant(module, number, what)
        for module, edits in EDITS.items()
        for number, (what, _) in enumerate(edits(trees[module]))
    ]
    if gone := EQUIVALENT.keys() - {mutant.name for mutant in mutants}:
        raise LookupError(f"these equivalent mutants no longer exist: {sorted(gone)}")
    yield from (mutant for mutant in mutants if mutant.name not in EQUIVALENT)


def _defined(top: ast.stmt) -> list[str]:
    if isinstance(top, ast.FunctionDef):
        return [top.name]
    return [ast.unparse(top.target)] if isinstance(top, ast.AnnAssign) else []


def _statements(tree: ast.Module) -> Iterator[Edit]:
    for top in tree.body:
        if isinstance(top, ast.FunctionDef) and top.name in PREDICATES:
            for call in _calls(top, "and_", "or_"):
                yield from _each_argument(top.name, call, keep_one=True)
        elif isinstance(top, ast.Assign):
            name = ast.unparse(top.targets[0])
            for call in _calls(top, "where"):
                if _root(call) in ("update", "delete"):
                    yield from _each_argument(name, call, keep_one=False)
                    for inner in _inner_calls(call):
                        yield from _each_argument(name, inner, keep_one=True)


def _inner_calls(where: ast.Call) -> list[ast.Call]:
    return [call for argument in where.args for call in _calls(argument, "and_", "or_")]


def _plan(tree: ast.Module) -> Iterator[Edit]:
    for top in tree.body:
        if isinstance(top, ast.FunctionDef):
            yield from _branches(top)


def _admission(tree: ast.Module) -> Iterator[Edit]:
    for top in tree.body:
        if isinstance(top, ast.AnnAssign) and ast.unparse(top.target) == TABLE:
            assert isinstance(top.value, ast.Tuple)
            for row in list(top.value.elts):
                yield f"row {_short(row)}", _removal(top.value.elts, row)
        if isinstance(top, ast.FunctionDef) and top.name in DECISIONS:
            yield from _branches(top)


def _methods(tree: ast.Module) -> Iterator[Edit]:
    for top in tree.body:
        for one in top.body if isinstance(top, ast.ClassDef) else [top]:
            if isinstance(one, ast.FunctionDef) and one.name not in HOUSEKEEPING:
                yield from _branches(one)


def _guards(
    names: Collection[str], *parts: Callable[[ast.FunctionDef], Iterator[Edit]]
) -> Callable[[ast.Module], Iterator[Edit]]:
    """Return the edits of the named functions of a module, also of those inside others."""

    def edits(tree: ast.Module) -> Iterator[Edit]:
        for function in ast.walk(tree):
            if isinstance(function, ast.FunctionDef) and function.name in names:
                for part in parts:
                    yield from part(function)

    return edits


def _branches(function: ast.FunctionDef) -> Iterator[Edit]:
    for node in ast.walk(function):
        if isinstance(node, ast.If):
            yield f"{function.name}: never {_short(node.test)}", _setting(node, "test", ast.Constant(value=False))
        if isinstance(node, ast.IfExp):
            for side in (True, False):
                taken = "always" if side else "never"
                yield f"{function.name}: {taken} {_short(node.test)}", _setting(node, "test", ast.Constant(value=side))
        if isinstance(node, ast.BoolOp):
            for value in list(node.values):
                yield f"{function.name}: without {_short(value)}", _operand_removal(node, value)


def _filters(function: ast.FunctionDef) -> Iterator[Edit]:
    """Yield the removal of each condition of a comprehension."""
    for node in ast.walk(function):
        if isinstance(node, ast.comprehension):
            for condition in list(node.ifs):
                yield f"{function.name}: each, not if {_short(condition)}", _removal(node.ifs, condition)


def _guard_calls(function: ast.FunctionDef) -> Iterator[Edit]:
    """Yield the removal of each call of a guard: a statement, or the context of a `with` block."""
    for node in ast.walk(function):
        if isinstance(node, ast.Expr) and _calls(node, *GUARD_CALLS):
            yield f"{function.name}: without {_short(node)}", _setting(node, "value", ast.Constant(value=None))
        for item in node.items if isinstance(node, ast.With) else ():
            if _calls(item, *GUARD_CALLS):
                nothing = ast.parse("__import__('contextlib').nullcontext()", mode="eval").body
                yield f"{function.name}: without {_short(item)}", _setting(item, "context_expr", nothing)


def _calls_alone(function: ast.FunctionDef) -> Iterator[Edit]:
    """Remove each statement that only calls something."""
    for node in ast.walk(function):
        if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Call):
            continue
        if not ast.unparse(node.value).startswith(HARMLESS_CALLS):
            yield f"{function.name}: without {_short(node.value)}", _setting(node, "value", ast.Constant(value=None))


EDITS = {
    "holdfast.engine.store.statements": _statements,
    "holdfast.engine.store.queue_statements": _statements,
    "holdfast.engine.plan": _plan,
    "holdfast.engine.queue": _methods,
    "holdfast.engine.admission": _admission,
    "holdfast.guard.work": _methods,
    "holdfast.guard.deliveries": _methods,
    "holdfast.guard.runs": _methods,
    "holdfast.guard.run": _methods,
    "holdfast.guard.guard": _methods,
    **{f"holdfast.guard.celery.{name}": _methods for name in CELERY_MODULES},
    "holdfast.guard.celery.statements": _statements,
    "holdfast.guard.adopt": _methods,
    **{module: _guards(names, _branches, _filters, _guard_calls) for module, names in GUARDS.items()},
    **{module: _guards(names, _branches, _filters, _calls_alone) for module, names in SERVER_GUARDS.items()},
}


def _calls(node: ast.AST, *names: str) -> list[ast.Call]:
    """Return all calls of these functions or methods inside a node."""
    return [
        call
        for call in ast.walk(node)
        if isinstance(call, ast.Call)
        and (
            (isinstance(call.func, ast.Name) and call.func.id in names)
            or (isinstance(call.func, ast.Attribute) and call.func.attr in names)
        )
    ]


def _root(call: ast.Call) -> str:
    """Return the name of the function at the start of a method chain."""
    node: ast.AST = call
    while True:
        if isinstance(node, ast.Call):
            node = node.func
        elif isinstance(node, ast.Attribute):
            node = node.value
        else:
            return ast.unparse(node)


def _each_argument(name: str, call: ast.Call, *, keep_one: bool) -> Iterator[Edit]:
    if keep_one and len(call.args) == 1:
        return
    for argument in list(call.args):
        yield f"{name} without {_short(argument)}", _argument_removal(call, argument)


def _argument_removal(call: ast.Call, argument: ast.expr) -> Callable[[], None]:
    def remove() -> None:
        call.args.remove(argument)
        if not call.args:  # without a condition the statement applies to every row
            call.args.append(ast.parse("__import__('sqlalchemy').true()", mode="eval").body)

    return remove


def _operand_removal(node: ast.BoolOp, value: ast.expr) -> Callable[[], None]:
    def remove() -> None:
        node.values.remove(value)
        if len(node.values) == 1:  # a BoolOp needs two operands, and `x and x` equals `x`
            node.values.append(node.values[0])

    return remove


def _removal(values: list[ast.expr], value: ast.expr) -> Callable[[], None]:
    return lambda: values.remove(value)


def _setting(node: ast.AST, field: str, value: ast.expr) -> Callable[[], None]:
    return lambda: setattr(node, field, value)


def _short(node: ast.AST) -> str:
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= 90 else text[:87] + "..."
