"""Who may ask, and who is told: keys and webhooks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from holdfast.auth import Scope
from holdfast.clock import Moment, as_datetime
from holdfast.errors import BadRequest
from holdfast.service.cursors import parse_cursor
from holdfast.service.schemas import ApiKey, Delivery, KeyWithSecret, Page, Webhook, WebhookWithSecret
from holdfast.service.validation import ValidatedOperations, parse_choice
from holdfast.url_secrets import mask_secrets

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.auth import StoredKey
    from holdfast.service.authorization import Authorization
    from holdfast.webhooks.endpoints import StoredWebhook

ALL_EVENT_TYPES = ("*",)
MAX_KEY_DAYS = 36_500  # days of a key
KeyList = list[ApiKey]
WebhookList = list[Webhook]


class LocalKeys(ValidatedOperations):
    """The keys of a database; only for who may do anything everywhere."""

    def __init__(self, authorization: Authorization) -> None:
        self._authorization = authorization
        self._keys = authorization.library.keys

    def create(
        self,
        name: str,
        scope: Scope | str | None = None,
        *,
        bases: Sequence[str] | None = None,
        days: int | None = None,
    ) -> KeyWithSecret:
        """Make a key; its secret is returned here and never again.

        Without a scope the first key of a server is an admin key: from then on every request needs a key, and without
        an admin key its creator could not even make another one. Later keys, and keys limited to bases, may only read.
        """
        self._authorization.require_all_bases(Scope.ADMIN)
        if days is not None and not 1 <= days <= MAX_KEY_DAYS:
            raise BadRequest(f"A key lives 1 to {MAX_KEY_DAYS} days, or for ever.", "key_life", longest=MAX_KEY_DAYS)
        ids = _find_base_ids(self._authorization, bases)
        ends = None if days is None else Moment(int((datetime.now(UTC) + timedelta(days=days)).timestamp() * 1_000_000))
        usual = Scope.READ if bases is not None or self._keys.any_created() else Scope.ADMIN
        chosen = usual if scope is None else parse_choice(Scope, "scope", scope)
        key, secret = self._keys.create(name, chosen, ids, ends)
        return KeyWithSecret(key=self._to_schema(key), secret=secret)

    def list(self) -> KeyList:
        """Return all keys, oldest first; those that open nothing any more, too."""
        self._authorization.require_all_bases(Scope.ADMIN)
        return [self._to_schema(key) for key in self._keys.list_all()]

    def revoke(self, key: int) -> ApiKey:
        """Let a key open nothing from now on."""
        self._authorization.require_all_bases(Scope.ADMIN)
        return self._to_schema(self._keys.revoke(key))

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


class LocalWebhooks(ValidatedOperations):
    """The webhooks of a database; only for who may do anything everywhere."""

    def __init__(self, authorization: Authorization) -> None:
        self._authorization = authorization
        self._webhooks = authorization.library.webhooks
        self._deliveries = authorization.library.deliveries

    def create(
        self, url: str, types: Sequence[str] = ALL_EVENT_TYPES, *, bases: Sequence[str] | None = None
    ) -> WebhookWithSecret:
        """Tell an address of what happens from now on; the secret that signs is told here and never again."""
        self._authorization.require_all_bases(Scope.ADMIN)
        made, secret = self._webhooks.create(
            url, tuple(types) or ALL_EVENT_TYPES, _find_base_ids(self._authorization, bases)
        )
        return WebhookWithSecret(webhook=self._to_schema(made), secret=secret)

    def list(self) -> WebhookList:
        """Return all webhooks, oldest first."""
        self._authorization.require_all_bases(Scope.ADMIN)
        return [self._to_schema(one) for one in self._webhooks.list_all()]

    def get(self, webhook: int) -> Webhook:
        """Return a webhook."""
        self._authorization.require_all_bases(Scope.ADMIN)
        return self._to_schema(self._webhooks.get(webhook))

    def enable(self, webhook: int) -> Webhook:
        """Send again."""
        self._authorization.require_all_bases(Scope.ADMIN)
        return self._to_schema(self._webhooks.enable(webhook))

    def disable(self, webhook: int) -> Webhook:
        """Send nothing until it is enabled."""
        self._authorization.require_all_bases(Scope.ADMIN)
        return self._to_schema(self._webhooks.disable(webhook))

    def rotate(self, webhook: int) -> WebhookWithSecret:
        """Replace the secret; both sign for a day."""
        self._authorization.require_all_bases(Scope.ADMIN)
        secret = self._webhooks.rotate_secret(webhook)
        return WebhookWithSecret(webhook=self.get(webhook), secret=secret)

    def delete(self, webhook: int) -> None:
        """Remove a webhook with its deliveries."""
        self._authorization.require_all_bases(Scope.ADMIN)
        self._webhooks.delete(webhook)

    def deliveries(self, webhook: int, *, cursor: str | None = None, limit: int = 50) -> Page[Delivery]:
        """Return what was sent and what waits, newest first."""
        self._authorization.require_all_bases(Scope.ADMIN)
        found = self._deliveries.list_for_webhook(webhook, before=parse_cursor(cursor), limit=limit)
        return Page(items=found, next_cursor=str(found[-1].id) if len(found) == limit else None)

    def redeliver(self, delivery: int) -> Delivery:
        """Send a delivery once more, at once and under the same id."""
        self._authorization.require_all_bases(Scope.ADMIN)
        return self._deliveries.redeliver(delivery)

    def _to_schema(self, one: StoredWebhook) -> Webhook:
        return Webhook(
            id=one.id,
            url=mask_secrets(one.url),
            types=list(one.types),
            bases=_find_base_names(self._authorization, one.bases),
            enabled=one.enabled,
            disabled_reason=one.disabled_reason,
            failures=one.failures,
            failing_since=as_datetime(one.failing_since),
            state=str(one.state),
            retry_at=as_datetime(one.retry_at) if one.enabled else None,
            waiting=one.waiting,
            created_at=as_datetime(one.created_at),
        )


def _find_base_ids(at: Authorization, names: Sequence[str] | None) -> list[int] | None:
    return None if names is None else [at.find_base(name).id for name in names]


def _find_base_names(at: Authorization, ids: frozenset[int] | None) -> list[str] | None:
    """Return the names of bases; those that are gone are left out."""
    if ids is None:
        return None
    return [base.name for base in at.library.bases.list() if base.id in ids]
