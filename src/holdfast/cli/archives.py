"""`export` and `import`: a base as one file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.command import Face, command
from holdfast.cli.exit_codes import Exit
from holdfast.cli.format import many, size
from holdfast.cli.options import NoWait, base_names
from holdfast.cli.progress import follow
from holdfast.cli.wait_targets import WholeBase
from holdfast.errors import BadRequest

PANEL = "Tending"


def declare(app: typer.Typer) -> None:
    """Declare the commands."""
    command(app, "export", panel=PANEL)(export)
    command(app, "import", panel=PANEL)(restore)


def export(
    face: Face,
    base: Annotated[str, typer.Argument(metavar="BASE", help="The base.", autocompletion=base_names)],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write.")],
    no_memos: Annotated[bool, typer.Option("--no-memos", help="Leave out answers that were paid for.")] = False,
) -> Exit:
    """Write a base with its documents into a file."""
    with face.open() as library:
        done = library.archives.export(base, file, memos=not no_memos)
    face.show(done, lambda: face.terminal.say(f"Wrote base {base!r} to {file} ({size(done.bytes)})."))
    return Exit.OK


def restore(
    face: Face,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file that `export` wrote.")],
    name: Annotated[str | None, typer.Option("--name", help="What the base is called; else as before.")] = None,
    no_wait: NoWait = False,
) -> Exit:
    """Make a base from a file that `export` wrote.

    Its documents are indexed again, from the answers that were paid for.
    """
    if not file.is_file():
        raise BadRequest(f"{str(file)!r} is no file. Name one that `holdfast export` wrote.")
    with face.open(work=not no_wait) as library:
        done = library.archives.restore(file, name=name)
        paid = f" and {many(done.memos, 'answer')} that were paid for" if done.memos else ""
        face.terminal.say(f"Made the base {done.base!r} with {many(done.documents, 'document')}{paid}.")
        if done.skipped:
            face.terminal.warn(f"{many(done.skipped, 'document')} can be indexed tomorrow; the quota ends today.")
        if not no_wait:
            follow(face, library, WholeBase(library, done.base), again=face.hint("ls", base=done.base))
    face.show(done, lambda: face.terminal.row(done.base, done.documents))
    return Exit.OK
