"""`webhooks`: creates, lists and removes webhooks; shows and repeats deliveries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.command import CommandContext, command
from holdfast.cli.options import CursorOption, YesOption, complete_base_name

if TYPE_CHECKING:
    from holdfast.service.schemas import Webhook, WebhookWithSecret

WebhookArgument = Annotated[int, typer.Argument(metavar="ID", help="The webhook's number.")]


def declare(app: typer.Typer) -> None:
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
    context: CommandContext,
    url: Annotated[str, typer.Argument(metavar="URL", help="The address that is told.")],
    types: Annotated[
        list[str] | None,
        typer.Option("--type", help="Only events of this type, * at the end for many; may be said again."),
    ] = None,
    base: Annotated[
        list[str] | None,
        typer.Option("--base", "-b", help="Only of this base; may be said again.", autocompletion=complete_base_name),
    ] = None,
) -> None:
    """Tell an address of what happens from now on.

    The secret that signs is printed now and never again.
    """
    with context.open() as library:
        made = library.webhooks.create(url, types or (), bases=base or None)
    _print_secret(context, made, f"Webhook {made.webhook.id} is told of {', '.join(made.webhook.types)}.")


def rotate(context: CommandContext, webhook: WebhookArgument) -> None:
    """Replace the secret; both sign for a day."""
    with context.open() as library:
        made = library.webhooks.rotate(webhook)
    _print_secret(context, made, f"Webhook {webhook} has a new secret; the old one signs beside it for a day.")


def rotate_key(context: CommandContext) -> None:
    """Encrypt the stored secrets of all webhooks with a new key.

    Run it on a machine of the deployment; receivers notice nothing. With HOLDFAST_SECRET_KEY put the new key first.
    """
    settings = context.settings()
    from holdfast.service.opening import open_library  # noqa: PLC0415 - slow to load

    library = open_library(settings)
    try:
        count = library.webhook_cipher.rotate_key(library.store.database)
    finally:
        library.store.close()
    after = "Remove the old keys from HOLDFAST_SECRET_KEY now." if settings.secret_key else "The old key was removed."
    words = f"The secrets of {count} webhooks are encrypted with the newest key. {after}"
    context.print_result({"webhooks": count}, lambda: context.terminal.info(words))


def _print_secret(context: CommandContext, made: WebhookWithSecret, words: str) -> None:
    def human() -> None:
        context.terminal.print_text(made.secret)
        context.terminal.info(f"{words} Keep the secret: it cannot be shown again.")

    context.print_result(made, human)


def ls(context: CommandContext) -> None:
    """List the webhooks."""
    with context.open() as library:
        found = library.webhooks.list()

    def human() -> None:
        context.terminal.print_table(
            ("id", "url", "types", "bases", "state", "failures", "waiting", "next", "why"),
            [
                (webhook.id, webhook.url, webhook.types, "all" if webhook.bases is None else webhook.bases,
                 webhook.state, webhook.failures, webhook.waiting, webhook.retry_at, webhook.disabled_reason)
                for webhook in found
            ],
        )  # fmt: skip
        if not found:
            context.terminal.info(
                f"There are no webhooks; see how to make one: {context.format_command('webhooks', 'create', '--help')}"
            )

    context.print_result(found, human)


def deliveries(context: CommandContext, webhook: WebhookArgument, cursor: CursorOption = None) -> None:
    """List what was sent and what waits, newest first."""
    with context.open() as library:
        found = library.webhooks.deliveries(webhook, cursor=cursor)

    def human() -> None:
        context.terminal.print_table(
            ("delivery", "type", "state", "attempts", "answer", "why", "created", "next"),
            [
                (delivery.id, delivery.type, delivery.state, delivery.attempts, delivery.status, delivery.reason,
                 delivery.created_at, delivery.next_at)
                for delivery in found.items
            ],
        )  # fmt: skip
        if not found.items:
            context.terminal.info("Nothing was sent yet.")
        elif found.next_cursor:
            context.terminal.info(f"More with --cursor {found.next_cursor}")

    context.print_result(found, human)


def redeliver(
    context: CommandContext, delivery: Annotated[int, typer.Argument(metavar="DELIVERY", help="The delivery's number.")]
) -> None:
    """Send a delivery once more, under the same id."""
    with context.open() as library:
        found = library.webhooks.redeliver(delivery)
    context.print_result(
        found, lambda: context.terminal.info(f"Delivery {delivery} is {found.state}; the server sends it.")
    )


def enable(context: CommandContext, webhook: WebhookArgument) -> None:
    """Send again."""
    with context.open() as library:
        found = library.webhooks.enable(webhook)
    _print_webhook(context, found, "is told again")


def disable(context: CommandContext, webhook: WebhookArgument) -> None:
    """Send nothing until it is enabled."""
    with context.open() as library:
        found = library.webhooks.disable(webhook)
    _print_webhook(context, found, "is told nothing until it is enabled")


def _print_webhook(context: CommandContext, found: Webhook, words: str) -> None:
    context.print_result(found, lambda: context.terminal.info(f"Webhook {found.id} ({found.url}) {words}."))


def rm(context: CommandContext, webhook: WebhookArgument, yes: YesOption = False) -> None:
    """Remove a webhook with its deliveries."""
    with context.open() as library:
        context.confirm(f"Remove webhook {webhook} with its deliveries?", yes=yes)
        library.webhooks.delete(webhook)
    context.print_result(
        {"webhook": webhook, "deleted": True}, lambda: context.terminal.info(f"Removed webhook {webhook}.")
    )
