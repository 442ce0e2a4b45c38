"""`/bases`: collections of documents that are searched together."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Path, Response, status
from pydantic import BaseModel, ConfigDict, Field

from holdfast.api.auth import Service
from holdfast.api.idempotency import IdempotentRoute
from holdfast.service.schemas import Base, BaseUsage, DocumentCounts, OnDuplicate, WaitingJob

router = APIRouter(prefix="/bases", tags=["bases"], route_class=IdempotentRoute)

ItemId = Annotated[int, Field(ge=1, lt=2**63)]
BaseName = Annotated[str, Path(description="the name of a base", max_length=200)]


class BaseSettingsBody(BaseModel):
    """How a base is set; what is left out stays as it is."""

    model_config = ConfigDict(extra="forbid")

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
        """Return what was named, and null only where that means something."""
        named = self.model_dump(exclude_unset=True, exclude={"name"})
        return {
            key: value for key, value in named.items() if value is not None or key in ("budget_tokens", "jobs_per_day")
        }


class CreateBaseRequest(BaseSettingsBody):
    """A base to be made."""

    name: str = Field(min_length=1, max_length=200)


class UpdateBaseRequest(BaseSettingsBody):
    """What is to be different in a base."""

    name: str | None = Field(None, min_length=1, max_length=200, description="another name")


@router.get("")
def list_bases(front: Service) -> list[Base]:
    """Return the bases that the key may see, by name."""
    return front.bases.list()


@router.post("", status_code=status.HTTP_201_CREATED)
def create_base(front: Service, base: CreateBaseRequest, response: Response) -> Base:
    """Make a base."""
    made = front.bases.create(base.name, **base.to_settings())
    response.headers["Location"] = base_path(made.name)
    return made


@router.get("/{base}")
def get_base(front: Service, base: BaseName) -> Base:
    """Return a base, with what it wants and cannot have, and how far its documents follow its settings."""
    return front.bases.get(base)


@router.patch("/{base}")
def change_base(front: Service, base: BaseName, changes: UpdateBaseRequest) -> Base:
    """Set a base otherwise; its documents follow in the background, and what they have is served until then."""
    given = changes.to_settings()
    if given:
        return front.bases.change(base, to=changes.name, **given)
    return front.bases.get(base) if changes.name is None else front.bases.rename(base, changes.name)


@router.delete("/{base}", status_code=status.HTTP_202_ACCEPTED)
def delete_base(front: Service, base: BaseName) -> None:
    """Delete a base with all that is in it; its name is free at once, the rest goes in the background."""
    front.bases.delete(base)


@router.post("/{base}:clear", status_code=status.HTTP_202_ACCEPTED)
def clear_base(front: Service, base: BaseName) -> None:
    """Delete all documents of a base; name and settings stay."""
    front.bases.clear(base)


@router.post("/{base}:repair", status_code=status.HTTP_202_ACCEPTED)
def repair_base(front: Service, base: BaseName) -> Base:
    """Try again what made a base fail, and build what is missing."""
    return front.bases.repair(base)


@router.get("/{base}/counts")
def count_documents(front: Service, base: BaseName) -> DocumentCounts:
    """Count the documents of a base by their status."""
    return front.bases.counts(base)


@router.get("/{base}/usage")
def read_usage(front: Service, base: BaseName) -> BaseUsage:
    """Tell what a base has paid, and what it was spared because an answer was known."""
    return front.accounts.usage(base)


@router.get("/{base}/waiting")
def list_waiting(front: Service, base: BaseName) -> list[WaitingJob]:
    """Tell of each job that has not ended why it has not."""
    return front.accounts.waiting(base)


def base_path(name: str) -> str:
    """Return where a base is found."""
    return f"/api/v1/bases/{quote(name, safe='')}"
