"""Webhooks: who is told of what, and how they know that it was us.

A webhook is told of events that come after it was made. Its secret is shown when it is made or replaced; a replaced one
signs beside the new one until it is removed, or for a day.
"""

from __future__ import annotations

import ipaddress
import json
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any

from holdfast.clock import Moment, micros
from holdfast.errors import BadRequest, Permanent, UnknownWebhook
from holdfast.events import EVENT_TYPES
from holdfast.sources.address_policy import PUBLIC_ONLY, Reach
from holdfast.sources.urls import Url
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


class Unchanged(Enum):
    """Stands for what is not to be changed, where `None` means something."""

    UNCHANGED = "same"


UNCHANGED = Unchanged.UNCHANGED


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookFilter:
    """Which events somebody is told of."""

    types: tuple[str, ...]  # `job.success`, `job.*` or `*`
    bases: frozenset[int] | None = None  # None: all, also later ones, and what belongs to none

    def matches(self, type_: str, base: str | None) -> bool:
        """Tell whether an event of this type in this base is wanted."""
        if self.bases is not None and base not in {str(id_) for id_ in self.bases}:
            return False
        return any(_matches_type(pattern, type_) for pattern in self.types)

    @classmethod
    def from_columns(cls, types: str, bases: str | None) -> WebhookFilter:
        """Read what is stored."""
        return cls(types=tuple(json.loads(types)), bases=None if bases is None else frozenset(json.loads(bases)))

    def to_columns(self) -> dict[str, str | None]:
        """Return what is stored."""
        bases = None if self.bases is None else json.dumps(sorted(self.bases))
        return {"types": json.dumps(self.types), "bases": bases}


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredWebhook:
    """A receiver; its secrets are not shown."""

    id: int
    url: str
    types: tuple[str, ...]
    bases: frozenset[int] | None
    created_at: Moment
    failures: int  # attempts in a row that failed
    failing_since: Moment | None
    retry_at: Moment | None  # while it fails: when the next message is sent as a probe
    waiting: int  # messages that are not sent yet
    disabled_at: Moment | None
    disabled_reason: str | None  # asked, gone (the receiver said so), failing (for days)
    old_secret_until: Moment | None  # the secret before signs, too

    @property
    def enabled(self) -> bool:
        """Something is sent there."""
        return self.disabled_at is None

    @property
    def state(self) -> WebhookState:
        """Whether messages reach it."""
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

    def create(
        self, url: str, types: Sequence[str], bases: Collection[int] | None = None, secret: str | None = None
    ) -> tuple[StoredWebhook, str]:
        """Make a webhook that is told of what comes from now on; return it with its secret."""
        given = {"url": self._normalize_url(url), **_make_filter(types, bases).to_columns()}
        key = signing.new_secret() if secret is None else signing.check_secret(secret)
        cursor = str(self._log.newest_cursor())

        def work(tx: Transaction) -> StoredWebhook:
            stored = self._cipher.encrypt(tx, key)
            ((id_,),) = tx.run(sql.CREATE_WEBHOOK, secret=stored, cursor=cursor, **given)
            return _read_webhook(tx, id_)

        return self._database.write(work, durable=True), key

    def get(self, id_: int) -> StoredWebhook:
        """Read a webhook, or raise `UnknownWebhook`."""
        with self._database.reading() as tx:
            return _read_webhook(tx, id_)

    def list_all(self) -> list[StoredWebhook]:
        """Read all webhooks, oldest first."""
        with self._database.reading() as tx:
            return [_row_to_webhook(row) for row in tx.run(sql.LIST_WEBHOOKS)]

    def change(
        self,
        id_: int,
        *,
        url: str | None = None,
        types: Sequence[str] | None = None,
        bases: Collection[int] | Unchanged | None = UNCHANGED,
    ) -> StoredWebhook:
        """Change what is named; what waits goes to the new address, and is not sent if it is no longer wanted."""
        place = None if url is None else self._normalize_url(url)

        def work(tx: Transaction) -> StoredWebhook:
            before = _read_webhook(tx, id_, sql.LOCK_WEBHOOK)
            wanted = _make_filter(types or before.types, before.bases if isinstance(bases, Unchanged) else bases)
            tx.run(sql.CHANGE_WEBHOOK, id=id_, url=place or before.url, **wanted.to_columns())
            return _read_webhook(tx, id_)

        return self._database.write(work, durable=True)

    def disable(self, id_: int) -> StoredWebhook:
        """Send nothing more there until it is enabled."""
        return self._update(sql.DISABLE_WEBHOOK, id_, reason=DISABLED_BY_USER)

    def enable(self, id_: int, *, catch_up: bool = False) -> StoredWebhook:
        """Send again: what was waiting, and what comes from now on; `catch_up` also what came meanwhile."""
        return self._update(sql.ENABLE_WEBHOOK, id_, cursor=None if catch_up else str(self._log.newest_cursor()))

    def delete(self, id_: int) -> None:
        """Remove a webhook with all its deliveries; one that is under way at this moment may still arrive."""
        if not self._database.write(lambda tx: tx.run(sql.DELETE_WEBHOOK, id=id_), durable=True):
            raise UnknownWebhook(id_)

    def rotate_secret(self, id_: int, secret: str | None = None) -> str:
        """Replace the secret and return the new one; both sign for a day, or until `forget_old_secret`."""
        key = signing.new_secret() if secret is None else signing.check_secret(secret)

        def work(tx: Transaction) -> None:
            stored = self._cipher.encrypt(tx, key)
            if not tx.run(sql.ROTATE_SECRET, id=id_, secret=stored, overlap=micros(SECRET_OVERLAP)):
                raise UnknownWebhook(id_)

        self._database.write(work, durable=True)
        return key

    def encrypt_plaintext(self) -> int:
        """Encrypt secrets that were stored before secrets were encrypted; return how many webhooks had one."""
        return self._cipher.encrypt_plaintext(self._database)

    def rotate_key(self) -> int:
        """Encrypt all secrets with a new key; return how many webhooks there are."""
        return self._cipher.rotate_key(self._database)

    def forget_old_secret(self, id_: int) -> StoredWebhook:
        """Let only the newest secret sign."""
        return self._update(sql.CLEAR_OLD_SECRET, id_)

    def _update(self, statement: Any, id_: int, **values: Any) -> StoredWebhook:
        def work(tx: Transaction) -> StoredWebhook:
            tx.run(statement, id=id_, **values)
            return _read_webhook(tx, id_)

        return self._database.write(work, durable=True)

    def _normalize_url(self, url: str) -> str:
        """Write an address one way and refuse one with a secret.

        An address that is a number is judged at once, a name each time something is sent.
        """
        parameter = find_secret(url)
        if parameter not in (None, "user"):  # a user name is refused below, as in every address
            raise BadRequest(
                f"The address holds a secret in its parameter {parameter!r}, which would be stored as plain text. "
                "Nothing was stored; write it without the parameter, and let the receiver check the signature.",
                "secret_in_address",
                parameter=parameter,
            )
        try:
            here = Url.parse(url)
            try:
                address = ipaddress.ip_address(here.host)
            except ValueError:
                return str(here)
            self._address_policy.require_allowed(here.host, here.port, address)
        except Permanent as refusal:
            raise BadRequest(f"Nothing can be sent there. {refusal}", refusal.code, **refusal.params) from None
        return str(here)


def _matches_type(pattern: str, type_: str) -> bool:
    return pattern in {ANY_EVENT_TYPE, type_} or (pattern.endswith(".*") and type_.startswith(pattern[:-1]))


def _make_filter(types: Sequence[str], bases: Collection[int] | None) -> WebhookFilter:
    for pattern in types:
        if not any(_matches_type(pattern, type_) for type_ in EVENT_TYPES):
            raise BadRequest(
                f"{pattern!r} names no events; write a type such as job.success, job.* or *.",
                "event_unknown",
                pattern=pattern,
            )
    if not types:
        raise BadRequest(
            "A webhook that wants no events is told nothing; name types of events, or * for all.",
            "webhook_without_events",
        )
    if bases is not None and not bases:
        raise BadRequest(
            "A webhook for no base is told nothing; name at least one base, or none of them to mean all.",
            "webhook_without_base",
        )
    return WebhookFilter(types=tuple(dict.fromkeys(types)), bases=None if bases is None else frozenset(bases))


def _read_webhook(tx: Transaction, id_: int, statement: Any = sql.READ_WEBHOOK) -> StoredWebhook:
    rows = tx.run(statement, id=id_)
    if not rows:
        raise UnknownWebhook(id_)
    return _row_to_webhook(rows[0])


def _row_to_webhook(row: Sequence[Any]) -> StoredWebhook:
    now, id_, url, types, bases, created_at, failures, failing_since, retry_at, *rest = row
    disabled_at, disabled_reason, old_until, waiting = rest
    wanted = WebhookFilter.from_columns(types, bases)
    return StoredWebhook(
        id=id_,
        url=url,
        types=wanted.types,
        bases=wanted.bases,
        created_at=created_at,
        failures=failures,
        failing_since=failing_since,
        retry_at=retry_at,
        waiting=waiting,
        disabled_at=disabled_at,
        disabled_reason=disabled_reason,
        old_secret_until=old_until if old_until is not None and old_until > now else None,
    )
