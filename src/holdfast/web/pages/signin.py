"""Signing in: for servers that need a key."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import RedirectResponse, Response

from holdfast.api.auth import known, locked
from holdfast.web.render import paint

router = APIRouter()

HOME = "/"
# A path of this site. Browsers read a backslash as a slash and leave out tabs and breaks, so none may be in it.
INSIDE = re.compile(r"/(?!/)[^\\\x00-\x20\x7f]*")


@router.get("/signin")
def signin_page(request: Request, next: Annotated[str, Query(max_length=4000)] = HOME) -> Response:  # noqa: A002 - the name in the address
    """Ask for a key; whoever has shown one, or needs none, goes on."""
    target = inside(next)
    if known(request) is not None or not locked(request):
        return RedirectResponse(target, HTTPStatus.SEE_OTHER)
    return paint(request, "signin.html", script={"next": target})


def inside(wanted: str) -> str:
    """Return where to go on: only ever a page of this site, and not this one again."""
    return wanted if INSIDE.fullmatch(wanted) and not wanted.startswith("/signin") else HOME
