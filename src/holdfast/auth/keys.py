"""API keys: the secret is shown once, and only its digest is stored.

A key is looked up at each request and never cached, so every process refuses a revoked or expired key at once. Times of
last use are collected in memory, and `flush_uses` writes them in batches: no request waits for that write, and a crash
loses the uses since the last call.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
import threading
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from holdfast.auth import statements as sql
from holdfast.auth.principal import Caller, Scope
from holdfast.clock import Moment, micros
from holdfast.engine.store import make_storable
from holdfast.errors import BadRequest, UnknownKey

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from holdfast.db import Database

PREFIX = "hf_"
SECRET_BYTES = 32
SHOWN_CHARACTERS = 8  # characters of the secret that lists show
SECRET_PATTERN = re.compile(rb"hf_([A-Za-z0-9_-]{8})[A-Za-z0-9_-]{35}")  # 32 bytes are 43 characters
USE_INTERVAL = timedelta(minutes=1)
MAX_NAME_LENGTH = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredKey:
    """A key without its secret."""

    id: int
    name: str
    prefix: str  # first characters of the secret after `hf_`
    scope: Scope
    bases: frozenset[int] | None  # None: all bases, also future ones
    created_at: Moment
    expires_at: Moment | None
    revoked_at: Moment | None
    used_at: Moment | None  # to the minute

    @property
    def caller(self) -> Caller:
        return Caller(key_id=self.id, name=self.name, scope=self.scope, bases=self.bases)


class KeyRepository:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._mutex = threading.Lock()
        self._pending_uses: dict[int, Moment] = {}  # not written yet

    def create(
        self, name: str, scope: Scope, bases: Collection[int] | None = None, expires_at: Moment | None = None
    ) -> tuple[StoredKey, str]:
        """Create a key; return it with its secret, which cannot be read again."""
        if not name.strip() or len(name) > MAX_NAME_LENGTH:
            raise BadRequest("key_name", longest=MAX_NAME_LENGTH)
        if bases is not None and not bases:
            raise BadRequest("key_without_base")
        shown = secrets.token_urlsafe(SECRET_BYTES)
        secret = PREFIX + shown
        rows = self._database.write(
            lambda tx: tx.run(
                sql.CREATE_KEY,
                name=make_storable(name),
                prefix=shown[:SHOWN_CHARACTERS],
                digest=_digest(secret.encode()),
                scope=str(Scope(scope)),
                bases=None if bases is None else json.dumps(sorted(set(bases))),
                expires_at=expires_at,
            ),
            durable=True,
        )
        return _row_to_key(rows[0]), secret

    def verify(self, secret: str | bytes) -> StoredKey | None:
        """Return the key of a secret; None if it is unknown, malformed, revoked or expired. Writes nothing."""
        given = secret.encode("utf-8", "replace") if isinstance(secret, str) else secret
        form = SECRET_PATTERN.fullmatch(given)
        if form is None:
            return None
        digest = _digest(given).encode()
        with self._database.reading() as tx:
            rows = tx.run(sql.FIND_KEYS, prefix=form[1].decode())
        match: StoredKey | None = None
        for now, *row in rows:
            if hmac.compare_digest(digest, str(row[3]).encode()):
                match = _row_to_key(row)
                self._record_use(match, now)
        return match

    def revoke(self, id_: int) -> StoredKey:
        """Revoke a key, effective at the next request. Revoking it again changes nothing."""
        self._database.write(lambda tx: tx.run(sql.REVOKE_KEY, id=id_), durable=True)
        return self.get(id_)

    def get(self, id_: int) -> StoredKey:
        """Read a key, or raise `UnknownKey`."""
        with self._database.reading() as tx:
            rows = tx.run(sql.READ_KEY, id=id_)
        if not rows:
            raise UnknownKey(id_)
        return _row_to_key(rows[0])

    def list_all(self) -> list[StoredKey]:
        """Return all keys, oldest first, including revoked and expired ones."""
        with self._database.reading() as tx:
            return [_row_to_key(row) for row in tx.run(sql.LIST_KEYS)]

    def any_created(self) -> bool:
        """Return whether a key was ever created. From then on each request needs one, even if all are revoked."""
        with self._database.reading() as tx:
            return bool(tx.run(sql.SELECT_ANY_KEY))

    def flush_uses(self) -> int:
        """Write the times of last use since the last call, each at most once a minute; return how many."""
        with self._mutex:
            used, self._pending_uses = self._pending_uses, {}
        if used:
            rows = [[id_, at] for id_, at in sorted(used.items())]
            spacing = micros(USE_INTERVAL)
            self._database.write(lambda tx: tx.run(sql.UPDATE_USES, rows, spacing=spacing), durable=False)
        return len(used)

    def _record_use(self, key: StoredKey, now: Moment) -> None:
        if key.used_at is None or key.used_at <= now - micros(USE_INTERVAL):
            with self._mutex:
                self._pending_uses[key.id] = now


def _digest(secret: bytes) -> str:
    return hashlib.sha256(secret).hexdigest()


def _row_to_key(row: Sequence[Any]) -> StoredKey:
    id_, name, prefix, _digest, scope, bases, created_at, expires_at, revoked_at, used_at = row
    return StoredKey(
        id=id_,
        name=name,
        prefix=prefix,
        scope=Scope(scope),
        bases=None if bases is None else frozenset(json.loads(bases)),
        created_at=created_at,
        expires_at=expires_at,
        revoked_at=revoked_at,
        used_at=used_at,
    )
