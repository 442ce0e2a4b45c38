"""The routes of `/bases`: collections of documents that are searched together."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Path, Response, status
from pydantic import Field

from holdfast.api.auth import Service
from holdfast.api.idempotency import IdempotentRoute
from holdfast.service.http_models import RequestBody
from holdfast.service.routes import PATH_PARAMS
from holdfast.service.schemas import Base, OnDuplicate

router = APIRouter(prefix="/bases", tags=["bases"], route_class=IdempotentRoute)

BaseName = Annotated[str, Path(**PATH_PARAMS["base"].limits)]


class BaseSettingsBody(RequestBody):
    """Settings of a base. A setting that is left out keeps its value."""

    indexes: list[str] | None = Field(
        None, description="Indexes of its documents, for example `vector`.", max_length=50
    )
    chunk_size: int | None = Field(None, description="Maximum number of tokens in a chunk.")
    chunk_overlap: int | None = Field(None, description="Tokens that a chunk repeats from the previous chunk.")
    missing_share: float | None = Field(
        None, description="Share of chunks, from 0 to 1, that may be missing in an index that search uses."
    )
    tenant: str | None = Field(None, description="Bases of one tenant share paid answers.", max_length=200)
    budget_tokens: int | None = Field(None, description="Tokens that the base may spend; null: no limit.")
    jobs_per_day: int | None = Field(None, description="Jobs that the base may start per day; null: no limit.")
    auto_index: bool | None = Field(None, description="Index new documents immediately.")
    on_duplicate: OnDuplicate | None = Field(
        None, description="What to do with an upload whose name or content already exists."
    )
    embedding: str | None = Field(
        None, description="Embedding model: `auto`, or `offline` for the model on this machine.", max_length=50
    )
    chat: str | None = Field(None, description="Language model: `auto` or `none`.", max_length=50)
    languages: list[str] | None = Field(
        None, description="Languages of its documents, for example `de`; empty: any.", max_length=200
    )

    def to_settings(self) -> dict[str, Any]:
        """Return the settings in the request. Null is ignored unless it means "no limit"."""
        given = self.model_dump(exclude_unset=True, exclude={"name"})
        return {
            key: value for key, value in given.items() if value is not None or key in ("budget_tokens", "jobs_per_day")
        }


class CreateBaseRequest(BaseSettingsBody):
    """A base to create."""

    name: str = Field(min_length=1, max_length=200)


class UpdateBaseRequest(BaseSettingsBody):
    """Changes to a base."""

    name: str | None = Field(None, min_length=1, max_length=200, description="New name of the base.")


@router.post("", status_code=status.HTTP_201_CREATED)
def create_base(service: Service, base: CreateBaseRequest, response: Response) -> Base:
    """Create a base."""
    created = service.bases.create(base.name, **base.to_settings())
    response.headers["Location"] = base_path(created.name)
    return created


@router.patch("/{base}", responses={202: {"description": "A job updates the documents.", "model": Base}})
def change_base(service: Service, base: BaseName, changes: UpdateBaseRequest, response: Response) -> Base:
    """Change the settings or the name of a base. Documents are updated in the background and stay searchable.

    If documents must be updated, the status is 202 and `Location` is the address of the job, which can be cancelled.
    """
    settings = changes.to_settings()
    if settings:
        changed = service.bases.change(base, to=changes.name, **settings)
        if changed.rollout_job is not None:
            response.status_code = status.HTTP_202_ACCEPTED
            response.headers["Location"] = job_path(changed.rollout_job)
        return changed
    return service.bases.get(base) if changes.name is None else service.bases.rename(base, changes.name)


def job_path(job: str) -> str:
    return f"/api/v1/jobs/{job}"


def base_path(name: str) -> str:
    return f"/api/v1/bases/{quote(name, safe='')}"
