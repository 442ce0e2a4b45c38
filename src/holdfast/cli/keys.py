"""`keys`: who may ask a server."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.cli.command import Face, command
from holdfast.cli.exit_codes import Exit
from holdfast.cli.options import Scope, base_names

HEADER = ("id", "name", "scope", "bases", "begins", "created", "expires", "revoked", "last used")


def declare(app: typer.Typer) -> None:
    """Declare the commands."""
    command(app, "create")(create)
    command(app, "ls")(ls)
    command(app, "revoke")(revoke)


def create(
    face: Face,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Whose key it is.")],
    scope: Annotated[
        Scope | None, typer.Option("--scope", help="What it allows; else admin for the first key, read for later ones.")
    ] = None,
    base: Annotated[
        list[str] | None,
        typer.Option("--base", "-b", help="Only this base; may be said again.", autocompletion=base_names),
    ] = None,
    days: Annotated[int | None, typer.Option("--days", min=1, help="How long it lives; else for ever.")] = None,
) -> Exit:
    """Make a key; its secret is printed now and never again."""
    with face.open() as library:
        made = library.keys.create(name, scope, bases=base or None, days=days)

    def human() -> None:
        face.terminal.text(made.secret)
        face.terminal.say(
            f"This is key {made.key.id} for {made.key.name}, with the scope {made.key.scope}. Keep it: it cannot be "
            "shown again. Commands read it from HOLDFAST_KEY or --key-file."
        )

    face.show(made, human)
    return Exit.OK


def ls(face: Face) -> Exit:
    """List the keys; those that open nothing any more, too."""
    with face.open() as library:
        found = library.keys.list()

    def human() -> None:
        rows = [
            (one.id, one.name, one.scope, "all" if one.bases is None else one.bases, f"hf_{one.prefix}…",
             one.created_at, one.expires_at, one.revoked_at, one.used_at)
            for one in found
        ]  # fmt: skip
        face.terminal.table(HEADER, rows)
        if not rows:
            face.terminal.say(f"There are no keys; see how to make one: {face.hint('keys', 'create', '--help')}")

    face.show(found, human)
    return Exit.OK


def revoke(face: Face, key: Annotated[int, typer.Argument(metavar="ID", help="The key's number.")]) -> Exit:
    """Let a key open nothing from now on."""
    with face.open() as library:
        revoked = library.keys.revoke(key)
    face.show(revoked, lambda: face.terminal.say(f"Key {key} ({revoked.name}) opens nothing any more."))
    return Exit.OK
