"""`/session`: a key that a browser keeps in a cookie, out of the reach of scripts.

A cookie travels by itself, so whatever changes something by it must come from a page of this server (see `doors`).
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from holdfast.api.auth import forgotten, known, locked, served, unknown_key
from holdfast.api.middleware import COOKIE

router = APIRouter(prefix="/session", tags=["session"])


class SignIn(BaseModel):
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
    key = known(request)
    needed = locked(request)
    if key is not None:
        return Session(needs_key=needed, signed_in=True, scope=str(key.scope), name=key.name)
    if needed and COOKIE in request.cookies:
        response.headers["Set-Cookie"] = forgotten(request)
    return Session(needs_key=needed, signed_in=False, scope=None if needed else "admin", name="")


@router.post("", status_code=HTTPStatus.NO_CONTENT)
def sign_in(request: Request, response: Response, wanted: SignIn) -> None:
    """Keep a key in a cookie of the browser, until it is closed; a wrong key is refused."""
    if served(request).library.keys.verify(wanted.key) is None:
        raise unknown_key()
    response.set_cookie(
        COOKIE, wanted.key, path="/", httponly=True, samesite="strict", secure=request.url.scheme == "https"
    )


@router.delete("", status_code=HTTPStatus.NO_CONTENT)
def sign_out(request: Request, response: Response) -> None:
    """Let the browser forget the key; the key itself stays valid."""
    response.headers["Set-Cookie"] = forgotten(request)
