"""What the commands of `guard` share: loading the guard of an app, printing rows, and the exit code."""

from __future__ import annotations

import logging
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.exit_codes import ExitCode
from holdfast.errors import BadSettings, HoldfastError
from holdfast.logs import log_to_stderr

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.cli.command import CommandContext
    from holdfast.guard import Guard, Plain, Work

GuardArgument = Annotated[
    str,
    typer.Argument(metavar="GUARD", help="The Guard of your app as module:name, such as shop.tasks:guard."),
]


def run_with_exit_code(context: CommandContext, work: Callable[[], None]) -> ExitCode:
    if not context.options.debug:
        log_to_stderr(logging.INFO, "%(asctime)s %(levelname)s %(message)s")
    try:
        work()
    except HoldfastError as error:
        if context.options.debug:
            raise
        context.terminal.warn(f"holdfast: {error}")
        return ExitCode.FAILED
    return ExitCode.OK


def load_guard(where: str) -> Guard:
    """Import the guard of an app. The current folder is on the import path, as with Celery's `--app`."""
    from holdfast.guard import Guard  # noqa: PLC0415 - slow to load

    module, _, name = where.partition(":")
    sys.path.insert(0, "")
    try:
        found = getattr(import_module(module), name or "guard")
    except (ImportError, AttributeError, ValueError) as error:
        raise BadSettings("guard_not_loaded", guard=where, detail=error) from error
    if not isinstance(found, Guard):
        raise BadSettings("not_a_guard", guard=where, type=type(found).__name__)
    return found


def load_work(guard: Guard, where: str, name: str) -> Work:
    """Return a work of the guard by its name."""
    if name not in guard.works:
        raise BadSettings("guarded_work_unknown", guard=where, work=name, known=", ".join(sorted(guard.works)))
    return guard.works[name]


def show_rows(context: CommandContext, where: str, read: Callable[[Guard], Sequence[Plain]]) -> ExitCode:
    """Print rows of a guard as a table, or as JSON."""

    def show() -> None:
        guard = load_guard(where)
        rows = [row.as_dict() for row in read(guard)]
        guard.close()
        context.print_result(rows, lambda: _print_table(context, rows))

    return run_with_exit_code(context, show)


def _print_table(context: CommandContext, rows: Sequence[dict[str, Any]]) -> None:
    if not rows:
        context.terminal.info("Nothing to show.")
        return
    names = tuple(name.replace("_", " ") for name in rows[0])
    context.terminal.print_table(names, [tuple(map(_format_amount, row.values())) for row in rows])


def _format_amount(cell: Any) -> Any:
    """Return an amount with all its digits: the terminal would round 1234.56 to 1235."""
    return f"{cell:.4f}".rstrip("0").rstrip(".") if isinstance(cell, float) else cell
