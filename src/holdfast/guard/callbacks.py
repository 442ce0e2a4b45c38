"""Calls the addresses that requesters gave when their jobs have ended, signed by Standard Webhooks.

The address is stored in the transaction that accepts the request, so no call is lost. A call is repeated as webhooks
are, with the same `webhook-id`.
"""

from __future__ import annotations

import json
import logging
import random
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from holdfast.clock import micros
from holdfast.extras import importing_extra

if TYPE_CHECKING:
    from holdfast.engine.store import DueCallback
    from holdfast.guard.guard import Guard

log = logging.getLogger("holdfast")

LEASE = timedelta(seconds=60)  # longer than an attempt takes
BATCH = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Callbacks:
    """How a guard calls requesters.

    `secret` signs the messages; `holdfast.guard.callbacks.new_secret` makes one. `allow` names the hosts and networks
    of your own that may be called, as the setting `HOLDFAST_FETCH_ALLOW`; public addresses are always allowed.
    """

    secret: str = field(repr=False)
    allow: str = ""


def new_secret() -> str:
    """Return a new secret for `Callbacks`."""
    with importing_extra("documents"):
        from holdfast.webhooks import new_secret as make  # noqa: PLC0415 - needs an extra

    return make()


def deliver_due(guard: Guard, callbacks: Callbacks) -> int:
    """Make the calls that are due; return how many were attempted. Any number of processes may do this at once."""
    due = guard.store.claim_callbacks(BATCH, micros(LEASE))
    for callback in due:
        _deliver(guard, callbacks, callback)
    return len(due)


def _deliver(guard: Guard, callbacks: Callbacks, callback: DueCallback) -> None:
    with importing_extra("documents"):
        from holdfast.sources import Reach  # noqa: PLC0415 - needs an extra
        from holdfast.webhooks import AttemptOutcome, PostOptions, decide_retry, post, sign  # noqa: PLC0415

    ended = guard.job(callback.job)
    now = guard.clock.now()
    seconds = now // 1_000_000
    body = json.dumps({"type": f"job.{ended.state}", "timestamp": ended.finished_at, "data": ended.as_dict()}).encode()
    headers = sign([callbacks.secret], f"msg_{callback.job}", seconds, body)
    result = post(PostOptions(reach=Reach.parse(callbacks.allow)), callback.address, headers, body, now)
    decision = decide_retry(result, callback.attempt, random.random())  # noqa: S311 - jitter
    again = decision.outcome is AttemptOutcome.RETRY
    guard.store.settle_callback(callback, delay=micros(decision.delay) if again else None, error=result.reason or None)
    log.info(
        "callback.sent job=%s outcome=%s status=%s reason=%s",
        callback.job, decision.outcome, result.status, result.reason,
    )  # fmt: skip
