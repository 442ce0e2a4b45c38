"""HTTP requests of clients, and what an answer says about their effect."""

from __future__ import annotations

import socket
import time
import uuid
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

import httpx2

if TYPE_CHECKING:
    from collections.abc import Callable

TIMEOUT_SECONDS = 8.0
REPEAT_SECONDS = 20.0
REPEAT_PAUSE = 0.3
IN_FLIGHT = "in_flight"  # the first request with this key has not ended
COMMIT_UNKNOWN = "commit_unknown"  # the only refusal that leaves open whether the request took effect


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer to a request: `ok`, `fail` (refused or never sent) or `unknown`, with the content."""

    outcome: str
    status: int = 0
    content: Any = None
    code: str = ""
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return self.outcome == "ok"

    @property
    def told(self) -> dict[str, Any]:
        return {"status": self.status, "code": self.code}


class Caller:
    """Sends the requests of one client to the web servers."""

    def __init__(self, address: Callable[[int], str]) -> None:
        self._address = address
        self._number = 0
        # The server closes idle connections after 5 s. The client must not reuse one at that moment.
        limits = httpx2.Limits(keepalive_expiry=1)
        self._http = httpx2.Client(timeout=TIMEOUT_SECONDS, trust_env=False, limits=limits)

    def close(self) -> None:
        self._http.close()

    def send(self, method: str, path: str, **options: Any) -> Answer:
        """Send a request once, to the next web server."""
        self._number += 1
        try:
            answer = self._http.request(method, f"{self._address(self._number)}/api/v1{path}", **options)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout) as error:
            return Answer(outcome="fail", code=type(error).__name__)
        except httpx2.TransportError as error:
            return Answer(outcome="unknown", code=type(error).__name__)
        return _read(answer)

    def repeat(self, method: str, path: str, **options: Any) -> Answer:
        """Send a request with an Idempotency-Key until an answer says what became of it."""
        headers = {"Idempotency-Key": uuid.uuid4().hex}
        deadline = time.monotonic() + REPEAT_SECONDS
        sent = False  # a request without an answer may have taken effect
        while True:
            answer = self.send(method, path, headers=headers, **options)
            sent = sent or answer.outcome == "unknown"
            busy = answer.code == IN_FLIGHT
            if answer.status and answer.status < 500 and not busy:
                # A refusal may be the consequence of an earlier attempt that took effect.
                return replace(answer, outcome="unknown") if sent and not answer.ok else answer
            if time.monotonic() > deadline:
                return Answer(outcome="unknown" if sent or busy else "fail", code=answer.code, status=answer.status)
            time.sleep(REPEAT_PAUSE)

    def hang_up(self, method: str, path: str, *, content: bytes = b"", params: dict[str, Any] | None = None) -> Answer:
        """Send a request and close the connection without reading the answer."""
        self._number += 1
        host, port = urlsplit(self._address(self._number)).netloc.split(":")
        query = f"?{urlencode(params)}" if params else ""
        head = (
            f"{method} /api/v1{path}{query} HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Length: {len(content)}\r\n\r\n"
        )
        try:
            with socket.create_connection((host, int(port)), timeout=TIMEOUT_SECONDS) as connection:
                connection.sendall(head.encode() + content)
        except ConnectionRefusedError:
            return Answer(outcome="fail", code="ConnectionRefusedError")
        except OSError as error:
            return Answer(outcome="unknown", code=type(error).__name__)
        return Answer(outcome="unknown", code="hung_up")


def _read(answer: httpx2.Response) -> Answer:
    try:
        content = answer.json() if answer.content else None
    except ValueError:
        content = None
    code = content.get("code", "") if answer.status_code >= 400 and isinstance(content, dict) else ""
    if answer.status_code < 400:
        outcome = "ok"
    elif code == COMMIT_UNKNOWN or (answer.status_code >= 500 and not code) or code == "internal_error":
        outcome = "unknown"
    else:
        outcome = "fail"
    return Answer(outcome=outcome, status=answer.status_code, content=content, code=code, headers=dict(answer.headers))
