"""Authenticates a request by its API key, and opens the service with the rights of the caller.

A server on this machine needs no key until the first key is created. A request without a valid key gets the same
response for every route.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated

from fastapi import Depends, Request, Response

from holdfast.api.middleware import KEY_COOKIE, key_in_headers
from holdfast.api.problems import RequestRejected
from holdfast.auth import KEYLESS_CALLER, Caller, Scope
from holdfast.metrics import has_metrics_token
from holdfast.service.local import LocalService

if TYPE_CHECKING:
    from holdfast.api.app import ServerState
    from holdfast.api.stream_limits import StreamLimits
    from holdfast.auth import StoredKey

CHALLENGE_HEADER = {"WWW-Authenticate": 'Bearer realm="holdfast"'}


def get_server_state(request: Request) -> ServerState:
    state: ServerState = request.app.state.served
    return state


def get_stream_limits(request: Request) -> StreamLimits:
    limits: StreamLimits = request.app.state.streams
    return limits


def authenticate(request: Request) -> Caller:
    """Return the caller. Raise if a required key is missing, or if the key is not valid."""
    secret = _read_secret(request)
    if secret is None:
        if key_required(request):
            raise key_missing()
        return KEYLESS_CALLER
    key = get_server_state(request).library.keys.verify(secret)
    if key is None:
        raise unknown_key(None if key_in_headers(request.headers) else clear_cookie_header(request))
    return key.caller


def check_metrics_access(request: Request) -> None:
    """Raise unless the request has the token for metrics, or a key that reads all bases where a key is needed."""
    token = get_server_state(request).settings.metrics_token
    if has_metrics_token(request.headers.get("authorization", ""), token):
        return
    if token and _read_secret(request) is None:
        raise key_missing()
    open_service(request, authenticate(request)).authorization.require_all_bases(Scope.READ)


def find_valid_key(request: Request) -> StoredKey | None:
    """Return the key of a request; None if it has none, or if its key is not valid."""
    secret = _read_secret(request)
    return None if secret is None else get_server_state(request).library.keys.verify(secret)


def key_required(request: Request) -> bool:
    state = get_server_state(request)
    return state.needs_key or state.library.keys.any_created()


def key_missing() -> RequestRejected:
    """Return the error for a request without a key."""
    return RequestRejected(HTTPStatus.UNAUTHORIZED, "unauthorized", subcode="key_required", headers=CHALLENGE_HEADER)


def unknown_key(cookie: str | None = None) -> RequestRejected:
    """Return the error for a key that is not valid. `cookie` is a `Set-Cookie` header that deletes the key."""
    return RequestRejected(
        HTTPStatus.UNAUTHORIZED,
        "unauthorized",
        subcode="key_not_valid",
        headers=CHALLENGE_HEADER if cookie is None else CHALLENGE_HEADER | {"Set-Cookie": cookie},
    )


def clear_cookie_header(request: Request) -> str:
    """Return the `Set-Cookie` header that makes a browser delete the key."""
    response = Response()
    response.delete_cookie(KEY_COOKIE, path="/", httponly=True, samesite="strict", secure=request.url.scheme == "https")
    return response.headers["Set-Cookie"]


def open_service(request: Request, caller: Annotated[Caller, Depends(authenticate)]) -> LocalService:
    request.state.caller = caller
    return LocalService(get_server_state(request).library, caller)


Service = Annotated[LocalService, Depends(open_service)]


def _read_secret(request: Request) -> str | None:
    """Return the key of a request without checking its format.

    A header wins over the cookie. A server that needs no key ignores the cookie: browsers send cookies to every port of
    a host, so it may belong to another server.
    """
    given = key_in_headers(request.headers)
    if given is not None or KEY_COOKIE not in request.cookies:
        return given
    return request.cookies[KEY_COOKIE] if key_required(request) else None
