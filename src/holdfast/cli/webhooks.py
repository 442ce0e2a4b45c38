"""`webhooks`: creates, lists and deletes webhooks; lists and repeats deliveries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.command import CommandContext, command
from holdfast.cli.format import format_count
from holdfast.cli.options import CursorOption, YesOption, complete_base_name

if TYPE_CHECKING:
    from holdfast.service.schemas import Webhook, WebhookWithSecret

WebhookArgument = Annotated[int, typer.Argument(metavar="ID", help="Id of the webhook, from `holdfast webhooks ls`.")]


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
    url: Annotated[str, typer.Argument(metavar="URL", help="Address that receives the events.")],
    types: Annotated[
        list[str] | None,
        typer.Option(
            "--type",
            metavar="TYPE",
            help="Only events of this type, such as job.failed or job.*; repeatable; default: all events.",
        ),
    ] = None,
    base: Annotated[
        list[str] | None,
        typer.Option(
            "--base",
            "-b",
            metavar="NAME",
            help="Only events of this base; repeatable; default: all bases.",
            autocompletion=complete_base_name,
        ),
    ] = None,
) -> None:
    """Create a webhook: a URL that receives events.

    The secret that signs the events is printed only once.

    Example:
        holdfast webhooks create https://example.org/hook --type 'job.*' --base handbook
    """
    with context.open() as library:
        made = library.webhooks.create(url, types or (), bases=base or None)
    _print_secret(context, made, f"Created webhook {made.webhook.id} for the events {', '.join(made.webhook.types)}.")


def rotate(context: CommandContext, webhook: WebhookArgument) -> None:
    """Replace the secret of a webhook.

    For one day, events are signed with both secrets.

    Example:
        holdfast webhooks rotate 1
    """
    with context.open() as library:
        made = library.webhooks.rotate(webhook)
    _print_secret(
        context, made, f"Webhook {webhook} has a new secret. For one day, events are signed with both secrets."
    )


def rotate_key(context: CommandContext) -> None:
    """Encrypt the stored secrets of all webhooks with a new key.

    Run it on a machine of the deployment. Receivers notice nothing. If HOLDFAST_SECRET_KEY is set, first write the
    new key in front of the old one.

    Example:
        holdfast webhooks rotate-key
    """
    settings = context.settings()
    from holdfast.service.opening import open_library  # noqa: PLC0415 - slow to load

    library = open_library(settings)
    try:
        count = library.webhook_cipher.rotate_key(library.store.database)
    finally:
        library.store.close()
    after = "Remove the old keys from HOLDFAST_SECRET_KEY now." if settings.secret_key else "The old key was removed."
    words = f"Encrypted the secrets of {format_count(count, 'webhook')} with the new key. {after}"
    context.print_result({"webhooks": count}, lambda: context.terminal.info(words))


def _print_secret(context: CommandContext, made: WebhookWithSecret, words: str) -> None:
    def human() -> None:
        context.terminal.print_text(made.secret)
        context.terminal.info(f"{words} Store the secret now: it cannot be shown again.")

    context.print_result(made, human)


def ls(context: CommandContext) -> None:
    """List the webhooks.

    Example:
        holdfast webhooks ls
    """
    with context.open() as library:
        found = library.webhooks.list()

    def human() -> None:
        context.terminal.print_table(
            ("id", "url", "events", "bases", "state", "failures", "waiting", "next attempt", "reason"),
            [
                (webhook.id, webhook.url, webhook.types, "all" if webhook.bases is None else webhook.bases,
                 webhook.state, webhook.failures, webhook.waiting, webhook.retry_at, webhook.disabled_reason)
                for webhook in found
            ],
        )  # fmt: skip
        if not found:
            context.terminal.info(f"No webhooks yet. Create one: {context.format_command('webhooks', 'create', 'URL')}")

    context.print_result(found, human)


def deliveries(context: CommandContext, webhook: WebhookArgument, cursor: CursorOption = None) -> None:
    """List the deliveries of a webhook, newest first.

    Example:
        holdfast webhooks deliveries 1
    """
    with context.open() as library:
        found = library.webhooks.deliveries(webhook, cursor=cursor)

    def human() -> None:
        context.terminal.print_table(
            ("delivery", "event", "state", "attempts", "response", "reason", "created at", "next attempt"),
            [
                (delivery.id, delivery.type, delivery.state, delivery.attempts, delivery.status, delivery.reason,
                 delivery.created_at, delivery.next_at)
                for delivery in found.items
            ],
        )  # fmt: skip
        if not found.items:
            context.terminal.info(f"No deliveries of webhook {webhook} yet. The next matching event creates one.")
        elif found.next_cursor:
            context.terminal.info(f"Next page: --cursor {found.next_cursor}")

    context.print_result(found, human)


def redeliver(
    context: CommandContext,
    delivery: Annotated[
        int, typer.Argument(metavar="DELIVERY", help="Id of the delivery, from `holdfast webhooks deliveries`.")
    ],
) -> None:
    """Send a delivery again, with the same id.

    Example:
        holdfast webhooks redeliver 17
    """
    with context.open() as library:
        found = library.webhooks.redeliver(delivery)
    context.print_result(
        found, lambda: context.terminal.info(f"Delivery {delivery} is {found.state}. The server sends it again.")
    )


def enable(context: CommandContext, webhook: WebhookArgument) -> None:
    """Enable a webhook: send events to it again.

    Example:
        holdfast webhooks enable 1
    """
    with context.open() as library:
        found = library.webhooks.enable(webhook)
    _print_webhook(context, found, "Enabled")


def disable(context: CommandContext, webhook: WebhookArgument) -> None:
    """Disable a webhook: send no events until it is enabled.

    Example:
        holdfast webhooks disable 1
    """
    with context.open() as library:
        found = library.webhooks.disable(webhook)
    _print_webhook(context, found, "Disabled")


def _print_webhook(context: CommandContext, found: Webhook, done: str) -> None:
    context.print_result(found, lambda: context.terminal.info(f"{done} webhook {found.id} ({found.url})."))


def rm(context: CommandContext, webhook: WebhookArgument, yes: YesOption = False) -> None:
    """Delete a webhook and its deliveries.

    Example:
        holdfast webhooks rm 1
    """
    with context.open() as library:
        context.confirm(f"Delete webhook {webhook} and its deliveries? This cannot be undone.", yes=yes)
        library.webhooks.delete(webhook)
    context.print_result(
        {"webhook": webhook, "deleted": True}, lambda: context.terminal.info(f"Deleted webhook {webhook}.")
    )
