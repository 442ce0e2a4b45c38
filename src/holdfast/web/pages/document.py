"""One document: its status with reasons, indexes, text and chunks, history and cost."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Annotated, NamedTuple, TypeVar

from fastapi import APIRouter, Query
from fastapi.responses import HTMLResponse

from holdfast.api.bases import BaseName
from holdfast.api.documents import DocumentId
from holdfast.errors import BadRequest, BaseFailed, StateConflict
from holdfast.service.schemas import DocumentChunk, IndexStatus, ItemKind, MissingChunk, Problem, SlotState, Status
from holdfast.web.highlight import TextSegment
from holdfast.web.markdown import is_markdown, render_markdown
from holdfast.web.render import CurrentPage, blank_row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from holdfast.service.local import LocalService
    from holdfast.service.schemas import Document, DocumentText, HistoryEntry, PassageInContext

router = APIRouter()

CHUNKS_PER_PAGE = 50
TEXT_PART_CHARS = 10_000  # shown at once
CHARS_BEFORE_PASSAGE = 1_000  # shown before an opened passage
READING_PAGE_CHARS = 200_000
CONTAINERS = frozenset({ItemKind.DIRECTORY, ItemKind.SITEMAP})

BLANK_INDEX = blank_row(IndexStatus, kind="content", state=SlotState.QUEUED, made_by="")
BLANK_MISSING = blank_row(MissingChunk, index="content", problem=Problem(code="", message=""))
BLANK_CHUNK = blank_row(DocumentChunk)

STATES_EXPLAINED_AT_TOP = (SlotState.FAILED, SlotState.WAITING)  # the top of the page shows their errors, once

T = TypeVar("T")


class Attempt(NamedTuple):
    """One attempt, and its place in the duration of its job, in percent."""

    event: HistoryEntry
    start_percent: float
    width_percent: float
    repeated: bool  # the page already shows its problem


class JobHistory(NamedTuple):
    """A job and its attempts."""

    first: HistoryEntry
    status: str
    seconds: float | None
    steps: list[Attempt]


@router.get("/bases/{base}/documents/{document}")
def document_page(
    context: CurrentPage,
    base: BaseName,
    document: DocumentId,
    chunk: Annotated[int | None, Query(ge=1, lt=2**63)] = None,
    page: Annotated[int, Query(ge=1, le=100_000)] = 1,
) -> HTMLResponse:
    """Show a document, opened at a passage if `chunk` is given."""
    service = context.service
    found = service.documents.get(base, document)
    passage = _read_if_available(lambda: service.documents.passage(base, document, chunk)) if chunk else None
    if passage:
        page = _find_ordinal(service, found, passage) // CHUNKS_PER_PAGE + 1
    chunks = (
        None
        if found.kind in CONTAINERS
        else _read_if_available(lambda: _read_chunks(service, found, (page - 1) * CHUNKS_PER_PAGE, CHUNKS_PER_PAGE))
    )
    begin = max(0, passage.start - CHARS_BEFORE_PASSAGE) if passage else 0
    text = _read_if_available(lambda: service.documents.text(base, document, start=begin, length=TEXT_PART_CHARS))
    asked = {"page": page, "size": CHUNKS_PER_PAGE}
    return context.render(
        "document.html",
        base=service.bases.get(base),
        doc=found,
        container=found.kind in CONTAINERS,
        readable=found.kind is ItemKind.NOTE or is_markdown(found.name),
        resting=found.status not in (Status.QUEUED, Status.INDEXING, Status.DELETING),
        chunks=chunks,
        asked=asked,
        text=text,
        pieces=_split_at_passage(text, passage) if text else [],
        opened=passage.chunk if passage else None,
        gone=chunk is not None and passage is None,
        told_above=STATES_EXPLAINED_AT_TOP,
        runs=_build_histories(
            service.dossiers.history(base, document),
            [one.error for one in found.indexes if one.error and one.state in STATES_EXPLAINED_AT_TOP],
        ),
        entities=service.dossiers.entities(base, document),
        cards=service.dossiers.cards(base, document, limit=CHUNKS_PER_PAGE).items,
        cost=service.dossiers.usage(base, document),
        missing=service.dossiers.missing(base, document) if any(one.missing for one in found.indexes) else [],
        blank_index=BLANK_INDEX,
        blank_missing=BLANK_MISSING,
        blank_chunk=BLANK_CHUNK,
        data={
            "document": found,
            "chunks": chunks,
            "text": text,
            "opened": {"chunk": passage.chunk, "start": passage.start, "end": passage.end} if passage else None,
            "asked": asked,
        },
    )


@router.get("/bases/{base}/documents/{document}/reading")
def reading_page(
    context: CurrentPage, base: BaseName, document: DocumentId, start: Annotated[int, Query(ge=0, lt=2**31)] = 0
) -> HTMLResponse:
    service = context.service
    found = service.documents.get(base, document)
    if found.kind is not ItemKind.NOTE and not is_markdown(found.name):
        raise BadRequest("not_markdown", name=found.name)
    text = service.documents.text(base, document, start=start, length=READING_PAGE_CHARS)
    return context.render(
        "reading.html",
        base=service.bases.get(base),
        doc=found,
        text=text,
        html=render_markdown(text.text),
        leaf=READING_PAGE_CHARS,
    )


def _read_if_available(read: Callable[[], T]) -> T | None:
    """Return the result of `read`, or None if the document has nothing to read now, or its base failed."""
    try:
        return read()
    except (StateConflict, BadRequest, BaseFailed):
        return None


def _read_chunks(service: LocalService, document: Document, first: int, limit: int) -> list[DocumentChunk]:
    """Return chunks from `first` on. A cursor names the last chunk before the page."""
    cursor = f"{document.id}.{first - 1}" if first else None
    return service.documents.chunks(document.base, document.id, cursor=cursor, limit=limit).items


def _find_ordinal(service: LocalService, document: Document, passage: PassageInContext) -> int:
    """Find a passage by binary search: chunks are ordered by their start in the text."""

    def start(ordinal: int) -> int:
        found = _read_if_available(lambda: _read_chunks(service, document, ordinal, 1))
        return found[0].start if found else passage.end

    return bisect_left(range(document.chunks or 0), passage.start, key=start)


def _split_at_passage(text: DocumentText, passage: PassageInContext | None) -> list[TextSegment]:
    if passage is None:
        return [TextSegment(text.text)]
    first, last = passage.start - text.start, passage.end - text.start
    return [
        TextSegment(text.text[:first]),
        TextSegment(text.text[first:last], highlighted=True),
        TextSegment(text.text[last:]),
    ]


def _build_histories(history: Iterable[HistoryEntry], shown: list[Problem]) -> list[JobHistory]:
    """Group history entries by job, the newest job first. `shown` are problems that the page already shows."""
    found: dict[str, list[HistoryEntry]] = {}
    for one in history:
        found.setdefault(one.job or f"{one.what} {one.at}", []).insert(0, one)
    return [_build_history(one, shown) for one in found.values()]


def _build_history(entries: Sequence[HistoryEntry], shown: list[Problem]) -> JobHistory:
    """Build the history of one job: each attempt with its end, or with its claim while it runs."""
    ended = [one for one in entries if one.kind is None][-1:]
    over = {(one.kind, one.attempt) for one in entries if one.kind and one.what != "claimed"}
    begun, last = entries[0].at, max(one.at for one in entries)
    whole = (last - begun).total_seconds() or 1.0
    steps = []
    for one in entries:
        if one.kind is None or (one.what == "claimed" and (one.kind, one.attempt) in over):
            continue
        until = last if one.what == "claimed" else one.at
        seconds = (last - one.at).total_seconds() if one.what == "claimed" else one.seconds or 0.0
        begin = (until - begun).total_seconds() - seconds
        place = round(100 * begin / whole, 1), max(1.0, round(100 * seconds / whole, 1))
        steps.append(Attempt(one, *place, repeated=one.problem in shown))
        shown += [one.problem] if one.problem else []
    status = ended[0].what if ended else "accepted"
    return JobHistory(entries[0], status, ended[0].seconds if ended else None, steps)
