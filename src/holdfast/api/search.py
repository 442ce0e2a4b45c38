"""The routes of `/bases/{base}/search` and `/bases/{base}/answers:stream`.

The server does not store these responses for repeated requests: they contain text of documents that may be deleted
meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Iterator
from itertools import chain
from typing import Any

from anyio import CancelScope
from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse
from pydantic import Field, TypeAdapter
from starlette.types import Receive, Scope, Send

from holdfast.api.auth import Service
from holdfast.api.bases import BaseName
from holdfast.api.events import STREAM_HEADERS, STREAM_RESPONSES
from holdfast.api.problems import build_error_response
from holdfast.errors import HoldfastError
from holdfast.events import MEDIA_TYPE
from holdfast.service.http_models import AskRequest, ItemId, RequestBody, SearchResponse
from holdfast.service.schemas import Answer

router = APIRouter(prefix="/bases/{base}", tags=["search"])

ANSWER_PART: TypeAdapter[str | Answer] = TypeAdapter(str | Answer)


class SearchRequest(RequestBody):
    """A search query and its filters."""

    query: str = Field(max_length=10_000)
    limit: int = Field(10, ge=1, le=100)
    channels: list[str] | None = Field(
        None,
        description="`vector`, `fulltext`, `graph`, `questions`, or another installed index; null: all.",
        max_length=50,
    )
    documents: list[ItemId] | None = Field(None, description="Only these documents.", max_length=10_000)
    below: list[ItemId] = Field(
        default_factory=list, description="Only documents below these containers.", max_length=100
    )
    metadata: dict[str, Any] | None = Field(None, description="Only documents with these values.", max_length=20)


@router.post("/search")
def search(service: Service, base: BaseName, request: SearchRequest) -> SearchResponse:
    """Return the best passages, each with its score and rank in every channel.

    If a channel fails, the hits come from the other channels, and `notices` names it. If every channel fails, the
    response is an error.
    """
    started = time.perf_counter()
    hits = service.asking.search(
        base,
        request.query,
        limit=request.limit,
        channels=request.channels,
        documents=request.documents,
        below=request.below,
        metadata=request.metadata,
    )
    return SearchResponse(hits=hits, took_ms=round((time.perf_counter() - started) * 1000, 2), notices=hits.notices)


@router.post(
    "/answers:stream",
    response_class=StreamingResponse,
    responses=STREAM_RESPONSES,
)
def ask_streaming(service: Service, base: BaseName, question: AskRequest, request: Request) -> StreamingResponse:
    """Stream an answer: events `text` with its parts, then `answer` with the whole answer, or `problem`."""
    parts = service.asking.stream(base, question.question, mode=question.mode)
    first = next(parts)  # an error must be raised before the response starts
    return _AnswerStream(request, first, parts)


class _AnswerStream(StreamingResponse):
    """Closes the generator when the response ends or the client disconnects, so that the paid call stops."""

    def __init__(self, request: Request, first: str | Answer, parts: Generator[str | Answer, None, None]) -> None:
        super().__init__(_encode_parts(request, chain([first], parts)), media_type=MEDIA_TYPE, headers=STREAM_HEADERS)
        self._parts = parts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            with CancelScope(shield=True):
                await run_in_threadpool(self._parts.close)


def _encode_parts(request: Request, parts: Iterable[str | Answer]) -> Iterator[bytes]:
    try:
        for part in parts:
            name = "text" if isinstance(part, str) else "answer"
            yield b"event: %b\ndata: %b\n\n" % (name.encode(), ANSWER_PART.dump_json(part))
    except HoldfastError as error:
        yield b"event: problem\ndata: %b\n\n" % bytes(build_error_response(request, error).body)
