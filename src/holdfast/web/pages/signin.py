"""Sign-in, for servers that require a key."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import RedirectResponse, Response

from holdfast.api.auth import find_valid_key, key_required
from holdfast.web.render import render_page

router = APIRouter()

HOME = "/"
# A path of this site. Browsers read a backslash as a slash and drop tabs and line breaks, so none is allowed.
LOCAL_PATH = re.compile(r"/(?!/)[^\\\x00-\x20\x7f]*")


@router.get("/signin")
def signin_page(request: Request, next: Annotated[str, Query(max_length=4000)] = HOME) -> Response:  # noqa: A002 - the name in the address
    """Ask for a key. A caller with a valid key, or without need for one, is redirected."""
    target = restrict_to_site(next)
    if find_valid_key(request) is not None or not key_required(request):
        return RedirectResponse(target, HTTPStatus.SEE_OTHER)
    return render_page(request, "signin.html", script={"next": target})


def restrict_to_site(wanted: str) -> str:
    """Return the wanted path if it is on this site and not the sign-in page, else the home page."""
    return wanted if LOCAL_PATH.fullmatch(wanted) and not wanted.startswith("/signin") else HOME
