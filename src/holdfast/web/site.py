"""Installs the pages in the server's app."""

from __future__ import annotations

from http import HTTPStatus
from importlib.resources import files
from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.staticfiles import StaticFiles

from holdfast.messages import LANGUAGES
from holdfast.web.error_pages import ErrorPageMiddleware
from holdfast.web.i18n import encode_translations
from holdfast.web.pages import (
    activity,
    cards,
    document,
    documents,
    graph,
    overview,
    queue,
    search,
    settings,
    signin,
)

if TYPE_CHECKING:
    from fastapi import FastAPI
    from starlette.types import Scope

PAGE_ROUTERS = (
    overview.router,
    documents.router,
    document.router,
    search.router,
    graph.router,
    cards.router,
    queue.router,
    activity.router,
    settings.router,
    signin.router,
)


CACHE_FOREVER = {"Cache-Control": "public, max-age=31536000, immutable"}


def install_pages(app: FastAPI) -> None:
    """Add pages, scripts and styles to an app, and error pages for browsers."""
    app.add_middleware(ErrorPageMiddleware)
    for router in PAGE_ROUTERS:
        app.include_router(router, include_in_schema=False)
    app.get("/words/{language}.json", include_in_schema=False)(get_translations)
    app.mount("/static", RevalidatedStaticFiles(directory=str(files("holdfast.web").joinpath("static"))), name="static")


def get_translations(language: str) -> Response:
    if language not in LANGUAGES:
        raise HTTPException(HTTPStatus.NOT_FOUND)
    return Response(encode_translations(language), media_type="application/json", headers=CACHE_FOREVER)


class RevalidatedStaticFiles(StaticFiles):
    """Static files that browsers cache and revalidate each time, so that versions are never mixed."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        answer = await super().get_response(path, scope)
        answer.headers["Cache-Control"] = "no-cache"
        return answer
