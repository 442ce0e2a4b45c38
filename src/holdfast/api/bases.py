"""`/bases`: collections of documents that are searched together."""

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

    indexes: list[str] | None = Field(None, description="which indexes its documents have", max_length=50)
    chunk_size: int | None = Field(None, description="tokens of a chunk, at most")
    chunk_overlap: int | None = Field(None, description="tokens that a chunk repeats of the one before")
    missing_share: float | None = Field(None, description="share of chunks that an index may lack and still be served")
    tenant: str | None = Field(None, description="bases of one tenant share paid answers", max_length=200)
    budget_tokens: int | None = Field(None, description="tokens that the base may spend; null: any number")
    jobs_per_day: int | None = Field(None, description="jobs that it may start in a day; null: any number")
    auto_index: bool | None = Field(None, description="whether what is added is indexed at once")
    on_duplicate: OnDuplicate | None = Field(None, description="what becomes of a name or content that is there")
    embedding: str | None = Field(None, description="who embeds: auto, or offline for this machine", max_length=50)
    chat: str | None = Field(None, description="which language model is asked: auto, or none", max_length=50)
    languages: list[str] | None = Field(None, description="of its documents, as in de; none: any", max_length=200)

    def to_settings(self) -> dict[str, Any]:
        """Return the settings that were sent; null counts only where it means "no limit"."""
        given = self.model_dump(exclude_unset=True, exclude={"name"})
        return {
            key: value for key, value in given.items() if value is not None or key in ("budget_tokens", "jobs_per_day")
        }


class CreateBaseRequest(BaseSettingsBody):
    """A base to create."""

    name: str = Field(min_length=1, max_length=200)


class UpdateBaseRequest(BaseSettingsBody):
    """Changes of a base."""

    name: str | None = Field(None, min_length=1, max_length=200, description="another name")


@router.post("", status_code=status.HTTP_201_CREATED)
def create_base(service: Service, base: CreateBaseRequest, response: Response) -> Base:
    """Create a base."""
    created = service.bases.create(base.name, **base.to_settings())
    response.headers["Location"] = base_path(created.name)
    return created


@router.patch("/{base}")
def change_base(service: Service, base: BaseName, changes: UpdateBaseRequest) -> Base:
    """Change settings or the name of a base; documents follow in the background and stay searchable."""
    settings = changes.to_settings()
    if settings:
        return service.bases.change(base, to=changes.name, **settings)
    return service.bases.get(base) if changes.name is None else service.bases.rename(base, changes.name)


def base_path(name: str) -> str:
    return f"/api/v1/bases/{quote(name, safe='')}"
