"""Registered webhooks: address, event types, bases and signing secret.

A webhook receives only events that follow its creation. Its secret is returned when it is created or replaced, and
never again. After a replacement, messages carry signatures of both secrets for a day.
"""

from __future__ import annotations

import ipaddress
import json
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from holdfast.clock import Moment, micros
from holdfast.errors import BadRequest, Permanent, UnknownWebhook
from holdfast.events import EVENT_TYPES
from holdfast.sources import PUBLIC_ONLY, Reach, Url
from holdfast.url_secrets import find_secret
from holdfast.webhooks import signing
from holdfast.webhooks import statements as sql
from holdfast.webhooks.retry_policy import WebhookState

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from holdfast.db import Database, Transaction
    from holdfast.events import EventLog
    from holdfast.webhooks.encryption import SecretCipher

SECRET_OVERLAP = timedelta(hours=24)  # how long a replaced secret signs
ANY_EVENT_TYPE = "*"
DISABLED_BY_USER, DISABLED_GONE, DISABLED_FAILING = "asked", "gone", "failing"  # why a webhook is disabled


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookFilter:
    """Which events a webhook receives."""

    types: tuple[str, ...]  # `job.success`, `job.*` or `*`
    bases: frozenset[int] | None = None  # None: all bases, also future ones, and events without a base

    def matches(self, type_: str, base: str | None) -> bool:
        if self.bases is not None and base not in {str(id_) for id_ in self.bases}:
            return False
        return any(_matches_type(pattern, type_) for pattern in self.types)

    @classmethod
    def from_columns(cls, types: str, bases: str | None) -> WebhookFilter:
        return cls(types=tuple(json.loads(types)), bases=None if bases is None else frozenset(json.loads(bases)))

    def to_columns(self) -> dict[str, str | None]:
        bases = None if self.bases is None else json.dumps(sorted(self.bases))
        return {"types": json.dumps(self.types), "bases": bases}


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredWebhook:
    """A registered webhook, without its secrets."""

    id: int
    url: str
    types: tuple[str, ...]
    bases: frozenset[int] | None
    created_at: Moment
    failures: int  # attempts in a row that failed
    failing_since: Moment | None
    retry_at: Moment | None  # while it fails: when the next probe is sent
    waiting: int  # messages that are not sent yet
    disabled_at: Moment | None
    disabled_reason: str | None  # asked (by a user), gone (status 410), failing (for days)

    @property
    def enabled(self) -> bool:
        return self.disabled_at is None

    @property
    def state(self) -> WebhookState:
        if not self.enabled:
            return WebhookState.DISABLED
        return WebhookState.FAILING if self.failures else WebhookState.HEALTHY


class WebhookRepository:
    """The webhooks of one database."""

    def __init__(self, database: Database, log: EventLog, cipher: SecretCipher, reach: Reach = PUBLIC_ONLY) -> None:
        self._database = database
        self._log = log
        self._cipher = cipher
        self._address_policy = reach

    def create(self, url: str, types: Sequence[str], bases: Collection[int] | None = None) -> tuple[StoredWebhook, str]:
        """Register a webhook for all events from now on; return it with its secret."""
        columns = {"url": self._normalize_url(url), **_make_filter(types, bases).to_columns()}
        secret = signing.new_secret()
        cursor = str(self._log.newest_cursor())

        def work(tx: Transaction) -> StoredWebhook:
            encrypted = self._cipher.encrypt(tx, secret)
            ((id_,),) = tx.run(sql.CREATE_WEBHOOK, secret=encrypted, cursor=cursor, **columns)
            return _read_webhook(tx, id_)

        return self._database.write(work, durable=True), secret

    def get(self, id_: int) -> StoredWebhook:
        """Read a webhook, or raise `UnknownWebhook`."""
        with self._database.reading() as tx:
            return _read_webhook(tx, id_)

    def list_all(self) -> list[StoredWebhook]:
        """Return all webhooks, oldest first."""
        with self._database.reading() as tx:
            return [_row_to_webhook(row) for row in tx.run(sql.LIST_WEBHOOKS)]

    def disable(self, id_: int) -> StoredWebhook:
        """Stop sending until the webhook is enabled again. Waiting deliveries stay."""
        return self._update(sql.DISABLE_WEBHOOK, id_, reason=DISABLED_BY_USER)

    def enable(self, id_: int) -> StoredWebhook:
        """Send waiting deliveries and new events again. Events from the time it was disabled are skipped."""
        return self._update(sql.ENABLE_WEBHOOK, id_, cursor=str(self._log.newest_cursor()))

    def delete(self, id_: int) -> None:
        """Remove a webhook with its deliveries. An attempt that is running may still arrive."""
        if not self._database.write(lambda tx: tx.run(sql.DELETE_WEBHOOK, id=id_), durable=True):
            raise UnknownWebhook(id_)

    def rotate_secret(self, id_: int) -> str:
        """Replace the secret and return the new one. The old one signs, too, for `SECRET_OVERLAP`."""
        secret = signing.new_secret()

        def work(tx: Transaction) -> None:
            encrypted = self._cipher.encrypt(tx, secret)
            if not tx.run(sql.ROTATE_SECRET, id=id_, secret=encrypted, overlap=micros(SECRET_OVERLAP)):
                raise UnknownWebhook(id_)

        self._database.write(work, durable=True)
        return secret

    def _update(self, statement: Any, id_: int, **values: Any) -> StoredWebhook:
        def work(tx: Transaction) -> StoredWebhook:
            tx.run(statement, id=id_, **values)
            return _read_webhook(tx, id_)

        return self._database.write(work, durable=True)

    def _normalize_url(self, url: str) -> str:
        """Return an address in normal form; refuse an address that contains a secret.

        The address policy is applied here only to an IP address. A host name is resolved and checked at each attempt.
        """
        parameter = find_secret(url)
        if parameter not in (None, "user"):  # `Url.parse` refuses a user name
            raise BadRequest("secret_in_address", parameter=parameter)
        try:
            parsed = Url.parse(url)
            try:
                address = ipaddress.ip_address(parsed.host)
            except ValueError:
                return str(parsed)
            self._address_policy.require_allowed(parsed.host, parsed.port, address)
        except Permanent as refusal:
            raise BadRequest(refusal.code, **refusal.params) from None
        return str(parsed)


def _matches_type(pattern: str, type_: str) -> bool:
    return pattern in {ANY_EVENT_TYPE, type_} or (pattern.endswith(".*") and type_.startswith(pattern[:-1]))


def _make_filter(types: Sequence[str], bases: Collection[int] | None) -> WebhookFilter:
    for pattern in types:
        if not any(_matches_type(pattern, type_) for type_ in EVENT_TYPES):
            raise BadRequest("event_unknown", pattern=pattern)
    if not types:
        raise BadRequest("webhook_without_events")
    if bases is not None and not bases:
        raise BadRequest("webhook_without_base")
    return WebhookFilter(types=tuple(dict.fromkeys(types)), bases=None if bases is None else frozenset(bases))


def _read_webhook(tx: Transaction, id_: int) -> StoredWebhook:
    rows = tx.run(sql.READ_WEBHOOK, id=id_)
    if not rows:
        raise UnknownWebhook(id_)
    return _row_to_webhook(rows[0])


def _row_to_webhook(row: Sequence[Any]) -> StoredWebhook:
    id_, url, types, bases, created_at, failures, failing_since, retry_at, *rest = row
    disabled_at, disabled_reason, waiting = rest
    filter_ = WebhookFilter.from_columns(types, bases)
    return StoredWebhook(
        id=id_,
        url=url,
        types=filter_.types,
        bases=filter_.bases,
        created_at=created_at,
        failures=failures,
        failing_since=failing_since,
        retry_at=retry_at,
        waiting=waiting,
        disabled_at=disabled_at,
        disabled_reason=disabled_reason,
    )
