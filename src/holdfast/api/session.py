"""`/session`: a key that a browser keeps in a cookie, out of the reach of scripts.

A cookie travels by itself, so whatever changes something by it must come from a page of this server (see `doors`).
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from holdfast.api.auth import clear_cookie_header, find_valid_key, get_server_state, key_required, unknown_key
from holdfast.api.middleware import KEY_COOKIE

router = APIRouter(prefix="/session", tags=["session"])


class SignInRequest(BaseModel):
    """A key to be kept."""

    model_config = ConfigDict(extra="forbid")

    key: Annotated[str, Field(min_length=1, max_length=200, description="the secret of a key")]


class Session(BaseModel):
    """Whether a key is needed here, and whose is shown."""

    needs_key: bool
    signed_in: bool = Field(description="the request shows a key that is known")
    scope: str | None = Field(description="what may be done: read, write or admin; null: nothing without a key")
    name: str = Field(description="of the key; empty where none is shown")


@router.get("")
def read_session(request: Request, response: Response) -> Session:
    """Tell whether a key is needed, and what the one that is shown allows; answered without a key, too."""
    key = find_valid_key(request)
    needed = key_required(request)
    if key is not None:
        return Session(needs_key=needed, signed_in=True, scope=str(key.scope), name=key.name)
    if needed and KEY_COOKIE in request.cookies:
        response.headers["Set-Cookie"] = clear_cookie_header(request)
    return Session(needs_key=needed, signed_in=False, scope=None if needed else "admin", name="")


@router.post("", status_code=HTTPStatus.NO_CONTENT)
def sign_in(request: Request, response: Response, wanted: SignInRequest) -> None:
    """Keep a key in a cookie of the browser, until it is closed; a wrong key is refused."""
    if get_server_state(request).library.keys.verify(wanted.key) is None:
        raise unknown_key()
    response.set_cookie(
        KEY_COOKIE, wanted.key, path="/", httponly=True, samesite="strict", secure=request.url.scheme == "https"
    )


@router.delete("", status_code=HTTPStatus.NO_CONTENT)
def sign_out(request: Request, response: Response) -> None:
    """Let the browser forget the key; the key itself stays valid."""
    response.headers["Set-Cookie"] = clear_cookie_header(request)
