"""Sends one message to a webhook, with limits of time and size, and only to allowed addresses.

The host name is resolved and checked at each attempt, because a name that was public when the webhook was created may
resolve to an address of this network later (DNS rebinding). Redirects are not followed and proxies are not used. Only
the status of the response is kept.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import httpcore2

from holdfast.clock import as_datetime
from holdfast.errors import WorkError
from holdfast.sources import (
    PUBLIC_ONLY,
    Deadline,
    Reach,
    Resolver,
    Url,
    open_response,
    parse_headers,
    parse_retry_after,
    resolve_host,
)
from holdfast.webhooks.retry_policy import AttemptResult

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

    from holdfast.clock import Moment

TIMEOUT_SECONDS = 10.0  # from the name lookup to the end of the response
MAX_RESPONSE_BYTES = 1 << 16  # read and discarded, so that the receiver can finish writing


@dataclass(frozen=True, slots=True, kw_only=True)
class PostOptions:
    reach: Reach = PUBLIC_ONLY
    resolve: Resolver = resolve_host
    tls: ssl.SSLContext | None = None
    timeout_seconds: float = TIMEOUT_SECONDS


def post(options: PostOptions, url: str, headers: Mapping[str, str], body: bytes, now: Moment) -> AttemptResult:
    """Send a message once. Errors of the receiver and the network are results, not exceptions."""
    try:
        with open_response(
            "POST",
            Url.parse(url),
            {"Content-Type": "application/json", "Content-Length": str(len(body)), **headers},
            Deadline(options.timeout_seconds),
            reach=options.reach,
            resolve=options.resolve,
            tls=options.tls,
            content=body,
        ) as response:
            wait = parse_retry_after(parse_headers(response.headers).get("retry-after", ""), as_datetime(now))
            _drain_response(response)
            return AttemptResult.from_status(response.status, wait)
    except WorkError as error:
        return AttemptResult(reason=error.code)


def _drain_response(response: httpcore2.Response) -> None:
    """Read the body and ignore its errors: only the status counts."""
    size = 0
    with suppress(httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.TimeoutException, WorkError):
        for piece in response.iter_stream():
            size += len(piece)
            if size > MAX_RESPONSE_BYTES:
                return
