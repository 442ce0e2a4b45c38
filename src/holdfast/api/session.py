"""The routes of `/session`: they store the key of a browser in a cookie that scripts cannot read.

Browsers send a cookie with every request, so a request with a cookie may only change something if it comes from a page
of this server; `middleware.py` checks that.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field

from holdfast.api.auth import clear_cookie_header, find_valid_key, get_server_state, key_required, unknown_key
from holdfast.api.middleware import KEY_COOKIE
from holdfast.service.http_models import RequestBody

router = APIRouter(prefix="/session", tags=["session"])


class SignInRequest(RequestBody):
    """The key to sign in with."""

    key: Annotated[str, Field(min_length=1, max_length=200, description="Secret of a key.")]


class Session(BaseModel):
    """Whether the server needs a key, and what the key of the request allows."""

    needs_key: bool
    signed_in: bool = Field(description="Whether the request has a valid key.")
    scope: str | None = Field(description="`read`, `write` or `admin`; null: the server needs a key.")
    name: str = Field(description="Name of the key; empty without a key.")


@router.get("")
def read_session(request: Request, response: Response) -> Session:
    """Return whether the server needs a key, and what the key of the request allows. Works without a key."""
    key = find_valid_key(request)
    needed = key_required(request)
    if key is not None:
        return Session(needs_key=needed, signed_in=True, scope=str(key.scope), name=key.name)
    if needed and KEY_COOKIE in request.cookies:
        response.headers["Set-Cookie"] = clear_cookie_header(request)
    return Session(needs_key=needed, signed_in=False, scope=None if needed else "admin", name="")


@router.post("", status_code=HTTPStatus.NO_CONTENT)
def sign_in(request: Request, response: Response, body: SignInRequest) -> None:
    """Store a key in a cookie until the browser is closed. The server rejects a key that is not valid."""
    if get_server_state(request).library.keys.verify(body.key) is None:
        raise unknown_key()
    response.set_cookie(
        KEY_COOKIE, body.key, path="/", httponly=True, samesite="strict", secure=request.url.scheme == "https"
    )


@router.delete("", status_code=HTTPStatus.NO_CONTENT)
def sign_out(request: Request, response: Response) -> None:
    """Delete the cookie. The key itself stays valid."""
    response.headers["Set-Cookie"] = clear_cookie_header(request)
