"""Decides what follows from an attempt: sent, retry, give up or disable. Pure functions."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.clock import Moment

# After the first attempt and each later one; together three days. Jitter only lengthens them.
RETRY_DELAYS = tuple(
    timedelta(seconds=seconds)
    for seconds in (5, 30, 2 * 60, 10 * 60, 3600, 4 * 3600, 8 * 3600, 12 * 3600, 24 * 3600, 24 * 3600)
)
JITTER = 0.2
MAX_RETRY_AFTER = timedelta(days=1)  # longest `Retry-After` that is respected
MAX_PAUSE = timedelta(hours=1)  # between probes of a webhook that fails
DISABLE_AFTER = timedelta(days=3)  # of failures without a success
MIN_FAILURES_TO_DISABLE = 10  # consecutive failures before a webhook is disabled

SUCCESS_STATUSES = range(200, 300)
REDIRECT_STATUSES = range(300, 400)
GONE_STATUS = 410
BUSY_STATUSES = frozenset({429, 503})


class WebhookState(StrEnum):
    HEALTHY = "healthy"
    FAILING = "failing"  # the last attempt failed: one probe at a time is sent, other deliveries wait
    DISABLED = "disabled"  # nothing is sent


class DeliveryState(StrEnum):
    WAITING = "waiting"  # for the first or the next attempt
    SENT = "sent"  # the receiver answered 2xx
    FAILED = "failed"  # given up


class AttemptOutcome(StrEnum):
    SENT = "sent"
    RETRY = "again"
    GIVEN_UP = "given_up"
    GONE = "gone"  # the receiver answered 410


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptResult:
    """The HTTP status of an attempt, or the reason why there is none."""

    status: int | None = None
    reason: str | None = None  # None: success
    retry_after: timedelta | None = None

    @classmethod
    def from_status(cls, status: int, retry_after: timedelta | None = None) -> AttemptResult:
        if status in SUCCESS_STATUSES:
            return cls(status=status)
        reason = "redirected" if status in REDIRECT_STATUSES else "gone" if status == GONE_STATUS else "refused"
        return cls(status=status, reason=reason, retry_after=retry_after if status in BUSY_STATUSES else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The outcome of an attempt; `delay` is the wait before a `RETRY`."""

    outcome: AttemptOutcome
    delay: timedelta = timedelta()


def decide_retry(result: AttemptResult, attempts: int, chance: float) -> Decision:
    """Decide what follows from attempt number `attempts`; `chance` in [0, 1) is the jitter.

    >>> decide_retry(AttemptResult.from_status(500), attempts=1, chance=0.0).delay
    datetime.timedelta(seconds=5)
    """
    if result.reason is None:
        return Decision(outcome=AttemptOutcome.SENT)
    if result.status == GONE_STATUS:
        return Decision(outcome=AttemptOutcome.GONE)
    if attempts > len(RETRY_DELAYS):
        return Decision(outcome=AttemptOutcome.GIVEN_UP)
    wait = RETRY_DELAYS[max(attempts, 1) - 1] * (1 + JITTER * chance)
    requested = min(result.retry_after or timedelta(), MAX_RETRY_AFTER)
    return Decision(outcome=AttemptOutcome.RETRY, delay=max(wait, requested))


def pause_after_failure(result: AttemptResult, failures: int, chance: float) -> timedelta:
    """Return how long a webhook is paused after this many consecutive failures."""
    wait = min(RETRY_DELAYS[min(failures, len(RETRY_DELAYS)) - 1], MAX_PAUSE) * (1 + JITTER * chance)
    return max(wait, min(result.retry_after or timedelta(), MAX_RETRY_AFTER))


def should_disable(failures: int, since: Moment | None, now: Moment) -> bool:
    """Return whether a webhook has failed often enough, and for long enough, to be disabled."""
    return (
        since is not None
        and failures >= MIN_FAILURES_TO_DISABLE
        and now - since >= DISABLE_AFTER // timedelta(microseconds=1)
    )
