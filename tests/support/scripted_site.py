"""A web server on loopback that sends exactly the bytes that a test wants."""

from __future__ import annotations

import socket
import socketserver
import subprocess
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterable
    from pathlib import Path

    Answer = Callable[["Request"], Iterable[bytes]]

HEAD_END = b"\r\n\r\n"
ENOUGH = 1 << 16


@dataclass(frozen=True)
class Request:
    target: str
    headers: dict[str, str]


@dataclass
class Site:
    """Answers by request target and records the requests in `asked`. Use other loopback addresses for more sites."""

    address: str = "127.0.0.1"
    port: int = 0
    tls: ssl.SSLContext | None = None
    answers: dict[str, Answer] = field(default_factory=dict)
    asked: list[Request] = field(default_factory=list)

    def __enter__(self) -> Self:
        site = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                site._serve(self.request)

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True
            allow_reuse_address = True
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

    @property
    def targets(self) -> list[str]:
        return [request.target for request in self.asked]

    def url(self, target: str = "/", *, host: str | None = None) -> str:
        return f"{'https' if self.tls else 'http'}://{host or self.address}:{self.port}{target}"

    def says(self, target: str, *pieces: bytes) -> None:
        self.answers[target] = lambda _: pieces

    def _serve(self, connection: socket.socket) -> None:
        connection.settimeout(10)
        with suppress(OSError):
            if self.tls:
                with self.tls.wrap_socket(connection, server_side=True) as secured:
                    self._answer(secured)
            else:
                self._answer(connection)

    def _answer(self, connection: socket.socket) -> None:
        with suppress(OSError):
            request = _read(connection)
            self.asked.append(request)
            answer = self.answers.get(request.target)
            for piece in answer(request) if answer else [reply(b"", status=404)]:
                connection.sendall(piece)
            connection.shutdown(socket.SHUT_WR)
            connection.recv(ENOUGH)


def reply(body: bytes, *, status: int = 200, mime: str = "text/html", **headers: str) -> bytes:
    """Return a complete response. `_` in the name of a header stands for a hyphen."""
    named = {"content_type": mime, "content_length": str(len(body))} | headers
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in named.items())
    return f"HTTP/1.1 {status} Said\r\n{lines}\r\n".encode() + body


def certificate(folder: Path, name: str) -> tuple[Path, Path]:
    """Create a self-signed certificate for a name, and return the paths of the certificate and the key."""
    key, made = folder / "key.pem", folder / "certificate.pem"
    subprocess.run(
        [
            "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
            "-days", "2", "-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name}",
            "-keyout", str(key), "-out", str(made),
        ],
        check=True,
        capture_output=True,
    )  # fmt: skip
    return made, key


def _read(connection: socket.socket) -> Request:
    data = b""
    while HEAD_END not in data and len(data) < ENOUGH:
        piece = connection.recv(ENOUGH)
        if not piece:
            break
        data += piece
    first, *lines = data.split(HEAD_END)[0].decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return Request(first.split(" ")[1] if " " in first else "", headers)
