"""A TCP proxy in front of PostgreSQL that cuts a connection at its COMMIT, before or after the server has done it."""

from __future__ import annotations

import contextlib
import socket
import threading
from enum import StrEnum
from typing import TYPE_CHECKING, Self

from tests.support.servers import HOST

if TYPE_CHECKING:
    from types import TracebackType


class Cut(StrEnum):
    BEFORE = "before"  # the server never receives the COMMIT
    AFTER = "after"  # the server commits, but its reply is lost


class CuttingProxy:
    """Forwards connections to a port. `cut_next_commit` arms it once."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listening = socket.create_server((HOST, 0))
        self.port: int = self._listening.getsockname()[1]
        self._cut: Cut | None = None
        self.refuse_after_cut = False  # the server seems to be gone after the cut
        self._refusing = False
        self._sockets: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for one in (self._listening, *self._sockets):
            _close(one)
        self._thread.join()

    def address(self, url: str) -> str:
        """Return the address of a database through this proxy."""
        return url.replace(f":{self._target}/", f":{self.port}/")

    def cut_next_commit(self, when: Cut) -> None:
        self._cut = when

    @property
    def armed(self) -> bool:
        return self._cut is not None

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                if self._refusing:
                    client.close()
                    continue
                try:
                    server = socket.create_connection((HOST, self._target))
                except OSError:  # the server is down
                    client.close()
                    continue
                self._sockets += [client, server]
                threading.Thread(target=self._to_server, args=(client, server), daemon=True).start()

    def _to_server(self, client: socket.socket, server: socket.socket) -> None:
        replies = threading.Thread(target=_forward, args=(server, client), daemon=True)
        replies.start()
        with contextlib.suppress(OSError):
            while data := client.recv(65536):
                if self._cut is not None and b"COMMIT\0" in data:
                    cut, self._cut = self._cut, None
                    self._refusing = self.refuse_after_cut
                    _close(client)  # no reply reaches the client from here on
                    if cut is Cut.AFTER:
                        server.sendall(data)
                        server.settimeout(10)
                        replies.join()
                    break
                server.sendall(data)
        _close(client)
        _close(server)


def _forward(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    _close(target)


def _close(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()
