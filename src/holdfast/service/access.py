"""API keys and webhooks."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from holdfast.auth import Scope
from holdfast.clock import Moment, as_datetime
from holdfast.errors import BadRequest
from holdfast.paging import Page
from holdfast.service.cursors import parse_cursor
from holdfast.service.validation import ValidatedOperations, parse_choice
from holdfast.url_secrets import mask_secrets

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.auth import StoredKey
    from holdfast.service.authorization import Authorization
    from holdfast.webhooks import Delivery, StoredWebhook
    from holdfast.wiring import Library

ALL_EVENT_TYPES = ("*",)
MAX_KEY_DAYS = 36_500


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """An API key without its secret."""

    id: int
    name: str
    prefix: str  # the beginning of the secret
    scope: str  # read, write or admin
    bases: list[str] | None  # None: all bases, including later ones
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    used_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyWithSecret:
    """A new key with its secret."""

    key: ApiKey
    secret: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """An address that receives events."""

    id: int
    url: str
    types: list[str]
    bases: list[str] | None  # None: all bases, including later ones
    enabled: bool
    disabled_reason: str | None  # asked (by a caller), gone (HTTP 410), failing (for days)
    failures: int  # consecutive failed attempts
    failing_since: datetime | None
    created_at: datetime
    state: str = "healthy"  # healthy, failing (only one message at a time is sent, as a probe) or disabled
    retry_at: datetime | None = None  # while failing: time of the next attempt
    waiting: int = 0  # unsent messages


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookWithSecret:
    """A webhook with the secret that signs its messages."""

    webhook: Webhook
    secret: str


KeyList = list[ApiKey]  # `list` is also a method below
WebhookList = list[Webhook]


class AdminOperations:
    """Gives access to the library only to callers with the scope `admin` for all bases."""

    def __init__(self, authorization: Authorization) -> None:
        self._authorization = authorization

    @property
    def _library(self) -> Library:
        self._authorization.require_all_bases(Scope.ADMIN)
        return self._authorization.library


class LocalKeys(ValidatedOperations, AdminOperations):
    def create(
        self,
        name: str,
        scope: Scope | str | None = None,
        *,
        bases: Sequence[str] | None = None,
        days: int | None = None,
    ) -> KeyWithSecret:
        """Create a key; only this result contains its secret.

        Without `scope`, the first key of a server is an admin key: from then on every request needs a key, and without
        an admin key nobody could create another one. Later keys, and keys limited to bases, can only read.
        """
        keys = self._library.keys
        if days is not None and not 1 <= days <= MAX_KEY_DAYS:
            raise BadRequest("key_life", days=days, longest=MAX_KEY_DAYS)
        ids = _find_base_ids(self._authorization, bases)
        ends = None if days is None else Moment(int((datetime.now(UTC) + timedelta(days=days)).timestamp() * 1_000_000))
        usual = Scope.READ if bases is not None or keys.any_created() else Scope.ADMIN
        chosen = usual if scope is None else parse_choice(Scope, "scope", scope)
        key, secret = keys.create(name, chosen, ids, ends)
        return KeyWithSecret(key=self._to_schema(key), secret=secret)

    def list(self) -> KeyList:
        """Return all keys without their secrets, oldest first, including revoked and expired keys."""
        return [self._to_schema(key) for key in self._library.keys.list_all()]

    def revoke(self, key: int) -> ApiKey:
        """Revoke a key. The server rejects requests with this key from now on."""
        return self._to_schema(self._library.keys.revoke(key))

    def _to_schema(self, key: StoredKey) -> ApiKey:
        return ApiKey(
            id=key.id,
            name=key.name,
            prefix=key.prefix,
            scope=str(key.scope),
            bases=_find_base_names(self._authorization, key.bases),
            created_at=as_datetime(key.created_at),
            expires_at=as_datetime(key.expires_at),
            revoked_at=as_datetime(key.revoked_at),
            used_at=as_datetime(key.used_at),
        )


class LocalWebhooks(ValidatedOperations, AdminOperations):
    def create(
        self, url: str, types: Sequence[str] = ALL_EVENT_TYPES, *, bases: Sequence[str] | None = None
    ) -> WebhookWithSecret:
        """Send events to an address from now on; only this result contains the signing secret."""
        made, secret = self._library.webhooks.create(
            url, tuple(types) or ALL_EVENT_TYPES, _find_base_ids(self._authorization, bases)
        )
        return WebhookWithSecret(webhook=self._to_schema(made), secret=secret)

    def list(self) -> WebhookList:
        """Return all webhooks without their secrets, oldest first."""
        return [self._to_schema(webhook) for webhook in self._library.webhooks.list_all()]

    def get(self, webhook: int) -> Webhook:
        """Return a webhook."""
        return self._to_schema(self._library.webhooks.get(webhook))

    def enable(self, webhook: int) -> Webhook:
        """Enable a webhook: send its queued messages and new events. Events of the disabled time are skipped."""
        return self._to_schema(self._library.webhooks.enable(webhook))

    def disable(self, webhook: int) -> Webhook:
        """Disable a webhook. Holdfast sends nothing to it until you enable it."""
        return self._to_schema(self._library.webhooks.disable(webhook))

    def rotate(self, webhook: int) -> WebhookWithSecret:
        """Replace the secret of a webhook. For one day, messages are signed with both the old and the new secret."""
        secret = self._library.webhooks.rotate_secret(webhook)
        return WebhookWithSecret(webhook=self.get(webhook), secret=secret)

    def delete(self, webhook: int) -> None:
        """Delete a webhook and its deliveries."""
        self._library.webhooks.delete(webhook)

    def deliveries(self, webhook: int, *, cursor: str | None = None, limit: int = 50) -> Page[Delivery]:
        """Return the sent and the queued messages of a webhook, newest first."""
        found = self._library.deliveries.list_for_webhook(webhook, before=parse_cursor(cursor), limit=limit)
        return Page(items=found, next_cursor=str(found[-1].id) if len(found) == limit else None)

    def redeliver(self, delivery: int) -> Delivery:
        """Send a delivery again immediately, with the same id."""
        return self._library.deliveries.redeliver(delivery)

    def _to_schema(self, webhook: StoredWebhook) -> Webhook:
        return Webhook(
            id=webhook.id,
            url=mask_secrets(webhook.url),
            types=list(webhook.types),
            bases=_find_base_names(self._authorization, webhook.bases),
            enabled=webhook.enabled,
            disabled_reason=webhook.disabled_reason,
            failures=webhook.failures,
            failing_since=as_datetime(webhook.failing_since),
            state=str(webhook.state),
            retry_at=as_datetime(webhook.retry_at) if webhook.enabled else None,
            waiting=webhook.waiting,
            created_at=as_datetime(webhook.created_at),
        )


def _find_base_ids(authorization: Authorization, names: Sequence[str] | None) -> list[int] | None:
    return None if names is None else [authorization.find_base(name).id for name in names]


def _find_base_names(authorization: Authorization, ids: frozenset[int] | None) -> list[str] | None:
    """Return the names of bases, without deleted ones."""
    if ids is None:
        return None
    return [base.name for base in authorization.library.catalog.bases() if base.id in ids]
