"""Loads the guard of an app for the commands of `guard`."""

from __future__ import annotations

import logging
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.exit_codes import ExitCode
from holdfast.errors import BadSettings, HoldfastError
from holdfast.logs import log_to_stderr

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.cli.command import CommandContext
    from holdfast.guard import Guard, Work

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
