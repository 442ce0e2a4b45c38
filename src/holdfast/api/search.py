"""`/bases/{base}/search`, `/answers`, `/graph`: what a base is asked.

No answer is kept for a repeated request: it would hold the words of documents that may be deleted meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Iterator
from itertools import chain
from typing import Annotated, Any

from anyio import CancelScope
from fastapi import APIRouter, Path, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter
from starlette.types import Receive, Scope, Send

from holdfast.api.auth import Service
from holdfast.api.bases import BaseName, ItemId
from holdfast.api.events import STREAM_HEADERS, STREAM_RESPONSES
from holdfast.api.problems import build_error_response
from holdfast.errors import HoldfastError
from holdfast.events.stream import MEDIA_TYPE
from holdfast.service.schemas import Answer, Entity, EntityDetails, Hit, Mode, Notice

router = APIRouter(prefix="/bases/{base}", tags=["search"])

ANSWER_PART: TypeAdapter[str | Answer] = TypeAdapter(str | Answer)


class SearchRequest(BaseModel):
    """A search."""

    model_config = ConfigDict(extra="forbid")

    query: str = Field(max_length=10_000)
    limit: int = Field(10, ge=1, le=100)
    channels: list[str] | None = Field(
        None, description="vector, fulltext, graph, questions, or another installed index; null: all", max_length=50
    )
    documents: list[ItemId] | None = Field(None, description="only these", max_length=10_000)
    below: list[ItemId] = Field(default_factory=list, description="only what stands below these", max_length=100)
    metadata: dict[str, Any] | None = Field(None, description="only documents with these values", max_length=20)


class SearchResponse(BaseModel):
    """What a search found."""

    hits: list[Hit]
    took_ms: float
    notices: list[Notice] = Field(default_factory=list, description="channels that could not be searched, and why")


class AskRequest(BaseModel):
    """A question."""

    model_config = ConfigDict(extra="forbid")

    question: str = Field(max_length=10_000)
    mode: Mode = Mode.MIX


@router.post("/search")
def search(front: Service, base: BaseName, asked: SearchRequest) -> SearchResponse:
    """Return the best passages, each with its score and rank in every channel.

    A channel that fails is left out and named in `notices`; if every channel fails, the answer is an error.
    """
    began = time.perf_counter()
    hits = front.asking.search(
        base,
        asked.query,
        limit=asked.limit,
        channels=asked.channels,
        documents=asked.documents,
        below=asked.below,
        metadata=asked.metadata,
    )
    return SearchResponse(hits=hits, took_ms=round((time.perf_counter() - began) * 1000, 2), notices=hits.notices)


@router.post("/answers")
def ask(front: Service, base: BaseName, asked: AskRequest) -> Answer:
    """Answer a question with citations; without a language model, the best passages, and it says so."""
    return front.asking.ask(base, asked.question, mode=asked.mode)


@router.post(
    "/answers:stream",
    response_class=StreamingResponse,
    responses=STREAM_RESPONSES,
)
def ask_streaming(front: Service, base: BaseName, asked: AskRequest, request: Request) -> StreamingResponse:
    """Answer as the words come: events `text`, the whole answer last as `answer`, or `problem` for what went wrong."""
    parts = front.asking.stream(base, asked.question, mode=asked.mode)
    first = next(parts)  # what is refused is refused before anything is sent
    return _AnswerStream(request, first, parts)


class _AnswerStream(StreamingResponse):
    """Closes the answer when it ends or the client leaves, so that the provider stops and is paid no more."""

    def __init__(self, request: Request, first: str | Answer, parts: Generator[str | Answer, None, None]) -> None:
        super().__init__(_encode_parts(request, chain([first], parts)), media_type=MEDIA_TYPE, headers=STREAM_HEADERS)
        self._parts = parts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream."""
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


@router.get("/graph/entities")
def list_entities(
    front: Service,
    base: BaseName,
    text: Annotated[str, Query(max_length=200, description="the words their names begin with")] = "",
    limit: Annotated[int, Query(ge=1, le=1000)] = 50,
) -> list[Entity]:
    """Return the entities that most documents speak of."""
    return front.asking.entities(base, text=text, limit=limit)


@router.get("/graph/entities/{key:path}")
def get_entity(
    front: Service,
    base: BaseName,
    key: Annotated[str, Path(max_length=500)],
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
) -> EntityDetails:
    """Return all that is known of an entity: who speaks of it, its relations, its neighbourhood."""
    return front.asking.entity(base, key, limit=limit)
