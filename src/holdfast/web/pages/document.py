"""One document: how it stands and why, its indexes, its text and chunks, what happened to it and what it cost."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Annotated, NamedTuple, TypeVar

from fastapi import APIRouter, Query
from fastapi.responses import HTMLResponse

from holdfast.api.bases import Name
from holdfast.api.documents import Id
from holdfast.errors import BadRequest, BaseFailed, NotNow
from holdfast.service.schemas import Kind, Missing, Problem, SlotState, Status
from holdfast.web.highlight import Piece
from holdfast.web.markdown import is_markdown, rendered
from holdfast.web.render import Visiting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from holdfast.service.local import Local
    from holdfast.service.schemas import Chunk, Document, Happening, Passage, Text

router = APIRouter()

CHUNKS = 50  # of a page
PART = 10_000  # characters of a text that are shown at once
BEFORE = 1_000  # characters shown before a passage that is opened
LEAF = 200_000  # characters of Markdown on a page
CONTAINERS = frozenset({Kind.DIRECTORY, Kind.SITEMAP})

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
BLANK_MISSING = Missing(
    index="content", chunk=0, ordinal=0, start=0, end=0, text="", problem=Problem(code="", message="")
)
BLANK_CHUNK = {"chunk": 0, "ordinal": 0, "start": 0, "end": 0, "tokens": 0, "headings": [], "text": ""}

TOLD_ABOVE = (SlotState.FAILED, SlotState.WAITING)  # their errors are told at the top of the page, and only there

T = TypeVar("T")


class Step(NamedTuple):
    """One attempt, and where it stands in the time of its request, in percent."""

    one: Happening
    begin: float
    share: float
    repeated: bool  # the page has told its problem already


class Run(NamedTuple):
    """A request, and the attempts that followed from it."""

    first: Happening
    status: str
    seconds: float | None
    steps: list[Step]


@router.get("/bases/{base}/documents/{document}")
def document_page(
    visit: Visiting,
    base: Name,
    document: Id,
    chunk: Annotated[int | None, Query(ge=1, lt=2**63)] = None,
    page: Annotated[int, Query(ge=1, le=100_000)] = 1,
) -> HTMLResponse:
    """Show a document, opened at a passage if one is named."""
    front = visit.front
    found = front.documents.get(base, document)
    passage = _now(lambda: front.documents.passage(base, document, chunk)) if chunk else None
    if passage:
        page = _ordinal(front, found, passage) // CHUNKS + 1
    chunks = None if found.kind in CONTAINERS else _now(lambda: _chunks(front, found, (page - 1) * CHUNKS, CHUNKS))
    begin = max(0, passage.start - BEFORE) if passage else 0
    text = _now(lambda: front.documents.text(base, document, start=begin, length=PART))
    asked = {"page": page, "size": CHUNKS}
    return visit.paint(
        "document.html",
        base=front.bases.get(base),
        doc=found,
        container=found.kind in CONTAINERS,
        readable=found.kind is Kind.NOTE or is_markdown(found.name),
        resting=found.status not in (Status.QUEUED, Status.INDEXING, Status.DELETING),
        chunks=chunks,
        asked=asked,
        text=text,
        pieces=_pieces(text, passage) if text else [],
        opened=passage.chunk if passage else None,
        gone=chunk is not None and passage is None,
        told_above=TOLD_ABOVE,
        runs=_runs(
            front.dossiers.history(base, document),
            [one.error for one in found.indexes if one.error and one.state in TOLD_ABOVE],
        ),
        entities=front.dossiers.entities(base, document),
        cards=front.dossiers.cards(base, document, limit=CHUNKS).items,
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
    visit: Visiting, base: Name, document: Id, start: Annotated[int, Query(ge=0, lt=2**31)] = 0
) -> HTMLResponse:
    """Show the Markdown of a document as it is meant to be read."""
    front = visit.front
    found = front.documents.get(base, document)
    if found.kind is not Kind.NOTE and not is_markdown(found.name):
        raise BadRequest(f"{found.name!r} is not Markdown; its text is on its own page.")
    text = front.documents.text(base, document, start=start, length=LEAF)
    return visit.paint(
        "reading.html",
        base=front.bases.get(base),
        doc=found,
        text=text,
        html=rendered(text.text),
        leaf=LEAF,
    )


def _now(read: Callable[[], T]) -> T | None:
    """Return what is read, or None where there is nothing to be read at the moment, or not in a base that failed."""
    try:
        return read()
    except (NotNow, BadRequest, BaseFailed):
        return None


def _chunks(front: Local, document: Document, first: int, limit: int) -> list[Chunk]:
    """Return chunks from a place on; where a page ended is named by the last one before."""
    cursor = f"{document.id}.{first - 1}" if first else None
    return front.documents.chunks(document.base, document.id, cursor=cursor, limit=limit).items


def _ordinal(front: Local, document: Document, passage: Passage) -> int:
    """Return the place of a passage among the chunks of its document, which follow each other in the text."""

    def start(ordinal: int) -> int:
        found = _now(lambda: _chunks(front, document, ordinal, 1))
        return found[0].start if found else passage.end

    return bisect_left(range(document.chunks or 0), passage.start, key=start)


def _pieces(text: Text, passage: Passage | None) -> list[Piece]:
    """Cut a text around the passage that was asked for."""
    if passage is None:
        return [Piece(text.text)]
    first, last = passage.start - text.start, passage.end - text.start
    return [Piece(text.text[:first]), Piece(text.text[first:last], marked=True), Piece(text.text[last:])]


def _runs(history: Iterable[Happening], told: list[Problem]) -> list[Run]:
    """Gather what happened by the request that it belongs to, the newest request first."""
    found: dict[str, list[Happening]] = {}
    for one in history:
        found.setdefault(one.job or f"{one.what} {one.at}", []).insert(0, one)
    return [_run(one, told) for one in found.values()]


def _run(happened: Sequence[Happening], told: list[Problem]) -> Run:
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
        steps.append(Step(one, *place, repeated=one.problem in told))
        told += [one.problem] if one.problem else []
    status = ended[0].what if ended else "accepted"
    return Run(happened[0], status, ended[0].seconds if ended else None, steps)
