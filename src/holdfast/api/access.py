"""`/keys` and `/webhooks`: who may ask, and who is told."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, status
from pydantic import BaseModel, ConfigDict, Field

from holdfast.api.auth import Service
from holdfast.api.idempotency import IdempotentRoute, SecretIdempotentRoute
from holdfast.auth import Scope
from holdfast.service.schemas import ApiKey, Delivery, Page, Webhook

keys = APIRouter(prefix="/keys", tags=["keys"], route_class=SecretIdempotentRoute)
webhooks = APIRouter(prefix="/webhooks", tags=["webhooks"], route_class=SecretIdempotentRoute)
deliveries = APIRouter(prefix="/deliveries", tags=["webhooks"], route_class=IdempotentRoute)

RecordId = Annotated[int, Path(ge=1, lt=2**63)]
BaseNames = Annotated[
    list[str] | None, Field(description="names of bases; null: all, also later ones", max_length=1000)
]


class CreateKeyRequest(BaseModel):
    """A key to be made."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(min_length=1, max_length=200)
    scope: Scope | None = Field(
        None, description="null: `admin` for the first key of a server that is not limited to bases, else `read`"
    )
    bases: BaseNames = None
    days: int | None = Field(None, ge=1, le=36_500, description="after which it opens nothing; null: never")


class CreateWebhookRequest(BaseModel):
    """A webhook to be made."""

    model_config = ConfigDict(extra="forbid")

    url: str = Field(min_length=1, max_length=4000)
    types: list[str] = Field(default_factory=lambda: ["*"], min_length=1, max_length=100)
    bases: BaseNames = None


class SecretResponse(BaseModel):
    """A secret that is shown once."""

    secret: str | None = Field(description="null in the answer to a repeated request")
    note: str | None = Field(default=None, description="why there is no secret")


class CreateKeyResponse(SecretResponse):
    """A key that was made, with its secret."""

    key: ApiKey


class WebhookSecretResponse(SecretResponse):
    """A webhook with the secret that signs what it is sent."""

    webhook: Webhook


@keys.get("")
def list_keys(front: Service) -> list[ApiKey]:
    """Return all keys, without their secrets."""
    return front.keys.list()


@keys.post("", status_code=status.HTTP_201_CREATED)
def create_key(front: Service, key: CreateKeyRequest) -> CreateKeyResponse:
    """Create a key. Only this response contains its secret. From the first key on, every request needs one.

    A repeat with the same `Idempotency-Key` creates no second key: it names the first one, without its secret.
    """
    made = front.keys.create(key.name, key.scope, bases=key.bases, days=key.days)
    return CreateKeyResponse(key=made.key, secret=made.secret)


@keys.delete("/{key}")
def revoke_key(front: Service, key: RecordId) -> ApiKey:
    """Let a key open nothing from now on."""
    return front.keys.revoke(key)


@webhooks.get("")
def list_webhooks(front: Service) -> list[Webhook]:
    """Return all webhooks, without their secrets."""
    return front.webhooks.list()


@webhooks.post("", status_code=status.HTTP_201_CREATED)
def create_webhook(front: Service, webhook: CreateWebhookRequest) -> WebhookSecretResponse:
    """Tell an address of what happens from now on; the secret is told in this answer and never again."""
    made = front.webhooks.create(webhook.url, webhook.types, bases=webhook.bases)
    return WebhookSecretResponse(webhook=made.webhook, secret=made.secret)


@webhooks.get("/{webhook}")
def get_webhook(front: Service, webhook: RecordId) -> Webhook:
    """Return a webhook."""
    return front.webhooks.get(webhook)


@webhooks.delete("/{webhook}", status_code=status.HTTP_204_NO_CONTENT)
def delete_webhook(front: Service, webhook: RecordId) -> None:
    """Remove a webhook with its deliveries."""
    front.webhooks.delete(webhook)


@webhooks.post("/{webhook}:enable")
def enable_webhook(front: Service, webhook: RecordId) -> Webhook:
    """Send again."""
    return front.webhooks.enable(webhook)


@webhooks.post("/{webhook}:disable")
def disable_webhook(front: Service, webhook: RecordId) -> Webhook:
    """Send nothing until it is enabled."""
    return front.webhooks.disable(webhook)


@webhooks.post("/{webhook}:rotate")
def rotate_secret(front: Service, webhook: RecordId) -> WebhookSecretResponse:
    """Replace the secret; the old one signs beside the new one for a day."""
    made = front.webhooks.rotate(webhook)
    return WebhookSecretResponse(webhook=made.webhook, secret=made.secret)


@webhooks.get("/{webhook}/deliveries")
def list_deliveries(
    front: Service,
    webhook: RecordId,
    cursor: Annotated[str | None, Query(max_length=30)] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
) -> Page[Delivery]:
    """Return what was sent and what waits, newest first."""
    return front.webhooks.deliveries(webhook, cursor=cursor, limit=limit)


@deliveries.post("/{delivery}:redeliver", status_code=status.HTTP_202_ACCEPTED)
def redeliver_event(front: Service, delivery: RecordId) -> Delivery:
    """Send a delivery once more, at once and under the same id."""
    return front.webhooks.redeliver(delivery)
