"""`/settings`, `/doctor`, and whether the server is well."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel

from holdfast import __version__
from holdfast.api.auth import Service, get_server_state
from holdfast.auth import Scope
from holdfast.service.schemas import ErasureStatus, Finding

router = APIRouter(tags=["system"])
health = APIRouter(tags=["system"])


class Setting(BaseModel):
    """One setting of the server, as it holds now."""

    name: str
    value: Any
    meaning: str


class About(BaseModel):
    """What serves."""

    version: str
    scope: str
    bases_limited: bool
    settings: list[Setting]


class Health(BaseModel):
    """Whether the server is well."""

    status: str


@router.get("/about")
def read_about(front: Service, request: Request) -> About:
    """Tell the version, what the key may do, and for administrators the settings; secrets are never told."""
    caller = front.authorization.caller
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


@router.post("/doctor")
def run_doctor(
    front: Service,
    fix: Annotated[bool, Query(description="repair what can be")] = False,
    deep: Annotated[bool, Query(description="also read every file")] = False,
) -> list[Finding]:
    """Compare every store with what should be there."""
    return front.accounts.doctor(fix=fix, deep=deep)


@router.get("/erasure")
def read_erasure(front: Service) -> ErasureStatus:
    """Tell how much of the deleted data is removed from the disk."""
    return front.accounts.erasure()


@router.post("/erasure")
def erase(front: Service) -> ErasureStatus:
    """Remove deleted data from the disk now, in both stages."""
    return front.accounts.erase()


@health.get("/healthz", include_in_schema=False)
def is_alive() -> Health:
    """Tell that the process answers."""
    return Health(status="ok")


@health.get("/readyz", include_in_schema=False)
def is_ready(request: Request) -> Health:
    """Tell that the database answers."""
    get_server_state(request).library.bases.list()
    return Health(status="ok")


def _to_json(value: Any) -> Any:
    return value if isinstance(value, int | float | None) else str(value)
