"""`/keys` and `/webhooks`: who may ask, and who is told."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, status
from pydantic import BaseModel, ConfigDict, Field

from holdfast.api.auth import Front
from holdfast.api.idempotency import RepeatableRoute, SecretRoute
from holdfast.auth import Scope
from holdfast.service.schemas import Delivery, Key, Page, Webhook

keys = APIRouter(prefix="/keys", tags=["keys"], route_class=SecretRoute)
webhooks = APIRouter(prefix="/webhooks", tags=["webhooks"], route_class=SecretRoute)
deliveries = APIRouter(prefix="/deliveries", tags=["webhooks"], route_class=RepeatableRoute)

Id = Annotated[int, Path(ge=1, lt=2**63)]
Bases = Annotated[list[str] | None, Field(description="names of bases; null: all, also later ones", max_length=1000)]


class WantedKey(BaseModel):
    """A key to be made."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(min_length=1, max_length=200)
    scope: Scope | None = Field(
        None, description="null: `admin` for the first key of a server that is not limited to bases, else `read`"
    )
    bases: Bases = None
    days: int | None = Field(None, ge=1, le=36_500, description="after which it opens nothing; null: never")


class WantedWebhook(BaseModel):
    """A webhook to be made."""

    model_config = ConfigDict(extra="forbid")

    url: str = Field(min_length=1, max_length=4000)
    types: list[str] = Field(default_factory=lambda: ["*"], min_length=1, max_length=100)
    bases: Bases = None


class Told(BaseModel):
    """A secret that is shown once."""

    secret: str | None = Field(description="null in the answer to a repeated request")
    note: str | None = Field(default=None, description="why there is no secret")


class MadeKey(Told):
    """A key that was made, with its secret."""

    key: Key


class MadeWebhook(Told):
    """A webhook with the secret that signs what it is sent."""

    webhook: Webhook


@keys.get("")
def list_keys(front: Front) -> list[Key]:
    """Return all keys, without their secrets."""
    return front.keys.list()


@keys.post("", status_code=status.HTTP_201_CREATED)
def create_key(front: Front, key: WantedKey) -> MadeKey:
    """Create a key. Only this response contains its secret. From the first key on, every request needs one.

    A repeat with the same `Idempotency-Key` creates no second key: it names the first one, without its secret.
    """
    made = front.keys.create(key.name, key.scope, bases=key.bases, days=key.days)
    return MadeKey(key=made.key, secret=made.secret)


@keys.delete("/{key}")
def revoke_key(front: Front, key: Id) -> Key:
    """Let a key open nothing from now on."""
    return front.keys.revoke(key)


@webhooks.get("")
def list_webhooks(front: Front) -> list[Webhook]:
    """Return all webhooks, without their secrets."""
    return front.webhooks.list()


@webhooks.post("", status_code=status.HTTP_201_CREATED)
def create_webhook(front: Front, webhook: WantedWebhook) -> MadeWebhook:
    """Tell an address of what happens from now on; the secret is told in this answer and never again."""
    made = front.webhooks.create(webhook.url, webhook.types, bases=webhook.bases)
    return MadeWebhook(webhook=made.webhook, secret=made.secret)


@webhooks.get("/{webhook}")
def get_webhook(front: Front, webhook: Id) -> Webhook:
    """Return a webhook."""
    return front.webhooks.get(webhook)


@webhooks.delete("/{webhook}", status_code=status.HTTP_204_NO_CONTENT)
def delete_webhook(front: Front, webhook: Id) -> None:
    """Remove a webhook with its deliveries."""
    front.webhooks.delete(webhook)


@webhooks.post("/{webhook}:enable")
def enable_webhook(front: Front, webhook: Id) -> Webhook:
    """Send again."""
    return front.webhooks.enable(webhook)


@webhooks.post("/{webhook}:disable")
def disable_webhook(front: Front, webhook: Id) -> Webhook:
    """Send nothing until it is enabled."""
    return front.webhooks.disable(webhook)


@webhooks.post("/{webhook}:rotate")
def rotate_secret(front: Front, webhook: Id) -> MadeWebhook:
    """Replace the secret; the old one signs beside the new one for a day."""
    made = front.webhooks.rotate(webhook)
    return MadeWebhook(webhook=made.webhook, secret=made.secret)


@webhooks.get("/{webhook}/deliveries")
def list_deliveries(
    front: Front,
    webhook: Id,
    cursor: Annotated[str | None, Query(max_length=30)] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
) -> Page[Delivery]:
    """Return what was sent and what waits, newest first."""
    return front.webhooks.deliveries(webhook, cursor=cursor, limit=limit)


@deliveries.post("/{delivery}:redeliver", status_code=status.HTTP_202_ACCEPTED)
def redeliver_event(front: Front, delivery: Id) -> Delivery:
    """Send a delivery once more, at once and under the same id."""
    return front.webhooks.redeliver(delivery)
