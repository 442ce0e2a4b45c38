"""What follows from an attempt to deliver: done, again later, given up, or nobody is there any more. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.clock import Moment

# After the first attempt and each that follows; together they are three days. Chance only lengthens them.
RETRY_DELAYS = tuple(
    timedelta(seconds=seconds)
    for seconds in (5, 30, 2 * 60, 10 * 60, 3600, 4 * 3600, 8 * 3600, 12 * 3600, 24 * 3600, 24 * 3600)
)
JITTER = 0.2
MAX_RETRY_AFTER = timedelta(days=1)  # that a receiver may ask for
MAX_PAUSE = timedelta(hours=1)  # between probes of a webhook that fails
DISABLE_AFTER = timedelta(days=3)  # with a receiver that never succeeds
MIN_FAILURES_TO_DISABLE = 10  # in a row, at least, before a webhook is disabled

SUCCESS_STATUSES = range(200, 300)
REDIRECT_STATUSES = range(300, 400)
GONE_STATUS = 410
BUSY_STATUSES = frozenset({429, 503})


class WebhookState(StrEnum):
    """Whether messages reach a webhook."""

    HEALTHY = "healthy"
    FAILING = "failing"  # the last attempt failed: one message at a time is sent as a probe, the others wait
    DISABLED = "disabled"  # nothing is sent


class DeliveryState(StrEnum):
    """How a delivery stands."""

    WAITING = "waiting"  # for its first attempt, or for the next
    SENT = "sent"  # a receiver took it
    FAILED = "failed"  # given up


class AttemptOutcome(StrEnum):
    """What follows from an attempt."""

    SENT = "sent"
    RETRY = "again"
    GIVEN_UP = "given_up"
    GONE = "gone"  # the receiver says that it wants nothing any more


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptResult:
    """What came of an attempt: a status, or a reason why there is none."""

    status: int | None = None
    reason: str | None = None  # None: it was taken
    retry_after: timedelta | None = None

    @classmethod
    def from_status(cls, status: int, retry_after: timedelta | None = None) -> AttemptResult:
        """Read the answer of a receiver."""
        if status in SUCCESS_STATUSES:
            return cls(status=status)
        reason = "redirected" if status in REDIRECT_STATUSES else "gone" if status == GONE_STATUS else "refused"
        return cls(status=status, reason=reason, retry_after=retry_after if status in BUSY_STATUSES else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What follows, and in the case of `AGAIN` after which wait."""

    outcome: AttemptOutcome
    delay: timedelta = timedelta()


def decide_retry(answer: AttemptResult, attempts: int, chance: float) -> Decision:
    """Tell what follows from an attempt, the how manieth it may be; `chance` in [0, 1) spreads the waits."""
    if answer.reason is None:
        return Decision(outcome=AttemptOutcome.SENT)
    if answer.status == GONE_STATUS:
        return Decision(outcome=AttemptOutcome.GONE)
    if attempts > len(RETRY_DELAYS):
        return Decision(outcome=AttemptOutcome.GIVEN_UP)
    wait = RETRY_DELAYS[max(attempts, 1) - 1] * (1 + JITTER * chance)
    asked = min(answer.retry_after or timedelta(), MAX_RETRY_AFTER)
    return Decision(outcome=AttemptOutcome.RETRY, delay=max(wait, asked))


def pause_after_failure(answer: AttemptResult, failures: int, chance: float) -> timedelta:
    """Return how long nothing is sent to a webhook after so many failures in a row, whatever waits for it."""
    wait = min(RETRY_DELAYS[min(failures, len(RETRY_DELAYS)) - 1], MAX_PAUSE) * (1 + JITTER * chance)
    return max(wait, min(answer.retry_after or timedelta(), MAX_RETRY_AFTER))


def should_disable(failures: int, since: Moment | None, now: Moment) -> bool:
    """Tell whether a receiver failed so often, for so long and without a success that nothing more is sent there."""
    return (
        since is not None
        and failures >= MIN_FAILURES_TO_DISABLE
        and now - since >= DISABLE_AFTER // timedelta(microseconds=1)
    )
