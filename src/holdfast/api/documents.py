"""The routes of `/bases/{base}/documents`: uploads, long polls, downloads and actions."""

from __future__ import annotations

import re
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse
from pydantic import Field, model_validator

from holdfast.api.auth import Service
from holdfast.api.bases import BaseName, base_path, job_path
from holdfast.api.idempotency import IdempotentRoute
from holdfast.api.long_poll import WaitSeconds, wait_until_settled
from holdfast.api.original_file import OriginalFileResponse
from holdfast.api.problems import format_etag
from holdfast.api.uploads import receive_files
from holdfast.documents import Action
from holdfast.service.http_models import MAX_BULK_IDS, ItemId, Replies, RequestBody
from holdfast.service.messages import require_accepted
from holdfast.service.routes import PARENT_FILTER, PATH_PARAMS
from holdfast.service.schemas import BulkSummary, Document, ItemKind, OnDuplicate, Reply, Status

router = APIRouter(prefix="/bases/{base}/documents", tags=["documents"], route_class=IdempotentRoute)

DocumentId = Annotated[int, Path(**PATH_PARAMS["document"].limits)]
if TYPE_CHECKING:
    ActionName = str
else:
    ActionName = Literal[tuple(map(str, Action))]  # FastAPI reads the choices at run time
ANY_ETAG = "*"
ETAG_PATTERN = re.compile(r'"g(\d{1,18})"')
ORIGINAL_CONTENT = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
CONTENT_RANGE = {
    "Content-Range": {"description": "The part, such as `bytes 0-99/5000`.", "schema": {"type": "string"}},
}
RANGE_PARAMETERS = [
    {"name": name, "in": "header", "required": False, "description": text, "schema": {"type": "string"}}
    for name, text in (
        ("Range", "A part of the file, such as `bytes=0-99` or `bytes=-100`. Only one part per request."),
        ("If-Range", "The `ETag` of the file. If it has changed, the response is the whole file."),
    )
]
ACTIVE_STATUSES = (Status.QUEUED, Status.INDEXING)


def _parse_if_match(if_match: Annotated[str | None, Header(max_length=1000)] = None) -> list[int] | None:
    """Return the generations in `If-Match`; None if any matches. Tags in another format match no generation."""
    tags = None if if_match is None else [tag.strip() for tag in if_match.split(",")]
    if tags is None or ANY_ETAG in tags:
        return None
    return [int(match[1]) for tag in tags if (match := ETAG_PATTERN.fullmatch(tag))]


IfMatch = Annotated[list[int] | None, Depends(_parse_if_match)]


class AddNoteRequest(RequestBody):
    """A text to add as a document."""

    name: str = Field(min_length=1, max_length=1000)
    text: str = Field(max_length=10_000_000)
    metadata: dict[str, Any] = Field(default_factory=dict)
    parent: ItemId | None = None
    on_duplicate: OnDuplicate | None = None


class AddSourceRequest(RequestBody):
    """A source to add: a web page, a sitemap, or a folder on the server."""

    kind: Literal["url", "sitemap", "directory"]
    source: str = Field(min_length=1, max_length=4000, description="URL, or path of a folder.")
    name: str | None = Field(None, min_length=1, max_length=1000)
    every: int | None = Field(None, ge=60, le=10**9, description="Seconds until it is fetched again.")
    priority: int = Field(5, ge=0, le=9, description="Priority of the sync of a folder: 0 runs first, 9 last.")


class DocumentFilter(RequestBody):
    """A selection of documents, with the same filters as the list."""

    parent: Annotated[int, Field(ge=0, lt=2**63)] | None = Field(None, description=PARENT_FILTER)
    status: list[Status] | None = Field(None, min_length=1, max_length=10)
    kind: list[ItemKind] | None = Field(None, min_length=1, max_length=10)
    text: str | None = Field(None, max_length=200, description="Part of the name.")
    deleting: bool = Field(False, description="Only documents that are being deleted; `retry` retries their clean-up.")


class BulkActionRequest(RequestBody):
    """Documents by id, or all documents that match a filter."""

    documents: list[ItemId] | None = Field(None, max_length=MAX_BULK_IDS)
    filter: DocumentFilter | None = None
    priority: int = Field(5, ge=0, le=9)
    dry_run: bool = Field(False, description="Only count the documents that match the filter; change nothing.")

    @model_validator(mode="after")
    def _check_ids_or_filter(self) -> BulkActionRequest:
        if (self.documents is None) is (self.filter is None):
            raise ValueError("send either `documents` or `filter`")
        if self.dry_run and self.filter is None:
            raise ValueError("`dry_run` needs a `filter`")
        return self


@router.post(
    "",
    status_code=HTTPStatus.ACCEPTED,
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {
                "multipart/form-data": {
                    "schema": {
                        "type": "object",
                        "properties": {
                            "file": {"type": "array", "items": {"type": "string", "format": "binary"}},
                            "metadata": {"type": "string", "description": "A JSON object for all files."},
                        },
                        "required": ["file"],
                    }
                },
                "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
            },
        }
    },
)
async def upload_files(
    service: Service,
    base: BaseName,
    request: Request,
    response: Response,
    name: Annotated[
        str | None, Query(max_length=1000, description="Name of the file, if the body is the file.")
    ] = None,
    parent: Annotated[int | None, Query(ge=1, lt=2**63, description="Container for the files.")] = None,
    on_duplicate: Annotated[OnDuplicate | None, Query(description="Default: the setting of the base.")] = None,
    index: Annotated[
        bool | None, Query(description="Index the files immediately; default: the setting of the base.")
    ] = None,
    priority: Annotated[int, Query(ge=0, le=9)] = 5,
) -> Replies:
    """Add files. If a single file starts no new work, the response is a conflict with the document and the job."""
    async with receive_files(request, name=name, parent=parent) as files:
        add = partial(service.documents.add, base, files, on_duplicate=on_duplicate, index=index, priority=priority)
        replies = await run_in_threadpool(add)
    return _build_replies(replies, base, response)


@router.post("/notes", status_code=HTTPStatus.ACCEPTED)
def add_note(service: Service, base: BaseName, note: AddNoteRequest, response: Response) -> Replies:
    """Add a text as a document."""
    reply = service.documents.note(
        base,
        note.name,
        note.text,
        metadata=note.metadata,
        parent=note.parent,
        on_duplicate=note.on_duplicate,
    )
    return _build_replies([reply], base, response)


@router.post("/sources", status_code=HTTPStatus.ACCEPTED)
def add_source(service: Service, base: BaseName, source: AddSourceRequest, response: Response) -> Replies:
    """Add a web page, all pages of a sitemap, or a folder on the server. A folder needs the scope `admin`."""
    if source.kind == "directory":
        return _build_replies([service.documents.sync(base, source.source, priority=source.priority)], base, response)
    add = service.documents.url if source.kind == "url" else service.documents.sitemap
    return _build_replies([add(base, source.source, name=source.name, every=source.every)], base, response)


@router.get("/{document}")
async def get_document(
    service: Service, base: BaseName, document: DocumentId, request: Request, response: Response, wait: WaitSeconds = 0
) -> Document:
    """Return a document: the state of each index, why it waits, and what failed. `ETag` is its generation."""
    read = partial(service.documents.get, base, document)
    found = await wait_until_settled(request, read, lambda document: document.status not in ACTIVE_STATUSES, wait)
    response.headers["ETag"] = format_etag(found.generation)
    return found


@router.get(
    "/{document}/original",
    response_class=StreamingResponse,
    responses={
        200: {"content": ORIGINAL_CONTENT},
        206: {"description": "The part that `Range` requests.", "content": ORIGINAL_CONTENT, "headers": CONTENT_RANGE},
        416: {"description": "The file has no such part; the response has no body.", "headers": CONTENT_RANGE},
    },
    openapi_extra={"parameters": RANGE_PARAMETERS},
)
def download_original(service: Service, base: BaseName, document: DocumentId, request: Request) -> OriginalFileResponse:
    """Return the original bytes of a document as a download, or the part that the header `Range` requests."""
    return OriginalFileResponse(service.documents.original(base, document), request.headers)


@router.post("/{document}:{action}", status_code=HTTPStatus.ACCEPTED)
def act_on_document(
    service: Service,
    base: BaseName,
    document: DocumentId,
    action: ActionName,
    unless_changed: IfMatch,
    priority: Annotated[int, Query(ge=0, le=9)] = 5,
) -> Reply:
    """Index, reindex, refresh (or rescan), retry, force, cancel or delete a document. A conflict names the active job.

    For a document that is being deleted, `retry` retries its clean-up now. With `If-Match`, the server rejects the
    request if the document has changed.
    """
    return service.documents.run(base, action, document, priority=priority, unless_changed=unless_changed)


@router.delete("/{document}", status_code=HTTPStatus.ACCEPTED)
def delete_document(service: Service, base: BaseName, document: DocumentId, unless_changed: IfMatch) -> Reply:
    """Delete a document or container. It disappears immediately. With `If-Match`, only if it has not changed."""
    return service.documents.delete(base, document, unless_changed=unless_changed)


@router.post(":{action}", status_code=HTTPStatus.ACCEPTED)
def act_on_documents(
    service: Service, base: BaseName, action: ActionName, selected: BulkActionRequest, response: Response
) -> Replies | BulkSummary:
    """Request the same action for many documents: by id with one reply each, or for all documents of a filter.

    More than 250 documents become a job: the response is a summary with the id of the job, and `Location` is its
    address. The job reports its progress and can be cancelled.
    """
    result = _request_for_many(service, base, action, selected)
    if isinstance(result, list):
        return Replies(replies=result)
    for job in result.jobs:  # one at most, because the documents are of one base
        response.headers["Location"] = job_path(job)
    return result


def _request_for_many(
    service: Service, base: str, action: str, selected: BulkActionRequest
) -> list[Reply] | BulkSummary:
    filter_ = selected.filter
    if filter_ is None:
        return service.documents.many(base, action, selected.documents or [], priority=selected.priority)
    return service.documents.matching(
        base,
        action,
        parent=filter_.parent,
        states=filter_.status,
        kinds=filter_.kind,
        text=filter_.text,
        deleting=filter_.deleting,
        priority=selected.priority,
        dry_run=selected.dry_run,
    )


def _build_replies(replies: list[Reply], base: str, response: Response) -> Replies:
    """Return the replies for added files. Raise `Conflict` for a single file that started no work."""
    if len(replies) == 1:
        reply = require_accepted(replies[0])
        location = job_path(reply.job) if reply.job else f"{base_path(base)}/documents/{reply.document}"
        response.headers["Location"] = location
    return Replies(replies=replies)
