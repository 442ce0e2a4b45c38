"""`guard`: the guard of an existing pipeline. An error of any kind ends these with 1."""

from __future__ import annotations

import logging
import signal
import sys
import threading
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.command import CommandContext, command
from holdfast.cli.exit_codes import ExitCode
from holdfast.errors import BadSettings, HoldfastError
from holdfast.logs import log_to_stderr

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.guard.guard import Guard

GuardArgument = Annotated[
    str,
    typer.Argument(metavar="GUARD", help="Where the guard of your app is: module:name, as in shop.tasks:guard"),
]


def declare(app: typer.Typer) -> None:
    """Declare the commands."""
    command(app, "reconcile")(reconcile)
    command(app, "adopt")(adopt)


def reconcile(
    face: CommandContext,
    guard: GuardArgument,
    once: Annotated[bool, typer.Option("--once", help="Do one pass and end.")] = False,
) -> ExitCode:
    """Take over from dead workers and send again what a broker lost."""
    return _run_with_exit_code(face, lambda: _reconcile_until_stopped(guard, once=once))


def adopt(
    face: CommandContext,
    guard: GuardArgument,
    work: Annotated[str, typer.Argument(metavar="WORK", help="Name of the guarded work, as in `guarded(name=…)`.")],
    source: Annotated[str, typer.Option("--source", help="Address of the database that has the table.")],
    table: Annotated[str, typer.Option("--table", help="The table.")],
    key: Annotated[str, typer.Option("--key", help="Its key column.")] = "id",
    active: Annotated[str, typer.Option("--active", help="SQL condition of a done row.")] = "is_active",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count, and write nothing.")] = False,
) -> ExitCode:
    """Bring the rows of an existing table into the guard."""
    given = {"database": source, "table": table, "key": key, "active": active}
    return _run_with_exit_code(face, lambda: _adopt_rows(face, guard, work, given, dry_run=dry_run))


def _run_with_exit_code(face: CommandContext, work: Callable[[], None]) -> ExitCode:
    if not face.options.debug:
        log_to_stderr(logging.INFO, "%(asctime)s %(levelname)s %(message)s")
    try:
        work()
    except HoldfastError as error:
        if face.options.debug:
            raise
        face.terminal.warn(f"holdfast: {error}")
        return ExitCode.FAILED
    return ExitCode.OK


def _reconcile_until_stopped(where: str, *, once: bool) -> None:
    """Go round until a signal comes; a pass that fails is followed by another one."""
    guard = _load_guard(where)
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    while True:
        pause = guard.settings.period
        try:
            due = guard.reconcile()
            pause = pause if due is None else min(due, pause)
        except HoldfastError as error:
            if once:
                raise
            logging.getLogger("holdfast").warning("reconcile.failed error=%s", error)
        if once or ended.wait(max(pause.total_seconds(), 0.05)):
            guard.close()
            return


def _adopt_rows(face: CommandContext, where: str, work: str, given: dict[str, Any], *, dry_run: bool) -> None:
    from holdfast.guard.adopt import AdoptionSource  # noqa: PLC0415 - slow to load
    from holdfast.guard.adopt import adopt as adopting  # noqa: PLC0415

    guard = _load_guard(where)
    if work not in guard.works:
        raise BadSettings(f"{where} guards no work {work!r}; it guards {', '.join(sorted(guard.works))}.")
    found = adopting(guard, work, AdoptionSource(**given), dry_run=dry_run)
    would = "would be " if dry_run else ""

    def human() -> None:
        print(f"{found.success} active rows {would}adopted as success")
        print(f"{found.not_indexed} rows are not active: they stay not indexed")
        print(f"{found.known} active rows were known already and are left as they are")

    face.print_result(found._asdict() if hasattr(found, "_asdict") else found, human)
    guard.close()


def _load_guard(where: str) -> Guard:
    """Import the guard, from the current folder too, as Celery does with its app."""
    from holdfast.guard.guard import Guard  # noqa: PLC0415 - slow to load

    module, _, name = where.partition(":")
    sys.path.insert(0, "")
    try:
        found = getattr(import_module(module), name or "guard")
    except (ImportError, AttributeError, ValueError) as error:
        raise BadSettings(f"The guard {where!r} cannot be loaded ({error}); write module:name.") from error
    if not isinstance(found, Guard):
        raise BadSettings(f"{where!r} is not a Guard but a {type(found).__name__}; name the Guard of your app.")
    return found
