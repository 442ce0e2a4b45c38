"""Generates handlers from the rows of `holdfast.service.routes`. Each calls one service method."""

from __future__ import annotations

from inspect import Parameter, Signature
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Path, Query, Response
from fastapi.routing import APIRoute

from holdfast.api.auth import Service
from holdfast.api.bases import job_path
from holdfast.api.idempotency import IdempotentRoute
from holdfast.service.routes import PATH_PARAMS, ROUTES
from holdfast.service.schemas import BulkSummary, Reply

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.service.routes import Route


def make_router() -> APIRouter:
    """Return a router with a handler for every row of the table, except rows with `by_hand`."""
    router = APIRouter()
    for tag, routes in ROUTES.items():
        for route in routes:
            if not route.by_hand:
                router.add_api_route(
                    route.path,
                    _make_endpoint(route),
                    methods=[route.verb],
                    name=route.name,
                    tags=[tag],
                    status_code=route.status,
                    response_model=route.returns,
                    route_class_override=IdempotentRoute if route.repeatable else APIRoute,
                )
    return router


def _make_endpoint(route: Route) -> Callable[..., Any]:
    """Return a function whose signature declares the parameters to FastAPI."""

    def endpoint(service: Service, response: Response, **given: Any) -> Any:
        if route.body is not None:
            body = given.pop("body")
            given |= {name: getattr(body, name) for name in route.body.model_fields}
        in_path = [given.pop(name) for name in route.path_names]
        named = {route.arguments.get(name, name): value for name, value in given.items()}
        result = attrgetter(route.call)(service)(*in_path, **named)
        jobs = [result.job] if isinstance(result, Reply) else result.jobs if isinstance(result, BulkSummary) else []
        if len(jobs) == 1 and jobs[0] is not None:
            response.headers["Location"] = job_path(jobs[0])
        return result

    params = PATH_PARAMS | {param.name: param for param in route.params}
    in_path = [_declare(name, params[name].type, Path(**params[name].limits)) for name in route.path_names]
    in_query = [
        _declare(param.name, param.type, Query(param.default, **param.limits))
        for param in route.params
        if param.name not in route.path_names
    ]
    body = [_declare("body", route.body)] if route.body else []
    given = [_declare("service", Service), _declare("response", Response)]
    endpoint.__signature__ = Signature([*given, *in_path, *in_query, *body])  # type: ignore[attr-defined]
    endpoint.__doc__ = route.method.__doc__
    return endpoint


def _declare(name: str, annotation: Any, default: Any = Parameter.empty) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, annotation=annotation, default=default)
