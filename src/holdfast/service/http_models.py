"""Bodies of requests and responses that only HTTP has; the server and the client share them.

The fields of a request body of a route in `routes.py` are the arguments of its service method.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from holdfast.auth import Scope
from holdfast.service.schemas import Hit, Mode, Notice, Reply

MAX_IDS = 1000
ItemId = Annotated[int, Field(ge=1, lt=2**63)]
BaseNames = Annotated[
    list[str] | None, Field(description="names of bases; null: all, also later ones", max_length=1000)
]


class RequestBody(BaseModel):
    """A JSON body. The server rejects unknown fields."""

    model_config = ConfigDict(extra="forbid")


class PreviewFolderRequest(RequestBody):
    """A folder of the server."""

    path: str = Field(min_length=1, max_length=4000)


class DocumentStatusesRequest(RequestBody):
    """Ids of documents."""

    documents: list[ItemId] = Field(max_length=MAX_IDS)


class AskRequest(RequestBody):
    """A question."""

    question: str = Field(max_length=10_000)
    mode: Mode = Mode.MIX


class PriorityRequest(RequestBody):
    """A priority."""

    priority: int = Field(ge=0, le=9, description="0 is served first, 9 last")


class CancelJobsRequest(RequestBody):
    """Which jobs to cancel."""

    base: str | None = Field(None, description="only of this base; null: of all", max_length=200)
    dry_run: bool = Field(False, description="count, and change nothing")


class RetryJobsRequest(CancelJobsRequest):
    """What to retry."""

    degraded: bool = Field(False, description="also documents that lack something")


class CreateKeyRequest(RequestBody):
    """A key to create."""

    name: str = Field(min_length=1, max_length=200)
    scope: Scope | None = Field(
        None, description="null: `admin` for the first key of a server that is not limited to bases, else `read`"
    )
    bases: BaseNames = None
    days: int | None = Field(None, ge=1, le=36_500, description="after which it opens nothing; null: never")


class Replies(BaseModel):
    """One reply for each file or document, in order."""

    replies: list[Reply]


class SearchResponse(BaseModel):
    """The result of a search."""

    hits: list[Hit]
    took_ms: float
    notices: list[Notice] = Field(default_factory=list, description="channels that could not be searched, and why")


class PauseResponse(BaseModel):
    """Whether a pause started or ended."""

    changed: bool
