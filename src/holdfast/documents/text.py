"""Reads the original file of a document, its text, and a passage with its context.

The text itself is not stored, only its chunks with their offsets. Without their overlaps the chunks cover the text
except for white space. Gaps are filled from an overlapping chunk, or else with line breaks of the same length. So every
offset is valid for the text as it was read.
"""

from __future__ import annotations

import json
import mimetypes
from bisect import bisect_right
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from holdfast.catalog import ID_LIMIT, ItemKind
from holdfast.documents import list_statements as sql
from holdfast.errors import BadRequest, StateConflict
from holdfast.indexes import CONTENT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from holdfast.blobs import BlobStore, ByteReader
    from holdfast.catalog import Base, Item
    from holdfast.db import Transaction
    from holdfast.engine import Slot

MAX_CHARACTERS = 500_000  # per call
UNKNOWN_TYPE = "application/octet-stream"


@dataclass(frozen=True, slots=True, kw_only=True)
class OriginalFile:
    """The original file of a document; `name` is data from the user, never use it as a path."""

    name: str
    size: int
    type: str
    digest: str
    blob: str
    blobs: BlobStore

    @contextmanager
    def open(self, start: int = 0) -> Iterator[ByteReader]:
        """Read the bytes from a position."""
        with ExitStack() as held:
            try:
                file = held.enter_context(self.blobs.open(self.blob, start))
            except FileNotFoundError:
                raise StateConflict("file_lacks", name=self.name) from None
            yield file


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentText:
    """The text of a document, or a part of it."""

    document: int
    generation: int
    title: str | None
    start: int
    length: int  # of the whole text
    text: str
    following: int | None  # offset of the next part; None after the last


@dataclass(frozen=True, slots=True, kw_only=True)
class PassageInContext:
    """A chunk with the text around it."""

    document: int
    name: str
    generation: int
    chunk: int
    start: int
    end: int
    page: int | None  # number of the page on which its own text begins; None if the text has no pages
    headings: list[str]
    before: str
    text: str
    after: str


class _Build(NamedTuple):
    owner: int
    number: int
    title: str | None
    pages: Sequence[int]
    length: int


def describe_original(blobs: BlobStore, item: Item) -> OriginalFile:
    """Return the original file of a document."""
    if item.is_container:
        raise BadRequest("no_original", name=item.name)
    if item.blob is None or item.digest is None:
        raise StateConflict("no_content", name=item.name)
    fetched = item.kind is ItemKind.URL
    name = str(item.metadata.get("file", item.name)) if fetched else item.name
    type_ = str(item.metadata.get("type", "")) if fetched else ""
    return OriginalFile(
        name=name, size=item.size, type=type_ or _type(item, name), digest=item.digest, blob=item.blob, blobs=blobs
    )


def read_text(tx: Transaction, item: Item, slots: Sequence[Slot], *, start: int, limit: int) -> DocumentText:
    if start < 0 or not 1 <= limit <= MAX_CHARACTERS:
        raise BadRequest("text_range", longest=MAX_CHARACTERS)
    content = next((slot for slot in slots if slot.kind == CONTENT and slot.served), None)
    if content is None or content.source is None:
        raise StateConflict("not_read", name=item.name)
    build = _build(tx, item, content.owner_id, content.source)
    stop = min(start + limit, build.length)
    return DocumentText(
        document=item.id,
        generation=content.built,
        title=build.title,
        start=start,
        length=build.length,
        text=_assemble_text(tx, build, min(start, stop), stop),
        following=stop if stop < build.length else None,
    )


def read_passage(tx: Transaction, base: Base, item: Item, chunk: int, *, around: int) -> PassageInContext:
    if not 0 <= around <= MAX_CHARACTERS:
        raise BadRequest("context_range", longest=MAX_CHARACTERS)
    valid = 0 < chunk < ID_LIMIT
    rows = tx.run(sql.SERVED_CHUNK, base=base.key, owner=item.key, chunk=chunk) if valid else []
    if not rows:
        raise StateConflict("chunk_gone", name=item.name, chunk=chunk)
    owner, number, built, start, body, stop, headings, text = rows[0]
    build = _build(tx, item, owner, number)
    return PassageInContext(
        document=item.id,
        name=item.name,
        generation=built,
        chunk=chunk,
        start=start,
        end=stop,
        page=bisect_right(build.pages, body) or None,
        headings=json.loads(headings),
        before=_assemble_text(tx, build, max(0, start - around), start),
        text=text,
        after=_assemble_text(tx, build, stop, min(build.length, stop + around)),
    )


def _build(tx: Transaction, item: Item, owner: int, number: int) -> _Build:
    rows = tx.run(sql.READ_BUILD, owner_id=owner, build=number)
    if not rows:
        raise StateConflict("chunk_list_incomplete", name=item.name)
    title, pages, length = rows[0]
    return _Build(owner, number, title, json.loads(pages), length)


def _assemble_text(tx: Transaction, build: _Build, first: int, past: int) -> str:
    """Assemble a part of a text from its chunks, without their overlaps."""
    parts: list[str] = []
    reached = first
    for start, stop, text in tx.run(
        sql.READ_TEXT_PARTS, owner_id=build.owner, build=build.number, first=first, past=past
    ):
        begin, end = max(reached, start), min(stop, past)
        if end <= begin:
            continue
        parts += ["\n" * (begin - reached), text[begin - start : end - start]]
        reached = end
    parts.append("\n" * (past - reached))
    return "".join(parts)


def _type(item: Item, name: str) -> str:
    guessed, coding = mimetypes.guess_type(name)
    if guessed is not None and coding is None:
        return guessed
    return "text/plain" if item.kind is ItemKind.NOTE else UNKNOWN_TYPE
