"""Who asks: the key of a request, and the library as that caller sees it.

No key is needed on this machine alone, until the first key is made. What needs one and has none, or a wrong one, is
told nothing but that.
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
    """Return what the server serves."""
    found: ServerState = request.app.state.served
    return found


def get_stream_limits(request: Request) -> StreamLimits:
    """Return the count of the event streams of this process."""
    found: StreamLimits = request.app.state.streams
    return found


def authenticate(request: Request) -> Caller:
    """Return who asks, or refuse."""
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
    """Return the key that a request shows, if it opens anything."""
    secret = _read_secret(request)
    return None if secret is None else get_server_state(request).library.keys.verify(secret)


def key_required(request: Request) -> bool:
    """Tell whether a key is needed."""
    here = get_server_state(request)
    return here.needs_key or here.library.keys.any_created()


def unknown_key(cookie: str | None = None) -> RequestRejected:
    """Say that a key opens nothing; with a cookie that held it, let the browser forget that, too."""
    return RequestRejected(
        HTTPStatus.UNAUTHORIZED,
        "This key is not known, was revoked or has expired. Make a new one with `holdfast keys create`.",
        headers=CHALLENGE_HEADER if cookie is None else CHALLENGE_HEADER | {"Set-Cookie": cookie},
    )


def clear_cookie_header(request: Request) -> str:
    """Return the header by which a browser forgets the key."""
    answer = Response()
    answer.delete_cookie(KEY_COOKIE, path="/", httponly=True, samesite="strict", secure=request.url.scheme == "https")
    return answer.headers["Set-Cookie"]


def open_service(request: Request, who: Annotated[Caller, Depends(authenticate)]) -> LocalService:
    """Return the library as the caller sees it."""
    request.state.caller = who
    return LocalService(get_server_state(request).library, who)


Service = Annotated[LocalService, Depends(open_service)]


def _read_secret(request: Request) -> str | None:
    """Return the key that a request brings; one in a wrong form is still one.

    A header goes before the cookie. Where no key is needed a cookie says nothing: it may be that of another server,
    since browsers send cookies to every port of a host.
    """
    given = key_in_headers(request.headers)
    if given is not None or KEY_COOKIE not in request.cookies:
        return given
    return request.cookies[KEY_COOKIE] if key_required(request) else None
