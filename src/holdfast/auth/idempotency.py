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
KEPT = timedelta(hours=24)
LARGEST_BODY = 1 << 20  # bytes; of a larger answer all but the body is kept
KEPT_HEADERS = frozenset({"content-type", "location", "etag", "retry-after"})
LONGEST_KEY = 255
NOBODY = 0  # in the column of those who need no key


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a request was answered."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = b""  # None: it was too large to be kept


@dataclass(frozen=True, slots=True, kw_only=True)
class Fresh:
    """Do the work, then `finish`, or `release` if nothing came of it."""

    id: int
    fence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """It was done; say this again."""

    answer: Answer


@dataclass(frozen=True, slots=True)
class InFlight:
    """Somebody is at it."""


@dataclass(frozen=True, slots=True)
class Mismatch:
    """The key was used for another request."""


Beginning = Fresh | Replay | InFlight | Mismatch


class Repeats:
    """The answers that one database keeps."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def begin(self, caller: Caller, key: str, fingerprint: str) -> Beginning:
        """Begin a request: of many with the same key at the same moment exactly one is `Fresh`.

        The fingerprint tells requests apart: a digest of method, path and body.
        """
        _check(key)
        who = NOBODY if caller.key_id is None else caller.key_id
        return self._database.write(lambda tx: _begin(tx, who, key, fingerprint), durable=True)

    def finish(self, fresh: Fresh, answer: Answer) -> bool:
        """Keep an answer; False if the work took so long that somebody else has begun it again."""
        headers = {name.lower(): text for name, text in answer.headers.items() if name.lower() in KEPT_HEADERS}
        body = answer.body if answer.body is not None and len(answer.body) <= LARGEST_BODY else None
        return self._write(sql.FINISH, fresh, status=answer.status, headers=json.dumps(headers), body=body)

    def renew(self, fresh: Fresh) -> bool:
        """Keep the key for longer, while the work goes on; False if it is lost."""
        return self._write(sql.RENEW, fresh, lease=micros(LEASE))

    def release(self, fresh: Fresh) -> bool:
        """Free the key: nothing was done, and the same request may be tried again at once."""
        return self._write(sql.RELEASE, fresh)

    def sweep(self, limit: int = 500) -> int:
        """Remove answers past their time, at most so many; return how many."""

        def work(tx: Transaction) -> int:
            return len(tx.run(sql.SWEEP_REPEATS, keep=micros(KEPT), limit=limit))

        return self._database.write(work, durable=False)

    def _write(self, statement: Any, fresh: Fresh, **values: Any) -> bool:
        return bool(
            self._database.write(lambda tx: tx.run(statement, id=fresh.id, fence=fresh.fence, **values), durable=True)
        )


def _begin(tx: Transaction, caller: int, key: str, fingerprint: str) -> Beginning:
    while True:
        begun = tx.run(
            sql.BEGIN, caller=caller, key=key, fingerprint=fingerprint, lease=micros(LEASE), keep=micros(KEPT)
        )
        if begun:
            ((id_, fence),) = begun
            return Fresh(id=id_, fence=fence)
        found = tx.run(sql.READ_REPEAT, caller=caller, key=key)
        if found:  # else it was released or swept between the two statements, and is free
            return _told(found[0], fingerprint)


def _told(row: tuple[Any, ...], fingerprint: str) -> Beginning:
    known, status, headers, body = row
    if known != fingerprint:
        return Mismatch()
    if status is None:
        return InFlight()
    return Replay(answer=Answer(status=status, headers=json.loads(headers), body=None if body is None else bytes(body)))


def _check(key: str) -> None:
    if not (0 < len(key) <= LONGEST_KEY and key.isascii() and key.isprintable()):
        raise BadRequest(f"An Idempotency-Key has 1 to {LONGEST_KEY} printable ASCII characters; a UUID is a good one.")
