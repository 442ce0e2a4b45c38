"""`keys`: who may ask a server."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.cli.command import CommandContext, command
from holdfast.cli.exit_codes import ExitCode
from holdfast.cli.options import Scope, complete_base_name

HEADER = ("id", "name", "scope", "bases", "begins", "created", "expires", "revoked", "last used")


def declare(app: typer.Typer) -> None:
    """Declare the commands."""
    command(app, "create")(create)
    command(app, "ls")(ls)
    command(app, "revoke")(revoke)


def create(
    face: CommandContext,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Whose key it is.")],
    scope: Annotated[
        Scope | None, typer.Option("--scope", help="What it allows; else admin for the first key, read for later ones.")
    ] = None,
    base: Annotated[
        list[str] | None,
        typer.Option("--base", "-b", help="Only this base; may be said again.", autocompletion=complete_base_name),
    ] = None,
    days: Annotated[int | None, typer.Option("--days", min=1, help="How long it lives; else for ever.")] = None,
) -> ExitCode:
    """Make a key; its secret is printed now and never again."""
    with face.open() as library:
        made = library.keys.create(name, scope, bases=base or None, days=days)

    def human() -> None:
        face.terminal.print_text(made.secret)
        face.terminal.info(
            f"This is key {made.key.id} for {made.key.name}, with the scope {made.key.scope}. Keep it: it cannot be "
            "shown again. Commands read it from HOLDFAST_KEY or --key-file."
        )

    face.print_result(made, human)
    return ExitCode.OK


def ls(face: CommandContext) -> ExitCode:
    """List the keys; those that open nothing any more, too."""
    with face.open() as library:
        found = library.keys.list()

    def human() -> None:
        rows = [
            (one.id, one.name, one.scope, "all" if one.bases is None else one.bases, f"hf_{one.prefix}…",
             one.created_at, one.expires_at, one.revoked_at, one.used_at)
            for one in found
        ]  # fmt: skip
        face.terminal.print_table(HEADER, rows)
        if not rows:
            face.terminal.info(
                f"There are no keys; see how to make one: {face.format_command('keys', 'create', '--help')}"
            )

    face.print_result(found, human)
    return ExitCode.OK


def revoke(
    face: CommandContext, key: Annotated[int, typer.Argument(metavar="ID", help="The key's number.")]
) -> ExitCode:
    """Let a key open nothing from now on."""
    with face.open() as library:
        revoked = library.keys.revoke(key)
    face.print_result(revoked, lambda: face.terminal.info(f"Key {key} ({revoked.name}) opens nothing any more."))
    return ExitCode.OK
