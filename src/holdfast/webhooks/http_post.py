"""One attempt to tell a receiver, within limits of time and size, and only where it may be.

The address is resolved and judged anew each time: a name that was public when the webhook was made may lead into this
network today. No redirect is followed, no proxy asked, and of the answer only its status is kept.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import httpcore2

from holdfast.clock import as_datetime
from holdfast.errors import WorkError
from holdfast.sources.address_policy import PUBLIC_ONLY, Reach
from holdfast.sources.headers import parse_headers, parse_retry_after
from holdfast.sources.safe_transport import Deadline, Resolver, open_response, resolve_host
from holdfast.sources.urls import Url
from holdfast.webhooks.retry_policy import AttemptResult

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

    from holdfast.clock import Moment

TIMEOUT_SECONDS = 10.0  # from the lookup of the name to the end of the answer
MAX_RESPONSE_BYTES = 1 << 16  # that are read, and thrown away, so that the receiver can finish


@dataclass(frozen=True, slots=True, kw_only=True)
class PostOptions:
    """How receivers are reached."""

    reach: Reach = PUBLIC_ONLY
    resolve: Resolver = resolve_host
    tls: ssl.SSLContext | None = None
    timeout_seconds: float = TIMEOUT_SECONDS


def post(line: PostOptions, url: str, headers: Mapping[str, str], body: bytes, now: Moment) -> AttemptResult:
    """Send once; never raises for what the receiver or the network does."""
    try:
        with open_response(
            "POST",
            Url.parse(url),
            {"Content-Type": "application/json", "Content-Length": str(len(body)), **headers},
            Deadline(line.timeout_seconds),
            reach=line.reach,
            resolve=line.resolve,
            tls=line.tls,
            content=body,
        ) as response:
            wait = parse_retry_after(parse_headers(response.headers).get("retry-after", ""), as_datetime(now))
            _drain_response(response)
            return AttemptResult.from_status(response.status, wait)
    except WorkError as error:
        return AttemptResult(reason=error.code)


def _drain_response(answer: httpcore2.Response) -> None:
    """Let the receiver say what it has to say; its status alone counts, whatever becomes of the rest."""
    size = 0
    with suppress(httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.TimeoutException, WorkError):
        for piece in answer.iter_stream():
            size += len(piece)
            if size > MAX_RESPONSE_BYTES:
                return
