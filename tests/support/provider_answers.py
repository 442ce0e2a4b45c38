"""A provider on loopback that answers every request with one prepared error, in the wire format of its company."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    status: int
    body: Any
    headers: Mapping[str, str] = field(default_factory=dict)
    cut: bool = False  # end the connection within the body


def openai_error(status: int, code: str | None, kind: str = "invalid_request_error", **more: Any) -> Answer:
    body = {"error": {"message": "No. sk-secret", "type": kind, "param": None, "code": code}}
    return Answer(status=status, body=body, **more)


def anthropic_error(status: int, kind: str, message: str = "No. sk-secret", **more: Any) -> Answer:
    body = {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}
    return Answer(status=status, body=body, **more)


def google_error(status: int, word: str, message: str = "No. sk-secret", details: Any = ()) -> Answer:
    error = {"code": status, "message": message, "status": word, "details": list(details)}
    return Answer(status=status, body={"error": error})


def bedrock_error(status: int, kind: str, message: str = "No. sk-secret") -> Answer:
    return Answer(status=status, body={"message": message}, headers={"x-amzn-ErrorType": kind})


@contextmanager
def provider(answer: Answer) -> Iterator[str]:
    """Serve the answer; yield the address."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            text = answer.body if isinstance(answer.body, str) else json.dumps(answer.body)
            body = text.encode()
            self.send_response(answer.status)
            for name, value in {"Content-Type": "application/json", **answer.headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body) + 1000 * answer.cut))
            self.end_headers()
            self.wfile.write(body)
            self.close_connection = answer.cut

        do_GET = do_POST  # noqa: N815 - named by the standard library

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
