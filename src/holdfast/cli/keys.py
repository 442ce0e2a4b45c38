"""`keys`: creates, lists and revokes API keys."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.cli.command import CommandContext, command
from holdfast.cli.options import Scope, complete_base_name

HEADER = ("id", "name", "scope", "bases", "begins", "created", "expires", "revoked", "last used")


def declare(app: typer.Typer) -> None:
    command(app, "create")(create)
    command(app, "ls")(ls)
    command(app, "revoke")(revoke)


def create(
    context: CommandContext,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Whose key it is.")],
    scope: Annotated[
        Scope | None, typer.Option("--scope", help="What it allows; else admin for the first key, read for later ones.")
    ] = None,
    base: Annotated[
        list[str] | None,
        typer.Option("--base", "-b", help="Only this base; may be said again.", autocompletion=complete_base_name),
    ] = None,
    days: Annotated[int | None, typer.Option("--days", min=1, help="How long it lives; else for ever.")] = None,
) -> None:
    """Make a key; its secret is printed now and never again."""
    with context.open() as library:
        made = library.keys.create(name, scope, bases=base or None, days=days)

    def human() -> None:
        context.terminal.print_text(made.secret)
        context.terminal.info(
            f"This is key {made.key.id} for {made.key.name}, with the scope {made.key.scope}. Keep it: it cannot be "
            "shown again. Commands read it from HOLDFAST_KEY or --key-file."
        )

    context.print_result(made, human)


def ls(context: CommandContext) -> None:
    """List the keys; those that open nothing any more, too."""
    with context.open() as library:
        found = library.keys.list()

    def human() -> None:
        rows = [
            (key.id, key.name, key.scope, "all" if key.bases is None else key.bases, f"hf_{key.prefix}…",
             key.created_at, key.expires_at, key.revoked_at, key.used_at)
            for key in found
        ]  # fmt: skip
        context.terminal.print_table(HEADER, rows)
        if not rows:
            context.terminal.info(
                f"There are no keys; see how to make one: {context.format_command('keys', 'create', '--help')}"
            )

    context.print_result(found, human)


def revoke(
    context: CommandContext, key: Annotated[int, typer.Argument(metavar="ID", help="The key's number.")]
) -> None:
    """Let a key open nothing from now on."""
    with context.open() as library:
        revoked = library.keys.revoke(key)
    context.print_result(revoked, lambda: context.terminal.info(f"Key {key} ({revoked.name}) opens nothing any more."))
