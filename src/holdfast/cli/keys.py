"""`keys`: creates, lists and revokes API keys."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.cli.command import KEY_HINT, CommandContext, command
from holdfast.cli.options import Scope, complete_base_name

HEADER = ("id", "name", "scope", "bases", "prefix", "created", "expires", "revoked", "last used")


def declare(app: typer.Typer) -> None:
    command(app, "create")(create)
    command(app, "ls")(ls)
    command(app, "revoke")(revoke)


def create(
    context: CommandContext,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Who or what uses the key.")],
    scope: Annotated[
        Scope | None,
        typer.Option("--scope", help="What the key allows; default: admin for the first key, read for later ones."),
    ] = None,
    base: Annotated[
        list[str] | None,
        typer.Option(
            "--base",
            "-b",
            metavar="NAME",
            help="Allow only this base; repeatable; default: all bases.",
            autocompletion=complete_base_name,
        ),
    ] = None,
    days: Annotated[
        int | None, typer.Option("--days", metavar="N", min=1, help="Days until the key expires; default: never.")
    ] = None,
) -> None:
    """Create an API key, and print its secret once.

    Example:
        holdfast keys create deploy --scope write --base handbook --days 90
    """
    with context.open() as library:
        made = library.keys.create(name, scope, bases=base or None, days=days)

    def human() -> None:
        context.terminal.print_text(made.secret)
        context.terminal.info(
            f"Created key {made.key.id} for {made.key.name!r} with the scope {made.key.scope}. Store the secret now: "
            f"it cannot be shown again. {KEY_HINT}"
        )

    context.print_result(made, human)


def ls(context: CommandContext) -> None:
    """List all API keys, including expired and revoked ones.

    Example:
        holdfast keys ls
    """
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
            context.terminal.info(f"No keys yet. Create one: {context.format_command('keys', 'create', 'NAME')}")

    context.print_result(found, human)


def revoke(
    context: CommandContext,
    key: Annotated[int, typer.Argument(metavar="ID", help="Id of the key, from `holdfast keys ls`.")],
) -> None:
    """Revoke an API key: the server refuses it from now on.

    Example:
        holdfast keys revoke 2
    """
    with context.open() as library:
        revoked = library.keys.revoke(key)
    context.print_result(revoked, lambda: context.terminal.info(f"Revoked key {key} ({revoked.name})."))
