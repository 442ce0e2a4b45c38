"""Limits the connections of the server, and the time that a client may take to send a request.

uvicorn has no deadline for the first request of a connection and none for bodies, and it accepts connections until no
file descriptor is left. This protocol closes a connection whose request head is not complete within a fixed time, or
whose body makes no progress; it never closes a slow upload that makes progress. It also keeps descriptors free for the
database and for files: at the limit, it closes the connection that has been silent for longest to accept a new one, if
that connection is idle or its body has stalled.
"""

from __future__ import annotations

import json
import resource
from dataclasses import dataclass
from enum import Enum, auto
from http import HTTPStatus
from itertools import count
from typing import TYPE_CHECKING, Any, cast

from uvicorn.protocols.http.h11_impl import H11Protocol

from holdfast.api import PROBLEM_JSON
from holdfast.messages import format_message

if TYPE_CHECKING:
    import asyncio

HEAD_SECONDS = 15.0  # for the whole head of a request, from its first byte or from the connection
BODY_SECONDS = 30.0  # in each of these periods a body must grow by `BODY_BYTES`
BODY_BYTES = 1024
STALLED_SECONDS = 5.0  # at the limit, a connection whose body has been silent for so long may be closed
RETRY_SECONDS = 2
# A burst of connections uses more descriptors than the limit counts: asyncio accepts some in each turn of its loop, and
# needs four turns to create, count, refuse and close one.
ACCEPTED_AT_ONCE = 8
UNCOUNTED_CONNECTIONS = 4 * ACCEPTED_AT_ONCE
# File descriptors that stay free for the database (two for each of 40 threads on SQLite), files, pipes, providers,
# webhooks, and connections that are not counted yet.
RESERVED_DESCRIPTORS, RESERVED_SHARE = 128 + UNCOUNTED_CONNECTIONS, 0.25
MAX_CONNECTIONS = 10_000
DESCRIPTORS_IF_UNLIMITED = 1 << 20
_connection_numbers = count()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """The maximum number of connections, and the deadlines for the parts of a request."""

    connections: int
    head_seconds: float = HEAD_SECONDS
    body_seconds: float = BODY_SECONDS
    body_bytes: int = BODY_BYTES

    @classmethod
    def for_process(cls) -> ConnectionLimits:
        """Return the limits that follow from the file descriptors this process may open."""
        return cls(connections=max_connections(resource.getrlimit(resource.RLIMIT_NOFILE)[0]))


def max_connections(descriptors: int) -> int:
    """Return how many of the file descriptors connections may use."""
    usable = DESCRIPTORS_IF_UNLIMITED if descriptors < 0 else descriptors  # below zero: no limit
    reserved = max(RESERVED_DESCRIPTORS, int(usable * RESERVED_SHARE))
    return min(MAX_CONNECTIONS, max(usable - reserved, usable // 3, 1))


class Phase(Enum):
    """The part of a request that the server waits for."""

    HEAD = auto()
    BODY = auto()
    NOTHING = auto()  # the server is responding, or the connection is idle between two requests


class LimitedProtocol(H11Protocol):
    """HTTP/1.1 with deadlines and a limit on connections."""

    limits: ConnectionLimits  # set by `make_limited_protocol`

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._phase = Phase.NOTHING
        self._deadline: asyncio.TimerHandle | None = None
        self.sequence = next(_connection_numbers)  # the order in which connections arrived
        self._received = 0  # bytes on this connection
        self._received_before = 0  # bytes when the current period began
        self.last_received_at = self.loop.time()  # time of the last byte; before the first, of the connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Count the connection. At the limit, close a silent connection, or refuse this one."""
        super().connection_made(transport)
        if len(self.connections) > self.limits.connections and not self._evict_silent_connection():
            self._answer_and_close(
                HTTPStatus.SERVICE_UNAVAILABLE, "too_many_connections", limit=self.limits.connections
            )
            return
        self._enter_phase(Phase.HEAD)

    def data_received(self, data: bytes) -> None:
        """Receive bytes, and set the deadline for the part of the request that is still missing."""
        self._received += len(data)
        self.last_received_at = self.loop.time()
        super().data_received(data)
        phase = self._current_phase()
        if phase is not self._phase:
            self._enter_phase(phase)

    def on_response_complete(self) -> None:
        """Set the deadline of the next request, if it began to arrive during this response."""
        super().on_response_complete()
        if not self.idle:
            self._enter_phase(self._current_phase())

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the deadline."""
        self._enter_phase(Phase.NOTHING)
        super().connection_lost(exc)

    @property
    def idle(self) -> bool:
        """Whether the connection is new, or between a response and the next request."""
        return self.cycle is None or self.cycle.response_complete

    @property
    def stalled(self) -> bool:
        """Whether a body is incomplete and its client has sent nothing for `STALLED_SECONDS`."""
        silent = self.loop.time() - self.last_received_at >= STALLED_SECONDS
        return silent and self._current_phase() is Phase.BODY and not self.flow.read_paused

    def _current_phase(self) -> Phase:
        if self.transport.is_closing():
            return Phase.NOTHING
        if self.idle:
            return Phase.HEAD
        return Phase.BODY if self.cycle.more_body else Phase.NOTHING

    def _enter_phase(self, phase: Phase) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        self._phase, self._received_before = phase, self._received
        if phase is not Phase.NOTHING:
            seconds = self.limits.head_seconds if phase is Phase.HEAD else self.limits.body_seconds
            self._deadline = self.loop.call_later(seconds, self._check_deadline)

    def _check_deadline(self) -> None:
        """Close the connection, unless the body has grown or the server itself has paused reading it."""
        phase = self._current_phase()
        enough = self._received - self._received_before >= self.limits.body_bytes or self.flow.read_paused
        if phase is not self._phase or (phase is Phase.BODY and enough):
            self._enter_phase(phase)
            return
        if phase is Phase.HEAD:
            self._answer_and_close(
                HTTPStatus.REQUEST_TIMEOUT,
                "request_too_slow",
                subcode="request_head_too_slow",
                seconds=f"{self.limits.head_seconds:g}",
            )
        else:
            self._answer_and_close(
                HTTPStatus.REQUEST_TIMEOUT,
                "request_too_slow",
                bytes=self.limits.body_bytes,
                seconds=f"{self.limits.body_seconds:g}",
            )

    def _evict_silent_connection(self) -> bool:
        """Close the idle or stalled connection that has been silent for longest; return whether there was one."""
        others = (one for one in self.connections if one is not self and isinstance(one, LimitedProtocol))
        silent = (one for one in others if one.idle or one.stalled)
        oldest = min(silent, key=lambda one: (one.last_received_at, one.sequence), default=None)
        if oldest is None:
            return False
        self.connections.discard(oldest)
        oldest.transport.abort()
        return True

    def _answer_and_close(self, status: HTTPStatus, code: str, /, *, subcode: str = "", **params: object) -> None:
        """Send a problem without the application, unless a response has started, and close the connection."""
        self._enter_phase(Phase.NOTHING)
        if self._received or status is HTTPStatus.SERVICE_UNAVAILABLE:
            started = not self.idle and self.cycle.response_started
            if not started:
                shown = {name: str(value) for name, value in params.items()}
                self.transport.write(_encode_problem(status, code, subcode, shown))
        self.transport.close()


def make_limited_protocol(limits: ConnectionLimits) -> type[LimitedProtocol]:
    """Return a protocol class with these limits, for the option `http` of uvicorn."""
    return cast("type[LimitedProtocol]", type("LimitedProtocol", (LimitedProtocol,), {"limits": limits}))


def _encode_problem(status: HTTPStatus, code: str, subcode: str, params: dict[str, str]) -> bytes:
    body = json.dumps(
        {
            "type": f"urn:holdfast:problem:{code}",
            "title": code.replace("_", " ").capitalize(),
            "status": int(status),
            "detail": format_message(f"problem.{subcode or code}", params),
            "code": code,
            "subcode": subcode or None,
            "params": params,
            "retryable": True,
        }
    ).encode()
    head = (
        f"HTTP/1.1 {int(status)} {status.phrase}\r\ncontent-type: {PROBLEM_JSON}\r\ncontent-length: {len(body)}\r\n"
        f"retry-after: {RETRY_SECONDS}\r\nconnection: close\r\n\r\n"
    )
    return head.encode("ascii") + body
