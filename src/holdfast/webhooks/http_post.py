"""One attempt to tell a receiver, within limits of time and size, and only where it may be.

The address is resolved and judged anew each time: a name that was public when the webhook was made may lead into this
network today. No redirect is followed, no proxy asked, and of the answer only its status is kept.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING

import httpcore2

from holdfast.clock import as_datetime
from holdfast.errors import WorkError
from holdfast.sources.address_policy import PUBLIC, Reach
from holdfast.sources.headers import headers_of, retry_after
from holdfast.sources.safe_transport import Deadline, Dialer, Resolve, address_of, explained, look_up, trusted
from holdfast.sources.urls import Url
from holdfast.webhooks.retry_policy import Answer

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

    from holdfast.clock import Moment

SECONDS = 10.0  # from the lookup of the name to the end of the answer
ANSWER_BYTES = 1 << 16  # that are read, and thrown away, so that the receiver can finish


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """How receivers are reached."""

    reach: Reach = PUBLIC
    resolve: Resolve = look_up
    tls: ssl.SSLContext | None = None
    seconds: float = SECONDS


def post(line: Line, url: str, headers: Mapping[str, str], body: bytes, now: Moment) -> Answer:
    """Send once; never raises for what the receiver or the network does."""
    try:
        here = Url.parse(url)
        deadline = Deadline(line.seconds)
        dialer = Dialer(line.reach, deadline, line.resolve)
        with (
            explained(here.host, deadline),
            httpcore2.ConnectionPool(line.tls or trusted(), max_connections=1, network_backend=dialer) as pool,
            pool.stream("POST", address_of(here), headers=_head(here, headers, body), content=body) as answer,
        ):
            wait = retry_after(headers_of(answer.headers).get("retry-after", ""), as_datetime(now))
            _read_some(answer)
            return Answer.of(answer.status, wait)
    except WorkError as error:
        return Answer(reason=error.code)


def _head(here: Url, headers: Mapping[str, str], body: bytes) -> list[tuple[bytes, bytes]]:
    named = {
        "Host": here.authority,
        "User-Agent": f"Holdfast/{version('holdfast')}",
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        "Connection": "close",
        **headers,
    }
    return [(name.encode(), value.encode()) for name, value in named.items()]


def _read_some(answer: httpcore2.Response) -> None:
    """Let the receiver say what it has to say; its status alone counts, whatever becomes of the rest."""
    size = 0
    with suppress(httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.TimeoutException, WorkError):
        for piece in answer.iter_stream():
            size += len(piece)
            if size > ANSWER_BYTES:
                return
