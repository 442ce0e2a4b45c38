"""One document: how it stands and why, its indexes, its text and chunks, what happened to it and what it cost."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Annotated, NamedTuple, TypeVar

from fastapi import APIRouter, Query
from fastapi.responses import HTMLResponse

from holdfast.api.bases import BaseName
from holdfast.api.documents import DocumentId
from holdfast.errors import BadRequest, BaseFailed, StateConflict
from holdfast.service.schemas import ItemKind, MissingChunk, Problem, SlotState, Status
from holdfast.web.highlight import TextSegment
from holdfast.web.markdown import is_markdown, render_markdown
from holdfast.web.render import CurrentPage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from holdfast.service.local import LocalService
    from holdfast.service.schemas import Document, DocumentChunk, DocumentText, HistoryEntry, PassageInContext

router = APIRouter()

CHUNKS_PER_PAGE = 50  # of a page
TEXT_PART_CHARS = 10_000  # characters of a text that are shown at once
CHARS_BEFORE_PASSAGE = 1_000  # characters shown before a passage that is opened
READING_PAGE_CHARS = 200_000  # characters of Markdown on a page
CONTAINERS = frozenset({ItemKind.DIRECTORY, ItemKind.SITEMAP})

# What a script clones rows from.
BLANK_INDEX = {
    "kind": "content",
    "state": SlotState.QUEUED,
    "wanted": 0,
    "built": 0,
    "attempts": 0,
    "attempts_max": 0,
    "chunks": 0,
    "missing": 0,
    "made_by": "",
    "error": None,
    "retry_at": None,
    "progress": None,
}
BLANK_MISSING = MissingChunk(
    index="content", chunk=0, ordinal=0, start=0, end=0, text="", problem=Problem(code="", message="")
)
BLANK_CHUNK = {"chunk": 0, "ordinal": 0, "start": 0, "end": 0, "tokens": 0, "headings": [], "text": ""}

STATES_EXPLAINED_AT_TOP = (
    SlotState.FAILED,
    SlotState.WAITING,
)  # their errors are told at the top of the page, and only there

T = TypeVar("T")


class Attempt(NamedTuple):
    """One attempt, and where it stands in the time of its request, in percent."""

    event: HistoryEntry
    start_percent: float
    width_percent: float
    repeated: bool  # the page has told its problem already


class JobHistory(NamedTuple):
    """A request, and the attempts that followed from it."""

    first: HistoryEntry
    status: str
    seconds: float | None
    steps: list[Attempt]


@router.get("/bases/{base}/documents/{document}")
def document_page(
    visit: CurrentPage,
    base: BaseName,
    document: DocumentId,
    chunk: Annotated[int | None, Query(ge=1, lt=2**63)] = None,
    page: Annotated[int, Query(ge=1, le=100_000)] = 1,
) -> HTMLResponse:
    """Show a document, opened at a passage if one is named."""
    front = visit.service
    found = front.documents.get(base, document)
    passage = _read_if_available(lambda: front.documents.passage(base, document, chunk)) if chunk else None
    if passage:
        page = _find_ordinal(front, found, passage) // CHUNKS_PER_PAGE + 1
    chunks = (
        None
        if found.kind in CONTAINERS
        else _read_if_available(lambda: _read_chunks(front, found, (page - 1) * CHUNKS_PER_PAGE, CHUNKS_PER_PAGE))
    )
    begin = max(0, passage.start - CHARS_BEFORE_PASSAGE) if passage else 0
    text = _read_if_available(lambda: front.documents.text(base, document, start=begin, length=TEXT_PART_CHARS))
    asked = {"page": page, "size": CHUNKS_PER_PAGE}
    return visit.render(
        "document.html",
        base=front.bases.get(base),
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
            front.dossiers.history(base, document),
            [one.error for one in found.indexes if one.error and one.state in STATES_EXPLAINED_AT_TOP],
        ),
        entities=front.dossiers.entities(base, document),
        cards=front.dossiers.cards(base, document, limit=CHUNKS_PER_PAGE).items,
        cost=front.dossiers.usage(base, document),
        missing=front.dossiers.missing(base, document) if any(one.missing for one in found.indexes) else [],
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
    visit: CurrentPage, base: BaseName, document: DocumentId, start: Annotated[int, Query(ge=0, lt=2**31)] = 0
) -> HTMLResponse:
    """Show the Markdown of a document as it is meant to be read."""
    front = visit.service
    found = front.documents.get(base, document)
    if found.kind is not ItemKind.NOTE and not is_markdown(found.name):
        raise BadRequest(f"{found.name!r} is not Markdown; its text is on its own page.")
    text = front.documents.text(base, document, start=start, length=READING_PAGE_CHARS)
    return visit.render(
        "reading.html",
        base=front.bases.get(base),
        doc=found,
        text=text,
        html=render_markdown(text.text),
        leaf=READING_PAGE_CHARS,
    )


def _read_if_available(read: Callable[[], T]) -> T | None:
    """Return what is read, or None where there is nothing to be read at the moment, or not in a base that failed."""
    try:
        return read()
    except (StateConflict, BadRequest, BaseFailed):
        return None


def _read_chunks(front: LocalService, document: Document, first: int, limit: int) -> list[DocumentChunk]:
    """Return chunks from a place on; where a page ended is named by the last one before."""
    cursor = f"{document.id}.{first - 1}" if first else None
    return front.documents.chunks(document.base, document.id, cursor=cursor, limit=limit).items


def _find_ordinal(front: LocalService, document: Document, passage: PassageInContext) -> int:
    """Return the place of a passage among the chunks of its document, which follow each other in the text."""

    def start(ordinal: int) -> int:
        found = _read_if_available(lambda: _read_chunks(front, document, ordinal, 1))
        return found[0].start if found else passage.end

    return bisect_left(range(document.chunks or 0), passage.start, key=start)


def _split_at_passage(text: DocumentText, passage: PassageInContext | None) -> list[TextSegment]:
    """Cut a text around the passage that was asked for."""
    if passage is None:
        return [TextSegment(text.text)]
    first, last = passage.start - text.start, passage.end - text.start
    return [
        TextSegment(text.text[:first]),
        TextSegment(text.text[first:last], highlighted=True),
        TextSegment(text.text[last:]),
    ]


def _build_histories(history: Iterable[HistoryEntry], told: list[Problem]) -> list[JobHistory]:
    """Gather what happened by the request that it belongs to, the newest request first."""
    found: dict[str, list[HistoryEntry]] = {}
    for one in history:
        found.setdefault(one.job or f"{one.what} {one.at}", []).insert(0, one)
    return [_build_history(one, told) for one in found.values()]


def _build_history(happened: Sequence[HistoryEntry], told: list[Problem]) -> JobHistory:
    """Tell of a request from its beginning on: of each attempt how it ended, or that it has begun."""
    ended = [one for one in happened if one.kind is None][-1:]
    over = {(one.kind, one.attempt) for one in happened if one.kind and one.what != "claimed"}
    begun, last = happened[0].at, max(one.at for one in happened)
    whole = (last - begun).total_seconds() or 1.0
    steps = []
    for one in happened:
        if one.kind is None or (one.what == "claimed" and (one.kind, one.attempt) in over):
            continue
        until = last if one.what == "claimed" else one.at
        seconds = (last - one.at).total_seconds() if one.what == "claimed" else one.seconds or 0.0
        begin = (until - begun).total_seconds() - seconds
        place = round(100 * begin / whole, 1), max(1.0, round(100 * seconds / whole, 1))
        steps.append(Attempt(one, *place, repeated=one.problem in told))
        told += [one.problem] if one.problem else []
    status = ended[0].what if ended else "accepted"
    return JobHistory(happened[0], status, ended[0].seconds if ended else None, steps)
