"""Parses and normalises web addresses: equal addresses become equal strings.

Every address that is compared, stored or connected to is normalised here. Unusual spellings are refused and not
interpreted: two programs that read an address differently can be tricked into contacting the wrong server.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Self
from urllib.parse import quote, urljoin, urlsplit

import idna

from holdfast.sources import errors

PORTS = {"http": 80, "https": 443}
LONGEST = 4096  # also in the text `why.url_too_long`
FORBIDDEN = re.compile(r"[\x00-\x20\x7f\\]")
LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
HOST_LENGTH = 253
NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})")
LONE_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")
UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
PATH_SIGNS, QUERY_SIGNS = "/%:@!$&'()*+,;=~", "/%:@!$&'()*+,;=~?"


@dataclass(frozen=True, slots=True, order=True)
class Url:
    """A normalised web address: no fragment, no default port, host in lower case and ASCII.

    Example: `str(Url.parse("HTTP://Example.org:80/a/../b#top")) == "http://example.org/b"`
    """

    scheme: str
    host: str  # a name, an IPv4 address, or an IPv6 address without brackets
    port: int
    path: str
    query: str | None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse an address from a user or a server; raise `Permanent` if it is invalid."""
        text = text.strip()
        if len(text) > LONGEST:
            raise errors.bad_url("url_too_long")
        if FORBIDDEN.search(text):
            raise errors.bad_url("url_characters")
        try:
            parts = urlsplit(text)
            port = parts.port
        except ValueError:
            raise errors.bad_url("url_form") from None
        if parts.scheme not in PORTS:
            raise errors.bad_url("url_scheme")
        if "@" in parts.netloc:
            raise errors.bad_url("url_user")
        if port == 0:
            raise errors.bad_url("url_port")
        return cls(
            scheme=parts.scheme,
            host=_host(parts.netloc),
            port=port or PORTS[parts.scheme],
            path=_remove_dot_segments(_escaped(parts.path, PATH_SIGNS)),
            query=_escaped(parts.query, QUERY_SIGNS) if parts.query else None,
        )

    def join(self, location: str) -> Url:
        """Resolve a link relative to this address."""
        try:
            return Url.parse(urljoin(str(self), location.strip()))
        except ValueError:
            raise errors.bad_url("url_form") from None

    @property
    def authority(self) -> str:
        """Host, and port unless it is the default."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def target(self) -> str:
        """Path and query."""
        return self.path if self.query is None else f"{self.path}?{self.query}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.target}"


def _host(netloc: str) -> str:
    """Return the normalised host: an IPv6 address in brackets, a name, or an IPv4 address."""
    if netloc.startswith("["):
        inside, bracket, behind = netloc[1:].partition("]")
        if not bracket or (behind and not behind.startswith(":")):
            raise errors.bad_url("url_host")
        return _ipv6(inside)
    return normalize_host(netloc.partition(":")[0])


def normalize_host(name: str) -> str:
    """Normalise a host name or an IPv4 address."""
    name = name.removesuffix(".").lower()
    if not name.isascii():
        name = _in_ascii(name)
    labels = name.split(".")
    if NUMBER.fullmatch(labels[-1]):
        return _ipv4(name)
    if len(name) > HOST_LENGTH or not all(LABEL.fullmatch(label) for label in labels):
        raise errors.bad_url("url_host")
    return name


def _in_ascii(name: str) -> str:
    try:
        return idna.encode(name, uts46=True).decode("ascii").removesuffix(".")
    except ValueError:  # base of the errors of idna
        raise errors.bad_url("url_host") from None


def _ipv4(text: str) -> str:
    """Accept only four decimal numbers; programs disagree on `2130706433`, `0x7f.1` and `0177.0.0.1`."""
    try:
        return str(ipaddress.IPv4Address(text))
    except ValueError:
        raise errors.bad_url("url_number_host") from None


def _ipv6(text: str) -> str:
    try:
        address = ipaddress.IPv6Address(text)
    except ValueError:
        raise errors.bad_url("url_ipv6") from None
    if address.scope_id:
        raise errors.bad_url("url_interface")
    return address.compressed


def _escaped(text: str, signs: str) -> str:
    """Percent-encode only what needs it; letters, digits and `-._~` are never encoded."""
    plain = ESCAPE.sub(_unescaped, LONE_PERCENT.sub("%25", text))
    return quote(plain, safe=signs, encoding="utf-8", errors="replace")


def _unescaped(escape: re.Match[str]) -> str:
    character = chr(int(escape[1], 16))
    return character if character in UNRESERVED else escape[0].upper()


def _remove_dot_segments(path: str) -> str:
    segments: list[str] = []
    parts = path.split("/")[1:]
    for place, part in enumerate(parts):
        last = place == len(parts) - 1
        if part == "..":
            segments = segments[:-1]
        elif part != ".":
            segments.append(part)
        if last and part in {".", ".."}:
            segments.append("")
    return "/" + "/".join(segments)
