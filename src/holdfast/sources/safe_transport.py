"""HTTP connections to allowed servers only, against server-side request forgery.

A host name is resolved once, every address is checked, and the connection goes to a checked address: there is no second
lookup with another answer. The Host header and the certificate are those of the name. Proxy settings of the environment
are ignored.
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
from importlib.metadata import version
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

import httpcore2

from holdfast.errors import Permanent
from holdfast.sources import errors

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from holdfast.sources.address_policy import Address, Reach
    from holdfast.sources.urls import Url

Resolver = Callable[[str], Sequence[str]]  # a host name -> its addresses
USER_AGENT = "Holdfast"


def resolve_host(name: str) -> Sequence[str]:
    found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    return list(dict.fromkeys(str(sockaddr[0]) for *_, sockaddr in found))


@dataclass(slots=True)
class Deadline:
    """The time limit of a whole fetch with all its steps."""

    seconds: float
    _end: float = field(init=False)

    def __post_init__(self) -> None:
        self._end = time.monotonic() + self.seconds

    def seconds_left(self) -> float:
        """Return the remaining seconds; raise `response_too_slow` if there are none."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise errors.response_too_slow(self.seconds)
        return left


class SafeBackend(httpcore2.NetworkBackend):
    """Connects only to addresses that the policy allows, and limits each step to the remaining time."""

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
        """Resolve the host, check every address, and connect to the first that answers."""
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
        """Resolve in a separate thread, because the resolver of the system has no timeout."""
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
            raise errors.response_too_slow(self._deadline.seconds) from None
        if found is None:
            raise errors.unknown_host(host)
        return found


class _TimedStream(httpcore2.NetworkStream):
    """A connection that limits each step to the remaining time."""

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


@contextmanager
def open_response(
    method: str,
    url: Url,
    headers: Mapping[str, str],
    deadline: Deadline,
    *,
    reach: Reach,
    resolve: Resolver = resolve_host,
    tls: ssl.SSLContext | None = None,
    content: bytes | None = None,
) -> Iterator[httpcore2.Response]:
    """Send one request and yield the response, whose body is not read yet; redirects are not followed.

        with open_response("GET", Url.parse("https://example.org/"), {}, Deadline(30), reach=PUBLIC_ONLY) as response:
            body = b"".join(response.iter_stream())

    Raises `Permanent` or `Transient` for every failure of the network, also while the body is read.
    """
    address = httpcore2.URL(
        scheme=url.scheme.encode(), host=url.host.encode(), port=url.port, target=url.target.encode()
    )
    named = {
        "Host": url.authority,
        "User-Agent": f"{USER_AGENT}/{version('holdfast')}",
        **headers,
        "Connection": "close",
    }
    encoded = [(name.encode(), value.encode("latin-1", "replace")) for name, value in named.items()]
    backend = SafeBackend(reach, deadline, resolve)
    with (
        _translate_network_errors(url.host, deadline),
        httpcore2.ConnectionPool(tls or _default_tls_context(), max_connections=1, network_backend=backend) as pool,
        pool.stream(method, address, headers=encoded, content=content) as response,
    ):
        yield response


@cache
def _default_tls_context() -> ssl.SSLContext:
    """Return the certificates that this machine trusts; cached, since there are many."""
    return httpcore2.default_ssl_context()


@contextmanager
def _translate_network_errors(host: str, deadline: Deadline) -> Iterator[None]:
    """Raise network errors as `Permanent` or `Transient`."""
    try:
        yield
    except httpcore2.TimeoutException:
        raise errors.response_too_slow(deadline.seconds) from None
    except httpcore2.NetworkError as error:
        deadline.seconds_left()
        cause = error.args[0] if error.args else None  # httpcore2 stores the cause here and clears `__cause__`
        broken_off = isinstance(cause, ssl.SSLEOFError | ssl.SSLZeroReturnError)
        refused = isinstance(cause, ssl.SSLError) and not broken_off
        raise Permanent("tls_failed", params={"host": host}) if refused else errors.unreachable(host) from None
    except httpcore2.ProtocolError:
        raise errors.invalid_response(host) from None
