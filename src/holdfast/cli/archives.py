"""`export` and `import`: writes a base to a file, and creates a base from it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.command import CommandContext, command
from holdfast.cli.format import format_count, format_size
from holdfast.cli.options import NoWaitOption, complete_base_name
from holdfast.cli.progress import wait_with_progress
from holdfast.cli.wait_targets import BaseTarget
from holdfast.errors import BadRequest


def declare(app: typer.Typer) -> None:
    command(app, "export")(export)
    command(app, "import")(import_base)


def export(
    context: CommandContext,
    base: Annotated[str, typer.Argument(metavar="BASE", help="The base.", autocompletion=complete_base_name)],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write.")],
    no_memos: Annotated[bool, typer.Option("--no-memos", help="Leave out answers that were paid for.")] = False,
) -> None:
    """Write a base with its documents into a file."""
    with context.open() as library:
        done = library.archives.export(base, file, memos=not no_memos)
    context.print_result(
        done, lambda: context.terminal.info(f"Wrote base {base!r} to {file} ({format_size(done.bytes)}).")
    )


def import_base(
    context: CommandContext,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file that `export` wrote.")],
    name: Annotated[str | None, typer.Option("--name", help="What the base is called; else as before.")] = None,
    no_wait: NoWaitOption = False,
) -> None:
    """Make a base from a file that `export` wrote.

    Its documents are indexed again, from the answers that were paid for.
    """
    if not file.is_file():
        raise BadRequest(f"{str(file)!r} is no file. Name one that `holdfast export` wrote.")
    with context.open(work=not no_wait) as library:
        done = library.archives.restore(file, name=name)
        paid = f" and {format_count(done.memos, 'answer')} that were paid for" if done.memos else ""
        context.terminal.info(f"Made the base {done.base!r} with {format_count(done.documents, 'document')}{paid}.")
        if done.skipped:
            context.terminal.warn(
                f"{format_count(done.skipped, 'document')} can be indexed tomorrow; the quota ends today."
            )
        if not no_wait:
            wait_with_progress(
                context, library, BaseTarget(library, done.base), again=context.format_command("ls", base=done.base)
            )
    context.print_result(done, lambda: context.terminal.print_row(done.base, done.documents))
