"""`cards`: generates, lists and exports the study cards of a base."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.command import CommandContext, command
from holdfast.cli.exit_codes import ExitCode
from holdfast.cli.format import format_count
from holdfast.cli.options import DEFAULT_BASE, BaseOption, CardForm, CursorOption, NoWaitOption
from holdfast.cli.progress import wait_with_progress
from holdfast.cli.show import format_progress
from holdfast.cli.wait_targets import JobTarget
from holdfast.errors import BadSettings

NOT_GENERATED = "not generated"


def declare(app: typer.Typer) -> None:
    command(app, "status")(status)
    command(app, "generate")(generate)
    command(app, "cancel")(cancel)
    command(app, "ls")(ls)
    command(app, "export")(export)


def status(context: CommandContext, base: BaseOption = DEFAULT_BASE) -> None:
    """Show the number of study cards, and the progress of a new set.

    Example:
        holdfast cards status --base handbook
    """
    with context.open() as library:
        found = library.cards.status(base)
    context.print_result(
        found,
        lambda: context.terminal.print_pairs(
            [
                ("status", NOT_GENERATED if str(found.status) == "not_indexed" else found.status),
                ("cards", found.cards),
                ("progress", format_progress(found.progress)),
                ("job", found.job),
                ("reason", found.error and found.error.message),
            ]
        ),
    )


def generate(context: CommandContext, base: BaseOption = DEFAULT_BASE, no_wait: NoWaitOption = False) -> ExitCode:
    """Generate a new set of study cards.

    The old set stays available until the new one is complete.

    Example:
        holdfast cards generate --base handbook
    """
    with context.open(work=not no_wait) as library:
        reply = library.cards.generate(base)
        if no_wait or reply.job is None:
            context.print_result(reply, lambda: context.terminal.print_row(reply.job))
            return ExitCode.OK
        followed = JobTarget(library, reply.job, "cards")
        wait_with_progress(context, library, followed, again=context.format_command("cards", "status", base=base))
        found = library.cards.status(base)
    context.print_result(found, lambda: context.terminal.print_row(found.status, format_count(found.cards, "card")))
    if found.error is not None:
        context.terminal.warn(f"holdfast: {found.error.message}")
    return ExitCode.OK if followed.state == "success" else ExitCode.FAILED


def cancel(context: CommandContext, base: BaseOption = DEFAULT_BASE) -> None:
    """Stop the generation of a new set, and keep the old one.

    Example:
        holdfast cards cancel --base handbook
    """
    with context.open() as library:
        reply = library.cards.cancel(base)
    context.print_result(reply, lambda: context.terminal.info("Cancelled. The old set of cards is kept."))


def ls(
    context: CommandContext,
    size: Annotated[int, typer.Option("--size", "-n", metavar="N", min=1, max=500, help="Cards per page.")] = 50,
    cursor: CursorOption = None,
    base: BaseOption = DEFAULT_BASE,
) -> None:
    """List the study cards with their source documents.

    Example:
        holdfast cards ls --base handbook
    """
    with context.open() as library:
        found = library.cards.list(base, cursor=cursor, limit=size)

    def human() -> None:
        context.terminal.print_table(
            ("card", "question", "answer", "document"),
            [(card.place, card.question, card.answer, card.name) for card in found.items],
        )
        if not found.items:
            context.terminal.info(
                f"No cards in base {base!r}. Generate them: {context.format_command('cards', 'generate', base=base)}"
            )
        elif found.next_cursor:
            context.terminal.info(f"Next page: --cursor {found.next_cursor}")

    context.print_result(found, human)


def export(
    context: CommandContext,
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="File to write; default: stdout.", show_default=False)
    ] = None,
    form: Annotated[
        CardForm, typer.Option("--format", help="CSV for a spreadsheet, JSON for a program, or a file for Anki.")
    ] = "csv",
    base: BaseOption = DEFAULT_BASE,
) -> None:
    """Export all study cards for a spreadsheet, a program or Anki.

    Example:
        holdfast cards export cards.csv --base handbook
    """
    with context.open() as library:
        text = library.cards.export(base, form)
    if file is None:
        context.print_result({"format": form, "text": text}, lambda: context.terminal.print_text(text, end=""))
        return
    try:
        file.write_text(text)
    except OSError as error:
        raise BadSettings("cards_not_written", path=file, detail=error.strerror or error) from error
    context.print_result(
        {"format": form, "path": str(file.absolute())}, lambda: context.terminal.info(f"Exported the cards to {file}.")
    )
