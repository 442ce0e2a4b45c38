"""`webhooks`: addresses that are told what happens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.command import CommandContext, command
from holdfast.cli.exit_codes import ExitCode
from holdfast.cli.options import CursorOption, YesOption, complete_base_name

if TYPE_CHECKING:
    from holdfast.service.schemas import Webhook, WebhookWithSecret

WebhookArgument = Annotated[int, typer.Argument(metavar="ID", help="The webhook's number.")]


def declare(app: typer.Typer) -> None:
    """Declare the commands."""
    command(app, "create")(create)
    command(app, "ls")(ls)
    command(app, "deliveries")(deliveries)
    command(app, "redeliver")(redeliver)
    command(app, "rotate")(rotate)
    command(app, "rotate-key")(rotate_key)
    command(app, "enable")(enable)
    command(app, "disable")(disable)
    command(app, "rm")(rm)


def create(
    face: CommandContext,
    url: Annotated[str, typer.Argument(metavar="URL", help="The address that is told.")],
    types: Annotated[
        list[str] | None,
        typer.Option("--type", help="Only events of this type, * at the end for many; may be said again."),
    ] = None,
    base: Annotated[
        list[str] | None,
        typer.Option("--base", "-b", help="Only of this base; may be said again.", autocompletion=complete_base_name),
    ] = None,
) -> ExitCode:
    """Tell an address of what happens from now on.

    The secret that signs is printed now and never again.
    """
    with face.open() as library:
        made = library.webhooks.create(url, types or (), bases=base or None)
    _print_secret(face, made, f"Webhook {made.webhook.id} is told of {', '.join(made.webhook.types)}.")
    return ExitCode.OK


def rotate(face: CommandContext, webhook: WebhookArgument) -> ExitCode:
    """Replace the secret; both sign for a day."""
    with face.open() as library:
        made = library.webhooks.rotate(webhook)
    _print_secret(face, made, f"Webhook {webhook} has a new secret; the old one signs beside it for a day.")
    return ExitCode.OK


def rotate_key(face: CommandContext) -> ExitCode:
    """Encrypt the stored secrets of all webhooks with a new key.

    Run it on a machine of the deployment; receivers notice nothing. With HOLDFAST_SECRET_KEY put the new key first.
    """
    settings = face.settings()
    from holdfast.service.opening import open_library  # noqa: PLC0415 - slow to load

    library = open_library(settings)
    try:
        count = library.webhooks.rotate_key()
    finally:
        library.store.close()
    after = "Remove the old keys from HOLDFAST_SECRET_KEY now." if settings.secret_key else "The old key was removed."
    words = f"The secrets of {count} webhooks are encrypted with the newest key. {after}"
    face.print_result({"webhooks": count}, lambda: face.terminal.info(words))
    return ExitCode.OK


def _print_secret(face: CommandContext, made: WebhookWithSecret, words: str) -> None:
    def human() -> None:
        face.terminal.print_text(made.secret)
        face.terminal.info(f"{words} Keep the secret: it cannot be shown again.")

    face.print_result(made, human)


def ls(face: CommandContext) -> ExitCode:
    """List the webhooks."""
    with face.open() as library:
        found = library.webhooks.list()

    def human() -> None:
        face.terminal.print_table(
            ("id", "url", "types", "bases", "state", "failures", "waiting", "next", "why"),
            [
                (one.id, one.url, one.types, "all" if one.bases is None else one.bases, one.state, one.failures,
                 one.waiting, one.retry_at, one.disabled_reason)
                for one in found
            ],
        )  # fmt: skip
        if not found:
            face.terminal.info(
                f"There are no webhooks; see how to make one: {face.format_command('webhooks', 'create', '--help')}"
            )

    face.print_result(found, human)
    return ExitCode.OK


def deliveries(face: CommandContext, webhook: WebhookArgument, cursor: CursorOption = None) -> ExitCode:
    """List what was sent and what waits, newest first."""
    with face.open() as library:
        found = library.webhooks.deliveries(webhook, cursor=cursor)

    def human() -> None:
        face.terminal.print_table(
            ("delivery", "type", "state", "attempts", "answer", "why", "created", "next"),
            [
                (one.id, one.type, one.state, one.attempts, one.status, one.reason, one.created_at, one.next_at)
                for one in found.items
            ],
        )
        if not found.items:
            face.terminal.info("Nothing was sent yet.")
        elif found.next_cursor:
            face.terminal.info(f"More with --cursor {found.next_cursor}")

    face.print_result(found, human)
    return ExitCode.OK


def redeliver(
    face: CommandContext, delivery: Annotated[int, typer.Argument(metavar="DELIVERY", help="The delivery's number.")]
) -> ExitCode:
    """Send a delivery once more, under the same id."""
    with face.open() as library:
        found = library.webhooks.redeliver(delivery)
    face.print_result(found, lambda: face.terminal.info(f"Delivery {delivery} is {found.state}; the server sends it."))
    return ExitCode.OK


def enable(face: CommandContext, webhook: WebhookArgument) -> ExitCode:
    """Send again."""
    with face.open() as library:
        found = library.webhooks.enable(webhook)
    _print_webhook(face, found, "is told again")
    return ExitCode.OK


def disable(face: CommandContext, webhook: WebhookArgument) -> ExitCode:
    """Send nothing until it is enabled."""
    with face.open() as library:
        found = library.webhooks.disable(webhook)
    _print_webhook(face, found, "is told nothing until it is enabled")
    return ExitCode.OK


def _print_webhook(face: CommandContext, found: Webhook, words: str) -> None:
    face.print_result(found, lambda: face.terminal.info(f"Webhook {found.id} ({found.url}) {words}."))


def rm(face: CommandContext, webhook: WebhookArgument, yes: YesOption = False) -> ExitCode:
    """Remove a webhook with its deliveries."""
    with face.open() as library:
        face.confirm(f"Remove webhook {webhook} with its deliveries?", yes=yes)
        library.webhooks.delete(webhook)
    face.print_result({"webhook": webhook, "deleted": True}, lambda: face.terminal.info(f"Removed webhook {webhook}."))
    return ExitCode.OK
