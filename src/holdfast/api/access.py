"""The routes of `/keys` and `/webhooks` whose responses contain a secret."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, status
from pydantic import BaseModel, Field

from holdfast.api.auth import Service
from holdfast.api.idempotency import SecretIdempotentRoute
from holdfast.service.http_models import BaseNames, CreateKeyRequest, RequestBody
from holdfast.service.routes import PATH_PARAMS
from holdfast.service.schemas import ApiKey, Webhook

keys = APIRouter(prefix="/keys", tags=["keys"], route_class=SecretIdempotentRoute)
webhooks = APIRouter(prefix="/webhooks", tags=["webhooks"], route_class=SecretIdempotentRoute)

WebhookId = Annotated[int, Path(**PATH_PARAMS["webhook"].limits)]


class CreateWebhookRequest(RequestBody):
    """A webhook to create."""

    url: str = Field(min_length=1, max_length=4000)
    types: list[str] = Field(default_factory=lambda: ["*"], min_length=1, max_length=100)
    bases: BaseNames = None


class SecretResponse(BaseModel):
    """A response with a secret that the server shows only once."""

    secret: str | None = Field(description="null in the response to a repeated request.")
    note: str | None = Field(default=None, description="The reason if there is no secret.")


class CreateKeyResponse(SecretResponse):
    """A new key with its secret."""

    key: ApiKey


class WebhookSecretResponse(SecretResponse):
    """A webhook with the secret that signs its messages."""

    webhook: Webhook


@keys.post("", status_code=status.HTTP_201_CREATED)
def create_key(service: Service, key: CreateKeyRequest) -> CreateKeyResponse:
    """Create a key. Only this response contains its secret. After the first key, every request needs a key.

    A repeated request with the same `Idempotency-Key` creates no second key: it returns the first key without its
    secret.
    """
    created = service.keys.create(key.name, key.scope, bases=key.bases, days=key.days)
    return CreateKeyResponse(key=created.key, secret=created.secret)


@webhooks.post("", status_code=status.HTTP_201_CREATED)
def create_webhook(service: Service, webhook: CreateWebhookRequest) -> WebhookSecretResponse:
    """Send events to an address from now on. Only this response contains the signing secret."""
    created = service.webhooks.create(webhook.url, webhook.types, bases=webhook.bases)
    return WebhookSecretResponse(webhook=created.webhook, secret=created.secret)


@webhooks.post("/{webhook}:rotate")
def rotate_secret(service: Service, webhook: WebhookId) -> WebhookSecretResponse:
    """Replace the secret of a webhook. For one day, messages are signed with both the old and the new secret."""
    rotated = service.webhooks.rotate(webhook)
    return WebhookSecretResponse(webhook=rotated.webhook, secret=rotated.secret)
