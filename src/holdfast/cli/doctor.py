"""`doctor`: checks the stored data and fixes problems."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.command import CommandContext, command
from holdfast.cli.exit_codes import ExitCode
from holdfast.errors import BadRequest

if TYPE_CHECKING:
    from holdfast.service.client import Holdfast
    from holdfast.service.schemas import Finding


def declare(app: typer.Typer) -> None:
    command(app, "doctor")(doctor)


def doctor(
    context: CommandContext,
    fix: Annotated[bool, typer.Option("--fix", help="Fix the problems that can be fixed automatically.")] = False,
    deep: Annotated[bool, typer.Option("--deep", help="Also read every file and compare its content.")] = False,
    erase: Annotated[
        bool, typer.Option("--erase", help="Erase deleted data from the disk now, and check nothing.")
    ] = False,
) -> ExitCode:
    """Check the stored data for problems, and fix them with --fix.

    The exit code is 1 while a problem is left. --erase works in two stages, and other writers wait meanwhile; the
    exit code is 1 if a stage is not complete.

    Example:
        holdfast doctor
        holdfast doctor --fix
    """
    if erase and (fix or deep):
        raise BadRequest("erase_with_checks")
    with context.open() as library:
        if erase:
            return _erase_now(context, library)
        found = library.accounts.doctor(fix=fix, deep=deep)
    context.print_result(found, lambda: _print_findings(context, found, fix=fix))
    return ExitCode.FAILED if any(one.fixed < one.count for one in found) else ExitCode.OK


def _erase_now(context: CommandContext, library: Holdfast) -> ExitCode:
    erased = library.accounts.erase()
    stages = {"overwrite": erased.overwrite, "compact": erased.compact}

    def human() -> None:
        for name, stage in stages.items():
            context.terminal.print_row(name, "complete" if stage.complete else "not complete", stage.sentence)

    context.print_result(erased, human)
    return ExitCode.OK if all(stage.complete for stage in stages.values()) else ExitCode.FAILED


def _print_findings(context: CommandContext, found: list[Finding], *, fix: bool) -> None:
    for finding in found:
        state = "fixed" if finding.fixed >= finding.count else "fixable" if finding.fixable else "fix by hand"
        context.terminal.print_row(finding.code, state, finding.sentence)
        for example in finding.examples:
            context.terminal.print_row("", example)
    if not found:
        context.terminal.info("No problems found.")
    elif not fix and any(finding.fixable for finding in found):
        context.terminal.info(f"Fix what can be fixed automatically: {context.format_command('doctor', '--fix')}")
