"""`cards`: the study cards of a base."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.command import CommandContext, command
from holdfast.cli.exit_codes import ExitCode
from holdfast.cli.options import DEFAULT_BASE, BaseOption, CardForm, CursorOption, NoWaitOption
from holdfast.cli.progress import wait_with_progress
from holdfast.cli.show import format_progress
from holdfast.cli.wait_targets import JobTarget
from holdfast.errors import BadSettings


def declare(app: typer.Typer) -> None:
    command(app, "status")(status)
    command(app, "generate")(generate)
    command(app, "cancel")(cancel)
    command(app, "ls")(ls)
    command(app, "export")(export)


def status(context: CommandContext, base: BaseOption = DEFAULT_BASE) -> None:
    """Tell what is served, and how far the next set is."""
    with context.open() as library:
        found = library.cards.status(base)
    context.print_result(
        found,
        lambda: context.terminal.print_pairs(
            [
                ("status", found.status),
                ("cards", found.cards),
                ("progress", format_progress(found.progress)),
                ("job", found.job),
                ("why", found.error and found.error.message),
            ]
        ),
    )


def generate(context: CommandContext, base: BaseOption = DEFAULT_BASE, no_wait: NoWaitOption = False) -> ExitCode:
    """Make a new set; the old one is served until then."""
    with context.open(work=not no_wait) as library:
        reply = library.cards.generate(base)
        if no_wait or reply.job is None:
            context.print_result(reply, lambda: context.terminal.print_row(reply.job))
            return ExitCode.OK
        followed = JobTarget(library, reply.job, "cards")
        wait_with_progress(context, library, followed, again=context.format_command("cards", "status", base=base))
        found = library.cards.status(base)
    context.print_result(found, lambda: context.terminal.print_row(found.status, f"{found.cards} cards"))
    if found.error is not None:
        context.terminal.warn(f"holdfast: {found.error.message}")
    return ExitCode.OK if followed.state == "success" else ExitCode.FAILED


def cancel(context: CommandContext, base: BaseOption = DEFAULT_BASE) -> None:
    """Stop making a set; the one that is served stays."""
    with context.open() as library:
        reply = library.cards.cancel(base)
    context.print_result(reply, lambda: context.terminal.info("Cancelled; the set that was served is still served."))


def ls(
    context: CommandContext,
    size: Annotated[int, typer.Option("--size", "-n", min=1, max=500, help="Cards on a page.")] = 50,
    cursor: CursorOption = None,
    base: BaseOption = DEFAULT_BASE,
) -> None:
    """List the cards, each with where it comes from."""
    with context.open() as library:
        found = library.cards.list(base, cursor=cursor, limit=size)

    def human() -> None:
        context.terminal.print_table(
            ("card", "question", "answer", "name"),
            [(card.place, card.question, card.answer, card.name) for card in found.items],
        )
        if not found.items:
            context.terminal.info(
                f"There are no cards; make them with: {context.format_command('cards', 'generate', base=base)}"
            )
        elif found.next_cursor:
            context.terminal.info(f"More with --cursor {found.next_cursor}")

    context.print_result(found, human)


def export(
    context: CommandContext,
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="Where to write them; else stdout.", show_default=False)
    ] = None,
    form: Annotated[CardForm, typer.Option("--format", help="For a spreadsheet, a program, or Anki.")] = "csv",
    base: BaseOption = DEFAULT_BASE,
) -> None:
    """Write all cards as a file."""
    with context.open() as library:
        text = library.cards.export(base, form)
    if file is None:
        context.print_result({"format": form, "text": text}, lambda: context.terminal.print_text(text, end=""))
        return
    try:
        file.write_text(text)
    except OSError as error:
        raise BadSettings(f"{str(file)!r} cannot be written ({error.strerror}).") from error
    context.print_result(
        {"format": form, "path": str(file.absolute())}, lambda: context.terminal.info(f"Wrote the cards to {file}")
    )
