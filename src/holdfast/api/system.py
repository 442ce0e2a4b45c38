"""The routes of `/about`, `/healthz`, `/readyz` and `/metrics`."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel

from holdfast import __version__
from holdfast.api.auth import Service, check_metrics_access, get_server_state, get_stream_limits
from holdfast.auth import Scope
from holdfast.metrics import Sample

router = APIRouter(tags=["system"])
health = APIRouter(tags=["system"])


class Setting(BaseModel):
    """A setting of the server with its current value."""

    name: str
    value: Any
    meaning: str


class About(BaseModel):
    """The server and the rights of the caller."""

    version: str
    scope: str
    bases_limited: bool
    settings: list[Setting]


class Health(BaseModel):
    """The health of the server."""

    status: str


@router.get("/about")
def read_about(service: Service, request: Request) -> About:
    """Return the version and the rights of the key; administrators also get the settings, without secrets."""
    caller = service.authorization.caller
    admin = caller.may(Scope.ADMIN) and caller.bases is None
    settings = get_server_state(request).settings
    return About(
        version=__version__,
        scope=str(caller.scope),
        bases_limited=caller.bases is not None,
        settings=[
            Setting(name=setting.name, value=_to_json(setting.value), meaning=setting.meaning)
            for setting in settings.describe()
            if admin and not setting.secret
        ],
    )


@health.get("/healthz", include_in_schema=False)
def is_alive() -> Health:
    return Health(status="ok")


@health.get("/readyz", include_in_schema=False)
def is_ready(request: Request) -> Health:
    get_server_state(request).library.catalog.bases()
    return Health(status="ok")


@health.get("/metrics", include_in_schema=False)
def read_metrics(request: Request) -> Response:
    check_metrics_access(request)
    streams = Sample("event_streams", get_stream_limits(request).count())
    metrics = get_server_state(request).library.metrics(lambda: [streams])
    rendered = metrics.render(request.headers.get("accept", ""))
    return Response(rendered.body, headers={"Content-Type": rendered.content_type, "Cache-Control": "no-store"})


def _to_json(value: Any) -> Any:
    return value if isinstance(value, int | float | None) else str(value)
