"""A receiver of webhooks: a real HTTP server on loopback that records the messages it gets."""

from __future__ import annotations

import threading
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Self

from standardwebhooks import Webhook as Verifier

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class Message:
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    def verified(self, secret: str) -> dict[str, object]:
        """Verify the signature, as a receiver should, and return the content."""
        read: dict[str, object] = Verifier(secret).verify(self.body, self.headers)
        return read


Said = tuple[int, dict[str, str], bytes]


def say(status: int, body: bytes = b"", **headers: str) -> Said:
    """Return a response. `_` in the name of a header stands for a hyphen."""
    return status, {name.replace("_", "-"): value for name, value in headers.items()}, body


@dataclass
class Receiver:
    """Sends the queued `answers` in order, and then 204."""

    address: str = "127.0.0.1"
    port: int = 0
    answers: deque[Said] = field(default_factory=deque)
    got: list[Message] = field(default_factory=list)
    before: Callable[[Message], None] = lambda _: None  # runs before each response

    def __enter__(self) -> Self:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                message = Message(self.path, {name.lower(): text for name, text in self.headers.items()}, body)
                receiver.got.append(message)
                receiver.before(message)
                status, headers, said = receiver.answers.popleft() if receiver.answers else say(204)
                self.send_response(status)
                for name, text in headers.items():
                    self.send_header(name, text)
                if status != 204:
                    self.send_header("content-length", str(len(said)))
                self.end_headers()
                self.wfile.write(said)

            def handle(self) -> None:
                with suppress(OSError):  # the sender closed the connection
                    super().handle()

            def log_message(self, *_: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            block_on_close = False

        self._server = Server((self.address, self.port), Handler)
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def url(self, path: str = "/", *, host: str | None = None) -> str:
        return f"http://{host or self.address}:{self.port}{path}"
