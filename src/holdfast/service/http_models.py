"""Bodies of HTTP requests and responses that no other interface has. The server and the client share them.

The fields of a request body of a route in `routes.py` are arguments of its service method.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from holdfast.auth import Scope
from holdfast.service.schemas import Hit, Mode, Notice, Reply

MAX_IDS = 1000
MAX_BULK_IDS = 10_000  # more than a request processes at once become a job
ItemId = Annotated[int, Field(ge=1, lt=2**63)]
BaseNames = Annotated[
    list[str] | None, Field(description="Names of bases; null: all bases, including later ones.", max_length=1000)
]


class RequestBody(BaseModel):
    """A JSON body. The server rejects unknown fields."""

    model_config = ConfigDict(extra="forbid")


class PreviewFolderRequest(RequestBody):
    """The folder whose sync is previewed."""

    path: str = Field(min_length=1, max_length=4000, description="Path of a folder on the server.")


class DocumentStatusesRequest(RequestBody):
    """The documents whose status is requested."""

    documents: list[ItemId] = Field(max_length=MAX_IDS)


class AskRequest(RequestBody):
    """A question to answer."""

    question: str = Field(max_length=10_000)
    mode: Mode = Mode.MIX


class PriorityRequest(RequestBody):
    """The new priority of a job."""

    priority: int = Field(ge=0, le=9, description="0 runs first, 9 last.")


class CancelJobsRequest(RequestBody):
    """The jobs to cancel."""

    base: str | None = Field(None, description="Only jobs of this base; null: of all bases.", max_length=200)
    dry_run: bool = Field(False, description="Only count the jobs; change nothing.")


class RetryJobsRequest(CancelJobsRequest):
    """The documents to retry."""

    degraded: bool = Field(False, description="Also retry documents with incomplete indexes.")


class CreateKeyRequest(RequestBody):
    """A key to create."""

    name: str = Field(min_length=1, max_length=200)
    scope: Scope | None = Field(
        None, description="null: `admin` for the first key of a server if it is not limited to bases, else `read`."
    )
    bases: BaseNames = None
    days: int | None = Field(None, ge=1, le=36_500, description="Days until the key expires; null: never.")


class Replies(BaseModel):
    """One reply for each file or document, in order."""

    replies: list[Reply]


class SearchResponse(BaseModel):
    """The result of a search."""

    hits: list[Hit]
    took_ms: float
    notices: list[Notice] = Field(default_factory=list, description="Channels that could not be searched, and why.")


class PauseResponse(BaseModel):
    """The result of a pause or resume."""

    changed: bool = Field(description="Whether a pause started, changed or ended.")
