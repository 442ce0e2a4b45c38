"""`webhooks`: addresses that are told what happens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.command import Face, command
from holdfast.cli.exit_codes import Exit
from holdfast.cli.options import Cursor, Yes, base_names

if TYPE_CHECKING:
    from holdfast.service.schemas import NewWebhook, Webhook

Id = Annotated[int, typer.Argument(metavar="ID", help="The webhook's number.")]


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
    face: Face,
    url: Annotated[str, typer.Argument(metavar="URL", help="The address that is told.")],
    types: Annotated[
        list[str] | None,
        typer.Option("--type", help="Only events of this type, * at the end for many; may be said again."),
    ] = None,
    base: Annotated[
        list[str] | None,
        typer.Option("--base", "-b", help="Only of this base; may be said again.", autocompletion=base_names),
    ] = None,
) -> Exit:
    """Tell an address of what happens from now on.

    The secret that signs is printed now and never again.
    """
    with face.open() as library:
        made = library.webhooks.create(url, types or (), bases=base or None)
    _made(face, made, f"Webhook {made.webhook.id} is told of {', '.join(made.webhook.types)}.")
    return Exit.OK


def rotate(face: Face, webhook: Id) -> Exit:
    """Replace the secret; both sign for a day."""
    with face.open() as library:
        made = library.webhooks.rotate(webhook)
    _made(face, made, f"Webhook {webhook} has a new secret; the old one signs beside it for a day.")
    return Exit.OK


def rotate_key(face: Face) -> Exit:
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
    face.show({"webhooks": count}, lambda: face.terminal.say(words))
    return Exit.OK


def _made(face: Face, made: NewWebhook, words: str) -> None:
    def human() -> None:
        face.terminal.text(made.secret)
        face.terminal.say(f"{words} Keep the secret: it cannot be shown again.")

    face.show(made, human)


def ls(face: Face) -> Exit:
    """List the webhooks."""
    with face.open() as library:
        found = library.webhooks.list()

    def human() -> None:
        face.terminal.table(
            ("id", "url", "types", "bases", "state", "failures", "waiting", "next", "why"),
            [
                (one.id, one.url, one.types, "all" if one.bases is None else one.bases, one.state, one.failures,
                 one.waiting, one.retry_at, one.disabled_reason)
                for one in found
            ],
        )  # fmt: skip
        if not found:
            face.terminal.say(
                f"There are no webhooks; see how to make one: {face.hint('webhooks', 'create', '--help')}"
            )

    face.show(found, human)
    return Exit.OK


def deliveries(face: Face, webhook: Id, cursor: Cursor = None) -> Exit:
    """List what was sent and what waits, newest first."""
    with face.open() as library:
        found = library.webhooks.deliveries(webhook, cursor=cursor)

    def human() -> None:
        face.terminal.table(
            ("delivery", "type", "state", "attempts", "answer", "why", "created", "next"),
            [
                (one.id, one.type, one.state, one.attempts, one.status, one.reason, one.created_at, one.next_at)
                for one in found.items
            ],
        )
        if not found.items:
            face.terminal.say("Nothing was sent yet.")
        elif found.next_cursor:
            face.terminal.say(f"More with --cursor {found.next_cursor}")

    face.show(found, human)
    return Exit.OK


def redeliver(
    face: Face, delivery: Annotated[int, typer.Argument(metavar="DELIVERY", help="The delivery's number.")]
) -> Exit:
    """Send a delivery once more, under the same id."""
    with face.open() as library:
        found = library.webhooks.redeliver(delivery)
    face.show(found, lambda: face.terminal.say(f"Delivery {delivery} is {found.state}; the server sends it."))
    return Exit.OK


def enable(face: Face, webhook: Id) -> Exit:
    """Send again."""
    with face.open() as library:
        found = library.webhooks.enable(webhook)
    _told(face, found, "is told again")
    return Exit.OK


def disable(face: Face, webhook: Id) -> Exit:
    """Send nothing until it is enabled."""
    with face.open() as library:
        found = library.webhooks.disable(webhook)
    _told(face, found, "is told nothing until it is enabled")
    return Exit.OK


def _told(face: Face, found: Webhook, words: str) -> None:
    face.show(found, lambda: face.terminal.say(f"Webhook {found.id} ({found.url}) {words}."))


def rm(face: Face, webhook: Id, yes: Yes = False) -> Exit:
    """Remove a webhook with its deliveries."""
    with face.open() as library:
        face.confirm(f"Remove webhook {webhook} with its deliveries?", yes=yes)
        library.webhooks.delete(webhook)
    face.show({"webhook": webhook, "deleted": True}, lambda: face.terminal.say(f"Removed webhook {webhook}."))
    return Exit.OK
