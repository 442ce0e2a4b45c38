"""Who asks: the key of a request, and the library as that caller sees it.

No key is needed on this machine alone, until the first key is made. What needs one and has none, or a wrong one, is
told nothing but that.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated

from fastapi import Depends, Request, Response

from holdfast.api.middleware import COOKIE, by_header
from holdfast.api.problems import Refused
from holdfast.auth import EVERYBODY_HERE, Caller
from holdfast.service.local import Local

if TYPE_CHECKING:
    from holdfast.api.app import Served
    from holdfast.api.stream_limits import Streams
    from holdfast.auth import Key

CHALLENGE = {"WWW-Authenticate": 'Bearer realm="holdfast"'}


def served(request: Request) -> Served:
    """Return what the server serves."""
    found: Served = request.app.state.served
    return found


def streams_of(request: Request) -> Streams:
    """Return the count of the event streams of this process."""
    found: Streams = request.app.state.streams
    return found


def caller(request: Request) -> Caller:
    """Return who asks, or refuse."""
    secret = _secret(request)
    if secret is None:
        if locked(request):
            raise Refused(
                HTTPStatus.UNAUTHORIZED,
                "This server needs a key. Send it as `Authorization: Bearer hf_…` or as `X-API-Key`.",
                headers=CHALLENGE,
            )
        return EVERYBODY_HERE
    key = served(request).library.keys.verify(secret)
    if key is None:
        raise unknown_key(None if by_header(request.headers) else forgotten(request))
    return key.caller


def known(request: Request) -> Key | None:
    """Return the key that a request shows, if it opens anything."""
    secret = _secret(request)
    return None if secret is None else served(request).library.keys.verify(secret)


def locked(request: Request) -> bool:
    """Tell whether a key is needed."""
    here = served(request)
    return here.needs_key or here.library.keys.exist()


def unknown_key(cookie: str | None = None) -> Refused:
    """Say that a key opens nothing; with a cookie that held it, let the browser forget that, too."""
    return Refused(
        HTTPStatus.UNAUTHORIZED,
        "This key is not known, was revoked or has expired. Make a new one with `holdfast keys create`.",
        headers=CHALLENGE if cookie is None else CHALLENGE | {"Set-Cookie": cookie},
    )


def forgotten(request: Request) -> str:
    """Return the header by which a browser forgets the key."""
    answer = Response()
    answer.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict", secure=request.url.scheme == "https")
    return answer.headers["Set-Cookie"]


def front(request: Request, who: Annotated[Caller, Depends(caller)]) -> Local:
    """Return the library as the caller sees it."""
    request.state.caller = who
    return Local(served(request).library, who)


Front = Annotated[Local, Depends(front)]


def _secret(request: Request) -> str | None:
    """Return the key that a request brings; one in a wrong form is still one.

    A header goes before the cookie. Where no key is needed a cookie says nothing: it may be that of another server,
    since browsers send cookies to every port of a host.
    """
    given = by_header(request.headers)
    if given is not None or COOKIE not in request.cookies:
        return given
    return request.cookies[COOKIE] if locked(request) else None
