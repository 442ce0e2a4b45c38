"""Answers kept for requests that are repeated under the same `Idempotency-Key`.

Whoever begins first does the work; others are told that it is under way, or what came of it. Whoever dies in the middle
frees its key after `LEASE`, and cannot finish any more once somebody else has begun again: the fence is no longer its
own. All times are those of the database.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from holdfast.auth import statements as sql
from holdfast.clock import micros
from holdfast.errors import BadRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.auth.principal import Caller
    from holdfast.db import Database, Transaction

LEASE = timedelta(seconds=60)
RETENTION = timedelta(hours=24)
MAX_BODY_BYTES = 1 << 20  # bytes; of a larger answer all but the body is kept
STORED_HEADERS = frozenset({"content-type", "location", "etag", "retry-after"})
MAX_KEY_LENGTH = 255
NO_KEY_ID = 0  # in the column of those who need no key


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredResponse:
    """What a request was answered."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = b""  # None: it was too large to be kept


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstRequest:
    """Do the work, then `finish`, or `release` if nothing came of it."""

    id: int
    fence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """It was done; say this again."""

    response: StoredResponse


@dataclass(frozen=True, slots=True)
class InFlight:
    """Somebody is at it."""


@dataclass(frozen=True, slots=True)
class Mismatch:
    """The key was used for another request."""


BeginResult = FirstRequest | Replay | InFlight | Mismatch


class IdempotencyStore:
    """The answers that one database keeps."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def begin(self, caller: Caller, key: str, fingerprint: str) -> BeginResult:
        """Begin a request: of many with the same key at the same moment exactly one is `Fresh`.

        The fingerprint tells requests apart: a digest of method, path and body.
        """
        _check_key(key)
        who = NO_KEY_ID if caller.key_id is None else caller.key_id
        return self._database.write(lambda tx: _begin(tx, who, key, fingerprint), durable=True)

    def finish(self, fresh: FirstRequest, answer: StoredResponse) -> bool:
        """Keep an answer; False if the work took so long that somebody else has begun it again."""
        headers = {name.lower(): text for name, text in answer.headers.items() if name.lower() in STORED_HEADERS}
        body = answer.body if answer.body is not None and len(answer.body) <= MAX_BODY_BYTES else None
        return self._update(sql.FINISH_REQUEST, fresh, status=answer.status, headers=json.dumps(headers), body=body)

    def renew(self, fresh: FirstRequest) -> bool:
        """Keep the key for longer, while the work goes on; False if it is lost."""
        return self._update(sql.RENEW_REQUEST, fresh, lease=micros(LEASE))

    def release(self, fresh: FirstRequest) -> bool:
        """Free the key: nothing was done, and the same request may be tried again at once."""
        return self._update(sql.RELEASE_REQUEST, fresh)

    def sweep(self, limit: int = 500) -> int:
        """Remove answers past their time, at most so many; return how many."""

        def work(tx: Transaction) -> int:
            return len(tx.run(sql.DELETE_EXPIRED_REQUESTS, keep=micros(RETENTION), limit=limit))

        return self._database.write(work, durable=False)

    def _update(self, statement: Any, fresh: FirstRequest, **values: Any) -> bool:
        return bool(
            self._database.write(lambda tx: tx.run(statement, id=fresh.id, fence=fresh.fence, **values), durable=True)
        )


def _begin(tx: Transaction, caller: int, key: str, fingerprint: str) -> BeginResult:
    while True:
        begun = tx.run(
            sql.BEGIN_REQUEST,
            caller=caller,
            key=key,
            fingerprint=fingerprint,
            lease=micros(LEASE),
            keep=micros(RETENTION),
        )
        if begun:
            ((id_, fence),) = begun
            return FirstRequest(id=id_, fence=fence)
        found = tx.run(sql.READ_REQUEST, caller=caller, key=key)
        if found:  # else it was released or swept between the two statements, and is free
            return _classify_stored(found[0], fingerprint)


def _classify_stored(row: tuple[Any, ...], fingerprint: str) -> BeginResult:
    known, status, headers, body = row
    if known != fingerprint:
        return Mismatch()
    if status is None:
        return InFlight()
    return Replay(
        response=StoredResponse(status=status, headers=json.loads(headers), body=None if body is None else bytes(body))
    )


def _check_key(key: str) -> None:
    if not (0 < len(key) <= MAX_KEY_LENGTH and key.isascii() and key.isprintable()):
        raise BadRequest(
            f"An Idempotency-Key has 1 to {MAX_KEY_LENGTH} printable ASCII characters; a UUID is a good one."
        )
