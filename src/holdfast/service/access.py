"""Who may ask, and who is told: keys and webhooks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from holdfast.auth import Scope
from holdfast.clock import Moment, as_datetime
from holdfast.errors import BadRequest
from holdfast.service.cursors import place
from holdfast.service.schemas import Delivery, Key, NewKey, NewWebhook, Page, Webhook
from holdfast.service.validation import Checked, one_of
from holdfast.url_secrets import masked

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.auth import Key as StoredKey
    from holdfast.service.authorization import Authorization
    from holdfast.webhooks.endpoints import Webhook as StoredWebhook

ALL = ("*",)
LONGEST_LIFE = 36_500  # days of a key
Shown = list[Key]
Hooks = list[Webhook]


class LocalKeys(Checked):
    """The keys of a database; only for who may do anything everywhere."""

    def __init__(self, authorization: Authorization) -> None:
        self._at = authorization
        self._keys = authorization.library.keys

    def create(
        self,
        name: str,
        scope: Scope | str | None = None,
        *,
        bases: Sequence[str] | None = None,
        days: int | None = None,
    ) -> NewKey:
        """Make a key; its secret is returned here and never again.

        Without a scope the first key of a server is an admin key: from then on every request needs a key, and without
        an admin key its creator could not even make another one. Later keys, and keys limited to bases, may only read.
        """
        self._at.everywhere(Scope.ADMIN)
        if days is not None and not 1 <= days <= LONGEST_LIFE:
            raise BadRequest(f"A key lives 1 to {LONGEST_LIFE} days, or for ever.", "key_life", longest=LONGEST_LIFE)
        ids = _ids(self._at, bases)
        ends = None if days is None else Moment(int((datetime.now(UTC) + timedelta(days=days)).timestamp() * 1_000_000))
        usual = Scope.READ if bases is not None or self._keys.exist() else Scope.ADMIN
        chosen = usual if scope is None else one_of(Scope, "scope", scope)
        key, secret = self._keys.create(name, chosen, ids, ends)
        return NewKey(key=self._shown(key), secret=secret)

    def list(self) -> Shown:
        """Return all keys, oldest first; those that open nothing any more, too."""
        self._at.everywhere(Scope.ADMIN)
        return [self._shown(key) for key in self._keys.all()]

    def revoke(self, key: int) -> Key:
        """Let a key open nothing from now on."""
        self._at.everywhere(Scope.ADMIN)
        return self._shown(self._keys.revoke(key))

    def _shown(self, key: StoredKey) -> Key:
        return Key(
            id=key.id,
            name=key.name,
            prefix=key.prefix,
            scope=str(key.scope),
            bases=_names(self._at, key.bases),
            created_at=as_datetime(key.created_at),
            expires_at=as_datetime(key.expires_at),
            revoked_at=as_datetime(key.revoked_at),
            used_at=as_datetime(key.used_at),
        )


class LocalWebhooks(Checked):
    """The webhooks of a database; only for who may do anything everywhere."""

    def __init__(self, authorization: Authorization) -> None:
        self._at = authorization
        self._webhooks = authorization.library.webhooks
        self._deliveries = authorization.library.deliveries

    def create(self, url: str, types: Sequence[str] = ALL, *, bases: Sequence[str] | None = None) -> NewWebhook:
        """Tell an address of what happens from now on; the secret that signs is told here and never again."""
        self._at.everywhere(Scope.ADMIN)
        made, secret = self._webhooks.create(url, tuple(types) or ALL, _ids(self._at, bases))
        return NewWebhook(webhook=self._shown(made), secret=secret)

    def list(self) -> Hooks:
        """Return all webhooks, oldest first."""
        self._at.everywhere(Scope.ADMIN)
        return [self._shown(one) for one in self._webhooks.all()]

    def get(self, webhook: int) -> Webhook:
        """Return a webhook."""
        self._at.everywhere(Scope.ADMIN)
        return self._shown(self._webhooks.webhook(webhook))

    def enable(self, webhook: int) -> Webhook:
        """Send again."""
        self._at.everywhere(Scope.ADMIN)
        return self._shown(self._webhooks.enable(webhook))

    def disable(self, webhook: int) -> Webhook:
        """Send nothing until it is enabled."""
        self._at.everywhere(Scope.ADMIN)
        return self._shown(self._webhooks.disable(webhook))

    def rotate(self, webhook: int) -> NewWebhook:
        """Replace the secret; both sign for a day."""
        self._at.everywhere(Scope.ADMIN)
        secret = self._webhooks.rotate(webhook)
        return NewWebhook(webhook=self.get(webhook), secret=secret)

    def delete(self, webhook: int) -> None:
        """Remove a webhook with its deliveries."""
        self._at.everywhere(Scope.ADMIN)
        self._webhooks.delete(webhook)

    def deliveries(self, webhook: int, *, cursor: str | None = None, limit: int = 50) -> Page[Delivery]:
        """Return what was sent and what waits, newest first."""
        self._at.everywhere(Scope.ADMIN)
        found = self._deliveries.of(webhook, before=place(cursor), limit=limit)
        return Page(items=found, next_cursor=str(found[-1].id) if len(found) == limit else None)

    def redeliver(self, delivery: int) -> Delivery:
        """Send a delivery once more, at once and under the same id."""
        self._at.everywhere(Scope.ADMIN)
        return self._deliveries.redeliver(delivery)

    def _shown(self, one: StoredWebhook) -> Webhook:
        return Webhook(
            id=one.id,
            url=masked(one.url),
            types=list(one.types),
            bases=_names(self._at, one.bases),
            enabled=one.enabled,
            disabled_reason=one.disabled_reason,
            failures=one.failures,
            failing_since=as_datetime(one.failing_since),
            state=str(one.state),
            retry_at=as_datetime(one.retry_at) if one.enabled else None,
            waiting=one.waiting,
            created_at=as_datetime(one.created_at),
        )


def _ids(at: Authorization, names: Sequence[str] | None) -> list[int] | None:
    return None if names is None else [at.open(name).id for name in names]


def _names(at: Authorization, ids: frozenset[int] | None) -> list[str] | None:
    """Return the names of bases; those that are gone are left out."""
    if ids is None:
        return None
    return [base.name for base in at.library.bases.list() if base.id in ids]
