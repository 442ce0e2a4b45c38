"""docs/webhooks.md and docs/access.md state the limits, scopes and reasons of the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from holdfast.auth import idempotency as repeats
from holdfast.auth import keys
from holdfast.auth.principal import Scope
from holdfast.webhooks import endpoints as webhooks
from holdfast.webhooks import http_post as sending
from holdfast.webhooks import retry_policy as attempts
from holdfast.webhooks.deliveries import MAX_CONCURRENT_ATTEMPTS

DOCS = Path(__file__).resolve().parents[2] / "docs"
WEBHOOKS = " ".join((DOCS / "webhooks.md").read_text().split())
ACCESS = " ".join((DOCS / "access.md").read_text().split())


def _said(seconds: float) -> str:
    for unit, size in (("h", 3600), ("min", 60), ("s", 1)):
        if seconds >= size:
            return f"{seconds / size:g} {unit}"
    raise AssertionError(seconds)


@pytest.mark.parametrize(
    "words",
    [
        ", ".join(_said(wait.total_seconds()) for wait in attempts.RETRY_DELAYS[:-1]) + " and 24 h",
        f"up to {attempts.JITTER:.0%} longer".replace("%", " %"),
        f"within {sending.TIMEOUT_SECONDS:g} seconds",
        f"At most {MAX_CONCURRENT_ATTEMPTS} messages",
        (
            f"at least {attempts.MIN_FAILURES_TO_DISABLE} attempts in a row have failed, "
            f"for {attempts.DISABLE_AFTER.days} days"
        ),
        f"for {webhooks.SECRET_OVERLAP.total_seconds() / 3600:g} hours",
        *(
            f"| `{reason}` |"
            for reason in (
                webhooks.DISABLED_BY_USER,
                webhooks.DISABLED_GONE,
                webhooks.DISABLED_FAILING,
                "refused",
                "redirected",
            )
        ),
    ],
)
def test_every_documented_number_and_reason_of_webhooks_is_that_of_the_code(words: str) -> None:
    assert words in WEBHOOKS


@pytest.mark.parametrize(
    "words",
    [
        f"is {keys.SECRET_BYTES * 8} random bits behind `{keys.PREFIX}`",
        f"kept for {repeats.RETENTION.total_seconds() / 3600:g} hours",
        f"more than {repeats.MAX_BODY_BYTES >> 20} MiB",
        f"after {repeats.LEASE.total_seconds():g} seconds",
        f"up to {repeats.MAX_KEY_LENGTH} printable",
    ],
)
def test_every_documented_number_of_keys_is_that_of_the_code(words: str) -> None:
    assert words in ACCESS


def test_every_scope_and_no_other_is_documented() -> None:
    table = (DOCS / "access.md").read_text().split("| scope |")[1].split("\n\n")[0]
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == list(Scope)


def test_every_stored_header_is_documented() -> None:
    assert {header.lower() for header in re.findall(r"`([A-Z][A-Za-z-]+)`", ACCESS)} >= repeats.STORED_HEADERS
