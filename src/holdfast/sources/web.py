"""Fetches one web page, once, within limits of size and time, from allowed servers only.

Each redirect is checked like the first address. There are no cookies and no proxies; the request contains only the
address and the validators of an earlier response. A single page that a user requests is fetched regardless of
robots.txt, as in a browser; sitemaps obey it (see `sitemaps`).
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from datetime import UTC, datetime
from email.message import Message
from typing import TYPE_CHECKING
from urllib.parse import unquote

from holdfast.content import HEAD_BYTES, MIB, SIGNATURES, is_text
from holdfast.errors import Permanent, Transient
from holdfast.sources import errors
from holdfast.sources.address_policy import PUBLIC_ONLY, Reach
from holdfast.sources.gunzip import BadGzip, decompress, join_limited
from holdfast.sources.headers import parse_headers, parse_retry_after
from holdfast.sources.safe_transport import Deadline, Resolver, open_response, resolve_host
from holdfast.sources.urls import Url

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterable

    import httpcore2

ACCEPT = "text/html, application/xhtml+xml, text/plain, text/markdown, application/pdf;q=0.9, */*;q=0.5"
REDIRECTS = frozenset({301, 302, 303, 307, 308})
GONE, FORBIDDEN, BUSY = frozenset({404, 410}), frozenset({401, 403, 407, 451}), frozenset({408, 425, 429})
NOT_MODIFIED, OK_STATUSES, SERVER_ERRORS, CLIENT_ERRORS = 304, frozenset({200, 203}), 500, 400
MIME = re.compile(r"\s*([\w.+-]+/[\w.+-]+)\s*(?:;|$)")
CHARSET = re.compile(r""";\s*charset\s*=\s*["']?\s*([\w.:-]+)""", re.IGNORECASE)
NON_TEXT_MIMES = ("image/", "audio/", "video/", "font/", "model/", "multipart/", "text/event-stream")
BINARY_SIGNATURES = tuple(signature for signature, _ in SIGNATURES)
UNKNOWN_MIME = "application/octet-stream"
EXTENSIONS_BY_MIME = {
    "text/html": ("html", "htm", "xhtml"),
    "application/xhtml+xml": ("html", "htm", "xhtml"),
    "text/markdown": ("md", "markdown"),
    "text/csv": ("csv",),
    "application/json": ("json",),
    "application/xml": ("xml", "rss", "atom", "svg"),
    "text/xml": ("xml", "rss", "atom", "svg"),
    "application/pdf": ("pdf",),
}
NAME_LENGTH = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchLimits:
    seconds: float = 30  # from the first lookup to the last byte
    bytes: int = 32 * MIB  # unpacked
    redirects: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Validators:
    """The validators of an earlier response; sent again only to the address they came from."""

    url: str
    etag: str | None = None
    modified: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedPage:
    url: str  # after redirects
    body: bytes  # text whose encoding only the header names is converted to UTF-8
    mime: str
    charset: str | None  # as named in the header
    name: str  # for users and readers; its extension matches the media type
    validators: Validators  # for the next fetch


@dataclass(frozen=True, slots=True, kw_only=True)
class Unchanged:
    """The page has not changed since the response with the `known` validators."""

    url: str


DEFAULT_LIMITS = FetchLimits()


def fetch(
    url: str,
    known: Validators | None = None,
    *,
    limits: FetchLimits = DEFAULT_LIMITS,
    reach: Reach = PUBLIC_ONLY,
    resolve: Resolver = resolve_host,
    tls: ssl.SSLContext | None = None,
) -> FetchedPage | Unchanged:
    """Fetch one page.

        page = fetch("https://example.org/")
        later = fetch("https://example.org/", page.validators)  # `Unchanged` if the server says so

    Raises `Permanent` if the page is gone, forbidden, too large or on a server that is not allowed, and `Transient` if
    a later attempt may succeed.
    """
    here = Url.parse(url)
    deadline = Deadline(limits.seconds)
    for _ in range(limits.redirects + 1):
        request_headers = _request_headers(here, known)
        with open_response("GET", here, request_headers, deadline, reach=reach, resolve=resolve, tls=tls) as response:
            headers = parse_headers(response.headers)
            if response.status not in REDIRECTS or "location" not in headers:
                return _build_page(here, known, response, headers, limits)
        here = here.join(_decode_location(headers["location"]))
    raise Permanent("too_many_redirects", params={"most": str(limits.redirects)})


def _build_page(
    here: Url, known: Validators | None, response: httpcore2.Response, headers: dict[str, str], limits: FetchLimits
) -> FetchedPage | Unchanged:
    if response.status == NOT_MODIFIED and _has_validators(here, known):
        return Unchanged(url=str(here))
    _check_status(here, response.status, headers)
    mime, charset = _parse_content_type(headers.get("content-type", ""))
    if mime.startswith(NON_TEXT_MIMES):
        raise Permanent("unsupported_page_type", params={"mime": mime})
    body = _body(here, response.iter_stream(), headers, limits.bytes)
    return FetchedPage(
        url=str(here),
        body=_in_utf8(body, charset) if charset and _is_plain(body, mime) else body,
        mime=mime,
        charset=charset,
        name=_name(here, mime, headers.get("content-disposition", "")),
        validators=Validators(url=str(here), etag=headers.get("etag"), modified=headers.get("last-modified")),
    )


def _check_status(here: Url, status: int, headers: dict[str, str]) -> None:
    if status in OK_STATUSES:
        return
    params = {"host": here.host, "status": str(status)}
    if status in GONE:
        raise Permanent("page_gone", params=params)
    if status in FORBIDDEN:
        raise Permanent("page_forbidden", params=params)
    if status in BUSY or status >= SERVER_ERRORS:
        wait = parse_retry_after(headers.get("retry-after", ""), datetime.now(UTC))
        raise Transient("server_busy", params=params, retry_after=wait)
    raise Permanent("page_refused", params=params) if status >= CLIENT_ERRORS else errors.invalid_response(here.host)


def _body(here: Url, pieces: Iterable[bytes], headers: dict[str, str], most: int) -> bytes:
    """Read the whole body; refuse more than `most` bytes, compressed or not."""
    if headers.get("content-length", "").isdecimal() and int(headers["content-length"][:20]) > most:
        raise errors.page_too_large(most)
    coding = headers.get("content-encoding", "identity").strip().lower()
    if coding in {"gzip", "x-gzip"}:
        try:
            return join_limited(decompress(pieces, most), most)
        except BadGzip:
            raise errors.invalid_response(here.host) from None
    if coding not in {"identity", ""}:  # the request accepts only gzip
        raise errors.invalid_response(here.host)
    return join_limited(pieces, most)


def _request_headers(here: Url, known: Validators | None) -> dict[str, str]:
    headers = {"Accept": ACCEPT, "Accept-Encoding": "gzip"}
    if known and _has_validators(here, known):
        headers |= {"If-None-Match": known.etag} if known.etag else {}
        headers |= {"If-Modified-Since": known.modified} if known.modified else {}
    return headers


def _has_validators(here: Url, known: Validators | None) -> bool:
    """Return whether there are validators from this very address."""
    return known is not None and known.url == str(here) and bool(known.etag or known.modified)


def _decode_location(location: str) -> str:
    """Decode the Location header, which many servers send as UTF-8."""
    try:
        return location.encode("latin-1").decode()
    except UnicodeDecodeError:
        return location


def _parse_content_type(text: str) -> tuple[str, str | None]:
    mime, charset = MIME.match(text), CHARSET.search(text)
    return mime[1].lower() if mime else UNKNOWN_MIME, charset[1].lower() if charset else None


def _is_plain(body: bytes, mime: str) -> bool:
    """Return whether the body really is text; servers also send binary data as text."""
    named = mime.startswith("text/") or mime.endswith(("xml", "json"))
    return named and is_text(body[:HEAD_BYTES]) and not body.lstrip().startswith(BINARY_SIGNATURES)


def _in_utf8(body: bytes, charset: str) -> bytes:
    """Convert text to UTF-8 by the charset of the header, which readers do not see."""
    try:
        body.decode()
    except UnicodeDecodeError:
        pass
    else:
        return body
    try:
        return body.decode(charset).encode()
    except (ValueError, LookupError, TypeError, AttributeError):  # a wrong charset, or a codec that is no text encoding
        return body


def _name(here: Url, mime: str, disposition: str) -> str:
    """Return a file name for the page, with an extension that matches its media type."""
    message = Message()
    message["Content-Disposition"] = disposition.replace("\r", " ").replace("\n", " ")
    last = unquote(here.path.rstrip("/").rpartition("/")[2])
    name = _clean_name(message.get_filename("")) or _clean_name(last) or here.host
    endings = EXTENSIONS_BY_MIME.get(mime, ())
    if not endings and mime == "text/plain" and "." not in name:
        endings = ("txt",)
    ending = name.rpartition(".")[2].lower()
    return name if not endings or ending in endings else f"{name}.{endings[0]}"


def _clean_name(name: str) -> str:
    """Return the last path component without invisible characters and text direction marks."""
    last = re.split(r"[/\\]", name)[-1]
    visible = "".join(character for character in last if unicodedata.category(character)[0] != "C")
    return visible.strip(". ")[:NAME_LENGTH]
