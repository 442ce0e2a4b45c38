"""Who asks: the key of a request, and the library as that caller sees it.

No key is needed on this machine alone, until the first key is made. What needs one and has none, or a wrong one, is
told nothing but that.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated

from fastapi import Depends, Request

from holdfast.access.callers import EVERYBODY_HERE, Caller
from holdfast.api.problems import Refused
from holdfast.front.local import Local

if TYPE_CHECKING:
    from holdfast.api.app import Served

CHALLENGE = {"WWW-Authenticate": 'Bearer realm="holdfast"'}


def served(request: Request) -> Served:
    """Return what the server serves."""
    found: Served = request.app.state.served
    return found


def caller(request: Request) -> Caller:
    """Return who asks, or refuse."""
    here = served(request)
    secret = _secret(request)
    if secret is None:
        if here.needs_key or here.library.keys.exist():
            raise Refused(
                HTTPStatus.UNAUTHORIZED,
                "This server needs a key. Send it as `Authorization: Bearer hf_…` or as `X-API-Key`.",
                headers=CHALLENGE,
            )
        return EVERYBODY_HERE
    key = here.library.keys.verify(secret)
    if key is None:
        raise Refused(
            HTTPStatus.UNAUTHORIZED,
            "This key is not known, was revoked or has expired. Make a new one with `holdfast keys create`.",
            headers=CHALLENGE,
        )
    return key.caller


def front(request: Request, who: Annotated[Caller, Depends(caller)]) -> Local:
    """Return the library as the caller sees it."""
    request.state.caller = who
    return Local(served(request).library, who)


Front = Annotated[Local, Depends(front)]


def _secret(request: Request) -> str | None:
    """Return the key that a request brings; one in a wrong form is still one."""
    given = request.headers.get("x-api-key")
    if given is not None:
        return given
    scheme, _, secret = request.headers.get("authorization", "").partition(" ")
    return secret.strip() if scheme.lower() == "bearer" else None
