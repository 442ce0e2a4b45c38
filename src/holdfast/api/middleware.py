"""Gives every request an id, and checks its host, its origin and its size before a route handles it.

A web site that is open in the same browser must not reach a server that needs no key. So the middleware rejects a
request for another host (DNS rebinding), and a request from another origin that would change something. A browser sends
the cookie with every request, so a request with a cookie may only change something if it comes from a page of this
server.
"""

from __future__ import annotations

import logging
import re
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from uuid import uuid4

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request

from holdfast.api.problems import RequestRejected, build_error_response, describe_route, find_route
from holdfast.logs import log_fields
from holdfast.tracing import NO_SPAN, NO_TRACER, SpanKind

if TYPE_CHECKING:
    from collections.abc import Collection
    from threading import Event

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from holdfast.tracing import Span, Tracer

log = logging.getLogger("holdfast")

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})
KEY_COOKIE = "holdfast_key"
REQUEST_ID_PATTERN = re.compile(r"[A-Za-z0-9._-]{1,64}")
SECURITY_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}


class RequestChecksMiddleware:
    """Rejects requests by their headers and by the number of bytes; it does not buffer the body."""

    def __init__(
        self, app: ASGIApp, *, hosts: Collection[str] | None, largest: int, draining: Event, tracer: Tracer = NO_TRACER
    ) -> None:
        self._app = app
        self._hosts = None if hosts is None else frozenset(host.lower() for host in hosts)
        self._max_bytes = largest
        self._draining = draining
        self._tracer = tracer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        given = request.headers.get("x-request-id", "")
        request.state.request_id = given if REQUEST_ID_PATTERN.fullmatch(given) else uuid4().hex
        with log_fields(request=request.state.request_id), self._begin_span(request) as span:
            await self._respond(request, receive, send, span)
            span.rename(describe_route(request))

    def _begin_span(self, request: Request) -> Span:
        """Return the span of a request of the API, which continues the trace of the caller."""
        if not self._tracer.enabled or not request.scope["path"].startswith("/api/"):
            return NO_SPAN
        return self._tracer.span(
            request.method,
            kind=SpanKind.SERVER,
            parent=request.headers.get("traceparent"),
            attributes={"http.request.method": request.method, "holdfast.request": request.state.request_id},
        )

    async def _respond(self, request: Request, receive: Receive, send: Send, span: Span) -> None:
        scope = request.scope
        begun = False

        async def send_hardened(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                span.set({"http.response.status_code": message["status"], "http.route": find_route(request)})
                if message["status"] >= HTTPStatus.INTERNAL_SERVER_ERROR:
                    span.fail(str(message["status"]))
                headers = MutableHeaders(scope=message)
                headers["X-Request-ID"] = request.state.request_id
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            self._check(request)
            await self._app(scope, self._limit_body(receive), send_hardened)
        except RequestRejected as rejected:
            await build_error_response(request, rejected)(scope, receive, send_hardened)
        except ClientDisconnect:  # the work for this client is already cancelled
            log.debug("api.client_disconnected request=%s route=%s", request.state.request_id, describe_route(request))
        except Exception as error:
            if begun:  # the response has already started
                raise
            await build_error_response(request, error)(scope, receive, send_hardened)

    def _check(self, request: Request) -> None:
        host = _parse_host(request.headers.get("host", ""))
        if self._hosts is not None and host not in self._hosts:
            raise RequestRejected(HTTPStatus.MISDIRECTED_REQUEST, "wrong_host", host=host)
        if request.method not in SAFE_METHODS:
            _check_origin(
                request.headers, by_cookie=KEY_COOKIE in request.cookies and key_in_headers(request.headers) is None
            )
        length = request.headers.get("content-length", "")
        if length.isdecimal() and int(length) > self._max_bytes:
            raise self._too_large()
        if self._draining.is_set():
            raise RequestRejected(HTTPStatus.SERVICE_UNAVAILABLE, "draining", headers={"Retry-After": "5"})

    def _limit_body(self, receive: Receive) -> Receive:
        """Return a `receive` that counts the bytes of the body, because `Content-Length` may be wrong or missing."""
        received = 0

        async def counted() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self._max_bytes:
                raise self._too_large()
            return message

        return counted

    def _too_large(self) -> RequestRejected:
        return RequestRejected(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too_large", subcode="request_too_large", largest=self._max_bytes
        )


def key_in_headers(headers: Headers) -> str | None:
    """Return the API key in the headers of a request."""
    given = headers.get("x-api-key")
    if given is not None:
        return given
    scheme, _, secret = headers.get("authorization", "").partition(" ")
    return secret.strip() if scheme.lower() == "bearer" else None


def _check_origin(headers: Headers, *, by_cookie: bool) -> None:
    """Reject requests from pages of other web sites. Programs send neither of these headers, and no cookie."""
    origin, site = headers.get("origin"), headers.get("sec-fetch-site")
    own = origin is not None and urlsplit(origin).netloc.lower() == headers.get("host", "").lower()
    if (
        site in ("cross-site", "same-site")
        or (origin is not None and not own)
        or (by_cookie and not own and site != "same-origin")
    ):
        raise RequestRejected(HTTPStatus.FORBIDDEN, "wrong_origin")


def _parse_host(text: str) -> str:
    """Return the name in a Host header without its port."""
    try:
        return (urlsplit(f"//{text}").hostname or "").lower()
    except ValueError:
        return ""
