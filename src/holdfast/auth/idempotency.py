"""Stored responses of requests that are repeated with the same `Idempotency-Key`.

The first request does the work. Later ones get its stored response, or `InFlight` while it runs. If the first process
dies, its lease expires after `LEASE` and the next request starts again with a higher fence. A late process cannot store
a response then, because its fence is too low. All times are those of the database.

Example:
    match store.begin(caller, key, fingerprint):
        case FirstRequest() as first: store.finish(first, do_the_work())
        case Replay(response=response): return response
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
MAX_BODY_BYTES = 1 << 20  # bytes; of a larger response, only status and headers are stored
STORED_HEADERS = frozenset({"content-type", "location", "etag", "retry-after"})
MAX_KEY_LENGTH = 255
NO_KEY_ID = 0  # the caller where no key is needed


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredResponse:
    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = b""  # None: too large to be stored


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstRequest:
    """The caller must do the work, then call `finish`, or `release` if nothing was changed."""

    id: int
    fence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """The work was done before; this was the response."""

    response: StoredResponse


@dataclass(frozen=True, slots=True)
class InFlight:
    """Another process is doing the work."""


@dataclass(frozen=True, slots=True)
class Mismatch:
    """The key was used for a different request."""


BeginResult = FirstRequest | Replay | InFlight | Mismatch


class IdempotencyStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    def begin(self, caller: Caller, key: str, fingerprint: str) -> BeginResult:
        """Begin a request. Of concurrent requests with the same key exactly one gets `FirstRequest`.

        The fingerprint is a digest of method, path and body.
        """
        _check_key(key)
        caller_id = NO_KEY_ID if caller.key_id is None else caller.key_id
        return self._database.write(lambda tx: _begin(tx, caller_id, key, fingerprint), durable=True)

    def finish(self, request: FirstRequest, response: StoredResponse) -> bool:
        """Store a response; False if the lease expired and another process has begun the request again."""
        headers = {name.lower(): text for name, text in response.headers.items() if name.lower() in STORED_HEADERS}
        body = response.body if response.body is not None and len(response.body) <= MAX_BODY_BYTES else None
        return self._update(sql.FINISH_REQUEST, request, status=response.status, headers=json.dumps(headers), body=body)

    def release(self, request: FirstRequest) -> bool:
        """Free the key: nothing was changed, and the same request may be tried again at once."""
        return self._update(sql.RELEASE_REQUEST, request)

    def sweep(self, limit: int = 500) -> int:
        """Remove at most `limit` expired responses; return how many."""

        def work(tx: Transaction) -> int:
            return len(tx.run(sql.DELETE_EXPIRED_REQUESTS, keep=micros(RETENTION), limit=limit))

        return self._database.write(work, durable=False)

    def _update(self, statement: Any, request: FirstRequest, **values: Any) -> bool:
        values |= {"id": request.id, "fence": request.fence}
        return bool(self._database.write(lambda tx: tx.run(statement, **values), durable=True))


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
        stored = tx.run(sql.READ_REQUEST, caller=caller, key=key)
        if stored:  # else the request was released or removed between the two statements
            return _classify_stored(stored[0], fingerprint)


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
        raise BadRequest("bad_idempotency_key", longest=MAX_KEY_LENGTH)
