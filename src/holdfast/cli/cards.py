"""`cards`: the study cards of a base."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.command import Face, command
from holdfast.cli.exit_codes import Exit
from holdfast.cli.options import DEFAULT_BASE, Base, CardForm, Cursor, NoWait
from holdfast.cli.progress import follow
from holdfast.cli.show import far
from holdfast.cli.wait_targets import OneJob
from holdfast.errors import BadSettings


def declare(app: typer.Typer) -> None:
    """Declare the commands."""
    command(app, "status")(status)
    command(app, "generate")(generate)
    command(app, "cancel")(cancel)
    command(app, "ls")(ls)
    command(app, "export")(export)


def status(face: Face, base: Base = DEFAULT_BASE) -> Exit:
    """Tell what is served, and how far the next set is."""
    with face.open() as library:
        found = library.cards.status(base)
    face.show(
        found,
        lambda: face.terminal.pairs(
            [
                ("status", found.status),
                ("cards", found.cards),
                ("progress", far(found.progress)),
                ("job", found.job),
                ("why", found.error and found.error.message),
            ]
        ),
    )
    return Exit.OK


def generate(face: Face, base: Base = DEFAULT_BASE, no_wait: NoWait = False) -> Exit:
    """Make a new set; the old one is served until then."""
    with face.open(work=not no_wait) as library:
        reply = library.cards.generate(base)
        if no_wait or reply.job is None:
            face.show(reply, lambda: face.terminal.row(reply.job))
            return Exit.OK
        followed = OneJob(library, reply.job, "cards")
        follow(face, library, followed, again=face.hint("cards", "status", base=base))
        found = library.cards.status(base)
    face.show(found, lambda: face.terminal.row(found.status, f"{found.cards} cards"))
    if found.error is not None:
        face.terminal.warn(f"holdfast: {found.error.message}")
    return Exit.OK if followed.state == "success" else Exit.FAILED


def cancel(face: Face, base: Base = DEFAULT_BASE) -> Exit:
    """Stop making a set; the one that is served stays."""
    with face.open() as library:
        reply = library.cards.cancel(base)
    face.show(reply, lambda: face.terminal.say("Cancelled; the set that was served is still served."))
    return Exit.OK


def ls(
    face: Face,
    size: Annotated[int, typer.Option("--size", "-n", min=1, max=500, help="Cards on a page.")] = 50,
    cursor: Cursor = None,
    base: Base = DEFAULT_BASE,
) -> Exit:
    """List the cards, each with where it comes from."""
    with face.open() as library:
        found = library.cards.list(base, cursor=cursor, limit=size)

    def human() -> None:
        face.terminal.table(
            ("card", "question", "answer", "name"),
            [(one.place, one.question, one.answer, one.name) for one in found.items],
        )
        if not found.items:
            face.terminal.say(f"There are no cards; make them with: {face.hint('cards', 'generate', base=base)}")
        elif found.next_cursor:
            face.terminal.say(f"More with --cursor {found.next_cursor}")

    face.show(found, human)
    return Exit.OK


def export(
    face: Face,
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="Where to write them; else stdout.", show_default=False)
    ] = None,
    form: Annotated[CardForm, typer.Option("--format", help="For a spreadsheet, a program, or Anki.")] = "csv",
    base: Base = DEFAULT_BASE,
) -> Exit:
    """Write all cards as a file."""
    with face.open() as library:
        text = library.cards.export(base, form)
    if file is None:
        face.show({"format": form, "text": text}, lambda: face.terminal.text(text, end=""))
        return Exit.OK
    try:
        file.write_text(text)
    except OSError as error:
        raise BadSettings(f"{str(file)!r} cannot be written ({error.strerror}).") from error
    face.show({"format": form, "path": str(file.absolute())}, lambda: face.terminal.say(f"Wrote the cards to {file}"))
    return Exit.OK
