"""Answers `/healthz`, `/readyz` and `/metrics` in roles that serve no other requests.

`/healthz` succeeds if the process runs, `/readyz` if it can work.
"""

from __future__ import annotations

import json
import logging
import threading
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

log = logging.getLogger("holdfast")


@contextmanager
def answering_health(
    host: str, port: int, check: Callable[[], object], metrics: Callable[[str, str], tuple[HTTPStatus, str, bytes]]
) -> Iterator[None]:
    """Answer inside the block, unless the port is 0.

    `check` raises if the process cannot work. `metrics` gets the headers `Authorization` and `Accept`, and returns
    status, content type and body.
    """
    if not port:
        yield
        return

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            try:
                if self.path.partition("?")[0] == "/metrics":
                    self._send(*metrics(self.headers.get("Authorization", ""), self.headers.get("Accept", "")))
                    return
                if self.path == "/readyz":
                    check()
                found = self.path in ("/healthz", "/readyz")
                self._reply(HTTPStatus.OK if found else HTTPStatus.NOT_FOUND, "ok" if found else "not found")
            except Exception as error:  # noqa: BLE001 - whatever it is, the process is not ready
                log.warning("health.not_ready error=%s", error)
                self._reply(HTTPStatus.SERVICE_UNAVAILABLE, "unavailable")

        def _reply(self, status: HTTPStatus, text: str) -> None:
            self._send(status, "application/json", json.dumps({"status": text}).encode())

        def _send(self, status: HTTPStatus, content_type: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Log nothing: checks come every few seconds."""

    with ThreadingHTTPServer((host, port), Handler) as server:
        threading.Thread(target=server.serve_forever, name="holdfast-health", daemon=True).start()
        try:
            yield
        finally:
            server.shutdown()
