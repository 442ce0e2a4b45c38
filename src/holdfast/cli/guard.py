"""`guard`: commands for the guard of an existing pipeline. Their exit code is 1 after any error."""

from __future__ import annotations

import logging
from typing import Annotated, Any

import typer

from holdfast.cli import guard_costs, guard_jobs
from holdfast.cli.command import CommandContext, command, stop_on_signal
from holdfast.cli.exit_codes import ExitCode
from holdfast.cli.guard_app import GuardArgument, load_guard, load_work, run_with_exit_code
from holdfast.errors import HoldfastError


def declare(app: typer.Typer) -> None:
    command(app, "status")(guard_jobs.status)
    command(app, "jobs")(guard_jobs.jobs)
    command(app, "retry")(guard_jobs.retry)
    command(app, "cancel")(guard_jobs.cancel)
    command(app, "refusals")(guard_jobs.refusals)
    command(app, "spending")(guard_costs.spending)
    command(app, "quota")(guard_costs.quota)
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
    return run_with_exit_code(context, lambda: _reconcile_until_stopped(guard, once=once))


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
    return run_with_exit_code(context, lambda: _adopt_rows(context, guard, work, given, dry_run=dry_run))


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
        statements = load_guard(guard).place.ddl(from_version)
        context.print_result(statements, lambda: print("".join(f"{statement};\n" for statement in statements), end=""))

    return run_with_exit_code(context, show)


def _reconcile_until_stopped(where: str, *, once: bool) -> None:
    """Reconcile until a signal arrives. A failed pass is logged, and the next pass follows."""
    guard = load_guard(where)
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

    guard = load_guard(where)
    load_work(guard, where, work)
    found = adopting(guard, work, AdoptionSource(**given), dry_run=dry_run)
    verb = "would be" if dry_run else "were"

    def human() -> None:
        print(f"{found.success} active rows {verb} adopted with the status success.")
        print(f"{found.not_indexed} rows are not active. They keep the status not indexed.")
        print(f"{found.known} active rows were adopted before. They are unchanged.")

    context.print_result(found, human)
    guard.close()
