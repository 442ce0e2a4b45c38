"""The key of a request, and the service with the rights of its caller.

A server on this machine needs no key until the first key is created. A request without a valid key gets the same
response whatever it asks for.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated

from fastapi import Depends, Request, Response

from holdfast.api.middleware import KEY_COOKIE, key_in_headers
from holdfast.api.problems import RequestRejected
from holdfast.auth import KEYLESS_CALLER, Caller
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
    """Return the caller; raise if a key is needed and missing, or if the key is not valid."""
    secret = _read_secret(request)
    if secret is None:
        if key_required(request):
            raise RequestRejected(
                HTTPStatus.UNAUTHORIZED,
                "This server needs a key. Send it as `Authorization: Bearer hf_…` or as `X-API-Key`.",
                headers=CHALLENGE_HEADER,
            )
        return KEYLESS_CALLER
    key = get_server_state(request).library.keys.verify(secret)
    if key is None:
        raise unknown_key(None if key_in_headers(request.headers) else clear_cookie_header(request))
    return key.caller


def find_valid_key(request: Request) -> StoredKey | None:
    """Return the key of a request if it is valid."""
    secret = _read_secret(request)
    return None if secret is None else get_server_state(request).library.keys.verify(secret)


def key_required(request: Request) -> bool:
    state = get_server_state(request)
    return state.needs_key or state.library.keys.any_created()


def unknown_key(cookie: str | None = None) -> RequestRejected:
    """Return the response to a key that is not valid; with `cookie`, it also removes the cookie."""
    return RequestRejected(
        HTTPStatus.UNAUTHORIZED,
        "This key is not known, was revoked or has expired. Make a new one with `holdfast keys create`.",
        headers=CHALLENGE_HEADER if cookie is None else CHALLENGE_HEADER | {"Set-Cookie": cookie},
    )


def clear_cookie_header(request: Request) -> str:
    """Return the header that makes a browser delete the key."""
    response = Response()
    response.delete_cookie(KEY_COOKIE, path="/", httponly=True, samesite="strict", secure=request.url.scheme == "https")
    return response.headers["Set-Cookie"]


def open_service(request: Request, caller: Annotated[Caller, Depends(authenticate)]) -> LocalService:
    request.state.caller = caller
    return LocalService(get_server_state(request).library, caller)


Service = Annotated[LocalService, Depends(open_service)]


def _read_secret(request: Request) -> str | None:
    """Return the key of a request, also one in a wrong format.

    A header wins over the cookie. A server that needs no key ignores the cookie: browsers send cookies to every port of
    a host, so it may belong to another server.
    """
    given = key_in_headers(request.headers)
    if given is not None or KEY_COOKIE not in request.cookies:
        return given
    return request.cookies[KEY_COOKIE] if key_required(request) else None
