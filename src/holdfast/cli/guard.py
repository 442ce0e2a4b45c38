"""`guard`: commands for the guard of an existing pipeline. Their exit code is 1 after any error."""

from __future__ import annotations

import logging
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.command import CommandContext, command, stop_on_signal
from holdfast.cli.exit_codes import ExitCode
from holdfast.errors import BadSettings, HoldfastError
from holdfast.logs import log_to_stderr

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.guard import Guard

GuardArgument = Annotated[
    str,
    typer.Argument(metavar="GUARD", help="The Guard of your app as module:name, such as shop.tasks:guard."),
]


def declare(app: typer.Typer) -> None:
    command(app, "reconcile")(reconcile)
    command(app, "adopt")(adopt)
    command(app, "ddl")(ddl)


def reconcile(
    context: CommandContext,
    guard: GuardArgument,
    once: Annotated[bool, typer.Option("--once", help="Run one pass and exit.")] = False,
) -> ExitCode:
    """Take over the work of dead workers, and send lost messages again.

    Example:
        holdfast guard reconcile shop.tasks:guard
    """
    return _run_with_exit_code(context, lambda: _reconcile_until_stopped(guard, once=once))


def adopt(
    context: CommandContext,
    guard: GuardArgument,
    work: Annotated[str, typer.Argument(metavar="WORK", help="Name of the guarded work, as in guarded(name=…).")],
    source: Annotated[str, typer.Option("--source", metavar="ADDRESS", help="Address of the database with the table.")],
    table: Annotated[str, typer.Option("--table", metavar="NAME", help="Name of the table.")],
    key: Annotated[str, typer.Option("--key", metavar="COLUMN", help="Key column of the table.")] = "id",
    active: Annotated[
        str, typer.Option("--active", metavar="SQL", help="SQL condition that is true for finished rows.")
    ] = "is_active",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count the rows without writing anything.")] = False,
) -> ExitCode:
    """Register the rows of an existing table in the guard.

    Example:
        holdfast guard adopt shop.tasks:guard index --source sqlite:///shop.db --table documents
    """
    given = {"database": source, "table": table, "key": key, "active": active}
    return _run_with_exit_code(context, lambda: _adopt_rows(context, guard, work, given, dry_run=dry_run))


def ddl(
    context: CommandContext,
    guard: GuardArgument,
    from_version: Annotated[
        str | None, typer.Option("--from-version", metavar="VERSION", help="Upgrade tables of this version.")
    ] = None,
) -> ExitCode:
    """Print the SQL that creates the tables of the guard, or upgrades them.

    Example:
        holdfast guard ddl shop.tasks:guard
    """

    def show() -> None:
        statements = _load_guard(guard).place.ddl(from_version)
        context.print_result(statements, lambda: print("".join(f"{statement};\n" for statement in statements), end=""))

    return _run_with_exit_code(context, show)


def _run_with_exit_code(context: CommandContext, work: Callable[[], None]) -> ExitCode:
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


def _reconcile_until_stopped(where: str, *, once: bool) -> None:
    """Reconcile until a signal arrives. A failed pass is logged, and the next pass follows."""
    guard = _load_guard(where)
    stopped = stop_on_signal()
    while True:
        pause = guard.settings.period
        try:
            due = guard.reconcile()
            pause = pause if due is None else min(due, pause)
        except HoldfastError as error:
            if once:
                raise
            logging.getLogger("holdfast").warning("reconcile.failed error=%s", error)
        if once or stopped.wait(max(pause.total_seconds(), 0.05)):
            guard.close()
            return


def _adopt_rows(context: CommandContext, where: str, work: str, given: dict[str, Any], *, dry_run: bool) -> None:
    from holdfast.guard.adopt import AdoptionSource  # noqa: PLC0415 - slow to load
    from holdfast.guard.adopt import adopt as adopting  # noqa: PLC0415

    guard = _load_guard(where)
    if work not in guard.works:
        raise BadSettings("guarded_work_unknown", guard=where, work=work, known=", ".join(sorted(guard.works)))
    found = adopting(guard, work, AdoptionSource(**given), dry_run=dry_run)
    verb = "would be" if dry_run else "were"

    def human() -> None:
        print(f"{found.success} active rows {verb} adopted with the status success.")
        print(f"{found.not_indexed} rows are not active. They keep the status not indexed.")
        print(f"{found.known} active rows were adopted before. They are unchanged.")

    context.print_result(found, human)
    guard.close()


def _load_guard(where: str) -> Guard:
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
