"""`doctor`: checks the stores and repairs them."""

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
    fix: Annotated[bool, typer.Option("--fix", help="Repair what can be repaired.")] = False,
    deep: Annotated[bool, typer.Option("--deep", help="Also read every file.")] = False,
    erase: Annotated[bool, typer.Option("--erase", help="Only remove deleted data from the disk, now.")] = False,
) -> ExitCode:
    """Compare every store with what should be there.

    Ends with 1 while something is wrong. With `--erase`, deleted data is removed from the disk in two stages, and
    writers wait meanwhile; it ends with 1 if a stage is not complete.
    """
    if erase and (fix or deep):
        raise BadRequest("--erase does nothing else. Run it without --fix and --deep.")
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
        state = "repaired" if finding.fixed >= finding.count else "can be repaired" if finding.fixable else "for people"
        context.terminal.print_row(finding.code, state, finding.sentence)
        for example in finding.examples:
            context.terminal.print_row("", example)
    if not found:
        context.terminal.info("All is as it should be.")
    elif not fix and any(finding.fixable for finding in found):
        context.terminal.info(f"Repair what can be repaired: {context.format_command('doctor', '--fix')}")
