"""`export` and `import`: writes a base to an archive, and creates a base from an archive."""

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
    base: Annotated[str, typer.Argument(metavar="BASE", help="Name of the base.", autocompletion=complete_base_name)],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Archive to write.")],
    no_memos: Annotated[bool, typer.Option("--no-memos", help="Leave out stored answers of paid providers.")] = False,
) -> None:
    """Export a base with its documents to a file.

    Example:
        holdfast export handbook handbook.zip
    """
    with context.open() as library:
        done = library.archives.export(base, file, memos=not no_memos)
    context.print_result(
        done, lambda: context.terminal.info(f"Exported base {base!r} to {file} ({format_size(done.bytes)}).")
    )


def import_base(
    context: CommandContext,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Archive that `holdfast export` wrote.")],
    name: Annotated[
        str | None,
        typer.Option("--name", metavar="NAME", help="Name of the new base; default: its name in the archive."),
    ] = None,
    no_wait: NoWaitOption = False,
) -> None:
    """Create a base from an exported file.

    The documents are indexed again. Stored answers of paid providers are reused.

    Example:
        holdfast import handbook.zip --name handbook-copy
    """
    if not file.is_file():
        raise BadRequest("no_such_file", path=file)
    with context.open(work=not no_wait) as library:
        done = library.archives.restore(file, name=name)
        paid = f" and {format_count(done.memos, 'stored answer')}" if done.memos else ""
        context.terminal.info(f"Created base {done.base!r} with {format_count(done.documents, 'document')}{paid}.")
        if done.skipped:
            context.terminal.warn(
                f"{format_count(done.skipped, 'document')} not indexed, because the daily quota is used up. Reindex "
                "them after midnight UTC, or raise the setting jobs_per_day of the base."
            )
        if not no_wait:
            wait_with_progress(
                context, library, BaseTarget(library, done.base), again=context.format_command("ls", base=done.base)
            )
    context.print_result(done, lambda: context.terminal.print_row(done.base, done.documents))
