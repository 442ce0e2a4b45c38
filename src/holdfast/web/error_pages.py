"""Error pages for browsers.

The API answers every error with problem+json. A browser that navigates to an address accepts text/html; this
middleware then replaces the body with a page in the reader's language, with navigation. Status and headers stay.
"""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse

from holdfast.api import PROBLEM_JSON
from holdfast.api.auth import authenticate, open_service
from holdfast.errors import HoldfastError
from holdfast.service.schemas import Problem
from holdfast.web.render import render_page

if TYPE_CHECKING:
    from typing import Any

    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from holdfast.service.schemas import Base

HTML_TYPE = "text/html"
JSON_TYPES = ("application/json", PROBLEM_JSON)
REPLACED_HEADERS = {"content-type", "content-length", "cache-control"}
# Errors of requests that passed all checks. Pages for other errors name no base: a request for another host may come
# from a page of another site (DNS rebinding).
STATUSES_AFTER_CHECKS = {
    HTTPStatus.NOT_FOUND,
    HTTPStatus.CONFLICT,
    HTTPStatus.UNPROCESSABLE_ENTITY,
    HTTPStatus.METHOD_NOT_ALLOWED,
}


class ErrorPageMiddleware:
    """Answers a browser with a page where an API client gets problem+json."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "GET" or not prefers_html(Headers(scope=scope)):
            await self._app(scope, receive, send)
            return
        problem: Message | None = None
        body = b""

        async def send_page(message: Message) -> None:
            nonlocal problem, body
            if message["type"] == "http.response.start" and _is_problem(message):
                problem = message
            elif problem is None:
                await send(message)
            else:
                body += message.get("body", b"")
                if not message.get("more_body"):
                    page = await run_in_threadpool(_render_error, Request(scope), problem, json.loads(body))
                    await page(scope, receive, send)

        await self._app(scope, receive, send_page)


def prefers_html(headers: Headers) -> bool:
    """Check whether a request names HTML and prefers it to JSON. Programs send `*/*`, which names neither."""
    weights: dict[str, float] = {}
    for part in headers.get("accept", "").lower().split(","):
        name, *parameters = (one.strip() for one in part.split(";"))
        weights[name] = next((_parse_weight(one[2:]) for one in parameters if one.startswith("q=")), 1.0)
    return weights.get(HTML_TYPE, 0.0) > max(weights.get(name, 0.0) for name in JSON_TYPES)


def _parse_weight(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def _is_problem(start: Message) -> bool:
    return Headers(raw=start["headers"]).get("content-type", "").startswith(PROBLEM_JSON)


def _render_error(request: Request, start: Message, problem: dict[str, Any]) -> Response:
    """Return the page of a problem, or a redirect to the sign-in page if the browser needs a key."""
    status = problem["status"]
    page: Response
    if status == HTTPStatus.UNAUTHORIZED:
        here = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        page = RedirectResponse(f"/signin?{urlencode({'next': here})}", HTTPStatus.SEE_OTHER)
    else:
        bases = _list_visible_bases(request) if status in STATUSES_AFTER_CHECKS else []
        code = problem["subcode"] or problem["code"]
        if code == "no_such_address":  # the API's message is for programs
            shown = Problem(code="no_such_page", message="")
        else:
            shown = Problem(code=code, message=problem["detail"], params=problem["params"])
        page = render_page(
            request, "problem.html", status=status, bases=bases, problem=shown, id_=problem["request_id"]
        )
    for name, value in Headers(raw=start["headers"]).items():
        if name not in REPLACED_HEADERS and name not in page.headers:
            page.headers.append(name, value)
    return page


def _list_visible_bases(request: Request) -> list[Base]:
    """Return the bases that the caller may see, for the navigation."""
    try:
        return open_service(request, authenticate(request)).bases.list()
    except (HoldfastError, HTTPException):
        return []
