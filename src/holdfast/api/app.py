"""Builds the application: all routes, the middleware and the OpenAPI description."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from threading import Event
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, FastAPI
from fastapi.openapi.utils import get_openapi

from holdfast import __version__
from holdfast.api import (
    PROBLEM_JSON,
    access,
    archives,
    bases,
    cards,
    documents,
    events,
    forward,
    jobs,
    problems,
    search,
    session,
    system,
)
from holdfast.api.connections import ConnectionLimits
from holdfast.api.examples import add_examples
from holdfast.api.middleware import KEY_COOKIE, LOOPBACK_HOSTS, RequestChecksMiddleware
from holdfast.api.stream_limits import StreamLimits
from holdfast.tracing import NO_TRACER

if TYPE_CHECKING:
    from fastapi.routing import APIRoute
    from starlette.routing import BaseRoute

    from holdfast.events import Feed
    from holdfast.settings import Settings
    from holdfast.tracing import Tracer
    from holdfast.wiring import Library

API_PREFIX = "/api/v1"
ROUTERS = (
    forward.make_router(),
    bases.router,
    documents.router,
    search.router,
    cards.router,
    archives.router,
    jobs.router,
    events.router,
    access.keys,
    access.webhooks,
    session.router,
    system.router,
)
MEGABYTE = 1_000_000

# Error responses that any route may return.
PROBLEM_DESCRIPTIONS = {
    "400": "The body is malformed.",
    "401": "The API key is missing or not valid.",
    "402": "The budget of the base is spent.",
    "403": "The API key does not permit this, or the request comes from another web site.",
    "404": "The object does not exist, or the API key may not see it.",
    "409": "The current state does not allow this; a conflict names the job or the document.",
    "412": "The document has changed.",
    "413": "The request is too large.",
    "415": "The content type of the body is not supported.",
    "421": "The server does not accept requests for this host.",
    "422": "The request is not valid.",
    "429": "A limit is reached; retry later.",
    "502": "A provider failed.",
    "503": "Temporarily unavailable; retry soon.",
    "507": "The disk is full.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerState:
    library: Library
    settings: Settings
    feed: Feed
    needs_key: bool
    tracer: Tracer = NO_TRACER
    draining: Event = field(default_factory=Event)  # set when the server shuts down


def make_app(served: ServerState) -> FastAPI:
    app = FastAPI(
        title="Holdfast",
        version=__version__,
        summary="Indexes every document once, keeps what it indexed, and never lets old work overwrite new.",
        openapi_url=f"{API_PREFIX}/openapi.json",
        docs_url=None,
        generate_unique_id_function=_operation_id,
        redoc_url=None,
    )
    app.state.served = served
    app.state.streams = StreamLimits(
        connections=ConnectionLimits.for_process().connections,
        most=served.settings.streams,
        per_key=served.settings.streams_per_key,
    )
    problems.add_exception_handlers(app)
    app.router.routes.extend(_build_routes())
    named = {name.strip() for name in served.settings.hosts.split(",") if name.strip()}
    app.add_middleware(
        RequestChecksMiddleware,
        hosts=None if served.needs_key and not named else LOOPBACK_HOSTS | named,
        largest=served.settings.upload_limit * MEGABYTE,
        draining=served.draining,
        tracer=served.tracer,
    )
    app.openapi = lambda: _build_openapi(app)  # type: ignore[method-assign]
    return app


@cache
def _build_routes() -> list[BaseRoute]:
    """Return all routes. They are cached, because they are slow to create and the same for every application."""
    app = FastAPI(openapi_url=None, generate_unique_id_function=_operation_id)
    api = APIRouter(prefix=API_PREFIX)
    for router in ROUTERS:
        api.include_router(router)
    app.include_router(api)
    app.include_router(system.health)
    return app.router.routes


def _operation_id(route: APIRoute) -> str:
    return route.name


def _build_openapi(app: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI description with examples, and with the problem responses of every route."""
    if app.openapi_schema is None:
        described = get_openapi(title=app.title, version=app.version, summary=app.summary, routes=app.routes)
        schemas = described["components"]["schemas"]
        for name in ("HTTPValidationError", "ValidationError"):
            schemas.pop(name, None)
        schemas |= _build_problem_schemas()
        problem = {PROBLEM_JSON: {"schema": {"$ref": "#/components/schemas/ProblemDetails"}}}
        for route in described["paths"].values():
            for operation in route.values():
                add_examples(operation, schemas)
                operation["responses"] |= {
                    code: {"description": text, "content": problem} for code, text in PROBLEM_DESCRIPTIONS.items()
                }
        described["components"]["securitySchemes"] = {
            "bearer": {"type": "http", "scheme": "bearer"},
            "key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
            "session": {"type": "apiKey", "in": "cookie", "name": KEY_COOKIE},
        }
        described["security"] = [{"bearer": []}, {"key": []}, {"session": []}, {}]
        app.openapi_schema = described
    return app.openapi_schema


def _build_problem_schemas() -> dict[str, Any]:
    from pydantic import TypeAdapter  # noqa: PLC0415

    schema = TypeAdapter(problems.ProblemDetails).json_schema(ref_template="#/components/schemas/{model}")
    return {**schema.pop("$defs", {}), "ProblemDetails": schema}
