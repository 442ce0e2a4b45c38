"""Connections to public servers only.

A name is resolved once, each address it has is judged, and the connection goes to an address that was judged: there
is no second lookup that could answer differently. Host header and certificate stay those of the name. No proxy is
asked, whatever the environment says.
"""

from __future__ import annotations

import ipaddress
import socket
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

import httpcore2

from holdfast.sources import errors

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from holdfast.sources.address_policy import Address, Reach
    from holdfast.sources.urls import Url

Resolver = Callable[[str], Sequence[str]]  # a name -> its addresses


def resolve_host(name: str) -> Sequence[str]:
    """Ask the system for the addresses of a name."""
    found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    return list(dict.fromkeys(str(sockaddr[0]) for *_, sockaddr in found))


@dataclass(slots=True)
class Deadline:
    """The end of a whole fetch, however many steps it has."""

    seconds: float
    _end: float = field(init=False)

    def __post_init__(self) -> None:
        self._end = time.monotonic() + self.seconds

    def seconds_left(self) -> float:
        """Return the seconds that are left; raises when none are."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise errors.fetch_too_slow(self.seconds)
        return left


class SafeBackend(httpcore2.NetworkBackend):
    """Opens connections within a reach, and gives each step no longer than what is left of the whole."""

    def __init__(self, reach: Reach, deadline: Deadline, resolve: Resolver = resolve_host) -> None:
        self._reach = reach
        self._deadline = deadline
        self._resolve = resolve
        self._plain = httpcore2.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ARG002 - the deadline decides
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.NetworkStream:
        """Resolve, judge every address, and connect to the first that answers."""
        addresses = self._addresses(host)
        for address in addresses:
            self._reach.require_allowed(host, port, address)
        for address in addresses:
            share = self._deadline.seconds_left() / (len(addresses) - addresses.index(address))
            try:
                stream = self._plain.connect_tcp(str(address), port, share, local_address, socket_options)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout):
                continue
            return _TimedStream(stream, self._deadline)
        self._deadline.seconds_left()
        raise errors.unreachable(host)

    def _addresses(self, host: str) -> list[Address]:
        try:
            return [ipaddress.ip_address(host)]
        except ValueError:
            pass
        found = [ipaddress.ip_address(text) for text in self._look_up_in_time(host)]
        if not found:
            raise errors.unknown_host(host)
        return list(dict.fromkeys(found))

    def _look_up_in_time(self, host: str) -> Sequence[str]:
        """Resolve in a thread of its own: the system's resolver knows no deadline."""
        answers: SimpleQueue[Sequence[str] | None] = SimpleQueue()

        def ask() -> None:
            try:
                answers.put(self._resolve(host))
            except (OSError, UnicodeError):
                answers.put(None)

        threading.Thread(target=ask, name="holdfast-lookup", daemon=True).start()
        try:
            found = answers.get(timeout=self._deadline.seconds_left())
        except Empty:
            raise errors.fetch_too_slow(self._deadline.seconds) from None
        if found is None:
            raise errors.unknown_host(host)
        return found


class _TimedStream(httpcore2.NetworkStream):
    """A connection on which no step lasts longer than what is left of the whole."""

    def __init__(self, stream: httpcore2.NetworkStream, deadline: Deadline) -> None:
        self._stream = stream
        self._deadline = deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ARG002 - the deadline decides
        return self._stream.read(max_bytes, self._deadline.seconds_left())

    def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ARG002 - the deadline decides
        self._stream.write(buffer, self._deadline.seconds_left())

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ARG002 - the deadline decides
    ) -> httpcore2.NetworkStream:
        secured = self._stream.start_tls(ssl_context, server_hostname, self._deadline.seconds_left())
        return _TimedStream(secured, self._deadline)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


def to_httpcore_url(url: Url) -> httpcore2.URL:
    """Write an address as the client of HTTP reads it."""
    return httpcore2.URL(scheme=url.scheme.encode(), host=url.host.encode(), port=url.port, target=url.target.encode())


@cache
def default_tls_context() -> ssl.SSLContext:
    """Trust whom this machine trusts; made once, since it reads many certificates."""
    return httpcore2.default_ssl_context()


@contextmanager
def translate_network_errors(host: str, deadline: Deadline) -> Iterator[None]:
    """Say in our words what the network did."""
    try:
        yield
    except httpcore2.TimeoutException:
        raise errors.fetch_too_slow(deadline.seconds) from None
    except httpcore2.NetworkError as error:
        deadline.seconds_left()
        cause = error.args[0] if error.args else None  # httpcore2 keeps it there, and clears `__cause__`
        broken_off = isinstance(cause, ssl.SSLEOFError | ssl.SSLZeroReturnError)
        refused = isinstance(cause, ssl.SSLError) and not broken_off
        raise errors.tls_failed(host) if refused else errors.unreachable(host) from None
    except httpcore2.ProtocolError:
        raise errors.invalid_response(host) from None
