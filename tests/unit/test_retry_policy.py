"""Webhook deliveries are retried by the policy, and signatures prove who sent a message."""

from __future__ import annotations

import base64
import json
import time
from datetime import timedelta

import pytest
from standardwebhooks import Webhook as Verifier
from standardwebhooks.webhooks import WebhookVerificationError

from holdfast.clock import Moment, micros
from holdfast.webhooks.retry_policy import (
    DISABLE_AFTER,
    JITTER,
    MIN_FAILURES_TO_DISABLE,
    RETRY_DELAYS,
    AttemptOutcome,
    AttemptResult,
    Decision,
    decide_retry,
    should_disable,
)
from holdfast.webhooks.signing import PREFIX, new_message_id, new_secret, sign

AGAIN, GIVEN_UP, SENT, GONE = AttemptOutcome.RETRY, AttemptOutcome.GIVEN_UP, AttemptOutcome.SENT, AttemptOutcome.GONE
DAY, HOUR = timedelta(days=1), timedelta(hours=1)
LAST = len(RETRY_DELAYS) + 1


@pytest.mark.parametrize(
    ("answer", "attempts", "verdict", "wait"),
    [
        (AttemptResult.from_status(200), 1, SENT, timedelta()),
        (AttemptResult.from_status(204), LAST, SENT, timedelta()),
        (AttemptResult.from_status(299), 1, SENT, timedelta()),
        (AttemptResult.from_status(301), 1, AGAIN, RETRY_DELAYS[0]),
        (AttemptResult.from_status(304), 1, AGAIN, RETRY_DELAYS[0]),
        (AttemptResult.from_status(400), 2, AGAIN, RETRY_DELAYS[1]),
        (AttemptResult.from_status(410), 1, GONE, timedelta()),
        (AttemptResult.from_status(500), 3, AGAIN, RETRY_DELAYS[2]),
        (AttemptResult.from_status(500), LAST - 1, AGAIN, RETRY_DELAYS[-1]),
        (AttemptResult.from_status(500), LAST, GIVEN_UP, timedelta()),
        (AttemptResult.from_status(500), LAST + 1, GIVEN_UP, timedelta()),
        (AttemptResult.from_status(429, HOUR), 1, AGAIN, HOUR),
        (AttemptResult.from_status(503, HOUR), 1, AGAIN, HOUR),
        (AttemptResult.from_status(503, timedelta(seconds=1)), 1, AGAIN, RETRY_DELAYS[0]),
        (AttemptResult.from_status(429, 30 * DAY), 1, AGAIN, DAY),
        (AttemptResult.from_status(500, HOUR), 1, AGAIN, RETRY_DELAYS[0]),
        (AttemptResult.from_status(429, HOUR), LAST, GIVEN_UP, timedelta()),
        (AttemptResult(reason="unreachable"), 1, AGAIN, RETRY_DELAYS[0]),
        (AttemptResult(reason="refused_address"), LAST, GIVEN_UP, timedelta()),
    ],
)
def test_the_result_of_an_attempt_decides_what_follows(
    answer: AttemptResult, attempts: int, verdict: AttemptOutcome, wait: timedelta
) -> None:
    assert decide_retry(answer, attempts, 0.0) == Decision(outcome=verdict, delay=wait)


def test_jitter_only_lengthens_a_delay() -> None:
    first = [decide_retry(AttemptResult.from_status(500), 1, chance).delay for chance in (0.0, 0.5, 0.999)]
    assert first == sorted(first)
    assert RETRY_DELAYS[0] == first[0] < first[-1] < RETRY_DELAYS[0] * (1 + JITTER)


def test_all_delays_together_last_until_an_endpoint_that_always_fails_is_disabled() -> None:
    assert DISABLE_AFTER <= sum(RETRY_DELAYS, timedelta()) < DISABLE_AFTER + 6 * HOUR
    assert LAST >= MIN_FAILURES_TO_DISABLE


@pytest.mark.parametrize(
    ("failures", "days", "lost"),
    [
        (MIN_FAILURES_TO_DISABLE, 3, True),
        (MIN_FAILURES_TO_DISABLE - 1, 30, False),
        (1000, 2.99, False),
        (MIN_FAILURES_TO_DISABLE + 5, 4, True),
    ],
)
def test_an_endpoint_is_disabled_after_many_failures_over_days(failures: int, days: float, lost: bool) -> None:
    now = Moment(1_800_000_000_000_000)
    assert should_disable(failures, Moment(now - micros(timedelta(days=days))), now) is lost


def test_an_endpoint_that_does_not_fail_is_not_disabled() -> None:
    assert not should_disable(1000, None, Moment(1))


def verified(secret: str, headers: dict[str, str], body: bytes) -> object:
    return Verifier(secret).verify(body, headers)


def test_signatures_match_the_standard() -> None:
    # The example comes from the reference implementation.
    signed = sign(
        ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"], "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}'
    )
    assert signed["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_every_valid_secret_signs_a_message_and_no_other_does() -> None:
    one, two, three, body = new_secret(), new_secret(), new_secret(), json.dumps({"ключ": "ä"}).encode()
    headers = sign([one, two], new_message_id(), int(time.time()), body)
    assert verified(one, headers, body) == verified(two, headers, body) == {"ключ": "ä"}
    with pytest.raises(WebhookVerificationError):
        verified(three, headers, body)


@pytest.mark.parametrize("change", ["body", "id", "time", "old"])
def test_an_altered_or_old_message_fails_verification(change: str) -> None:
    secret, body, now = new_secret(), b'{"a": 1}', int(time.time())
    headers = sign([secret], "msg_1", now - 301 if change == "old" else now, body)
    if change == "id":
        headers["webhook-id"] = "msg_2"
    if change == "time":
        headers["webhook-timestamp"] = str(now + 1)
    with pytest.raises(WebhookVerificationError):
        verified(secret, headers, b'{"a": 2}' if change == "body" else body)


def test_secrets_and_message_ids_are_unique() -> None:
    assert len({new_secret() for _ in range(100)} | {new_message_id() for _ in range(100)}) == 200
    assert len(base64.b64decode(new_secret().removeprefix(PREFIX))) == 32
