"""Picks the reader for a kind, and answers in the cage."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.content import errors
from holdfast.content.readers import archives
from holdfast.content.readers.base import Limits, Reader, Reading
from holdfast.content.readers.documents import DocumentReader, PageReader, pdf_fault
from holdfast.content.readers.files import ParsedFile, explained
from holdfast.content.readers.kinds import FETCHED, HTML, MAIL, NOTEBOOK, ODP, OLE, PPTX, ZIP, Kind, ole_kind
from holdfast.content.readers.mail import MailReader
from holdfast.content.readers.notebooks import NotebookReader
from holdfast.content.readers.plain import PlainReader
from holdfast.content.readers.slides import SlideReader
from holdfast.errors import Permanent

if TYPE_CHECKING:
    from collections.abc import Mapping

TARGET = f"{__name__}:answer"
PREPARE = f"{__name__}:prepare"


def read_as(kind: Kind, path: Path, name: str, limits: Limits) -> Reading:
    """Read a file of a known kind, in this process."""
    kind = _opened(kind, path, name, limits)
    first, *others = _readers(kind, limits)
    try:
        reading = first.read(path, name)
    except Permanent as refused:
        if refused.code not in {"unreadable", "reader_failed"} or not others:
            raise
        reading = replace(others[0].read(path, name), warnings=("The file is damaged; only its words were read.",))
    if len(reading.text) > limits.text:
        raise errors.too_much_text(limits.text)
    return reading


def question(kind: Kind, path: Path, name: str, limits: Limits) -> dict[str, Any]:
    """Put into words what the cage shall read."""
    return {"kind": asdict(kind), "path": str(path.absolute()), "name": name, "limits": asdict(limits)}


def prepare() -> None:
    """Load PDFium, which unpacks itself into the temporary folder. If that fails, only PDF files are not read."""
    pdf_fault()


def answer(asked: Mapping[str, Any]) -> tuple[dict[str, Any], bytes]:
    """Read in the cage: everything about the reading but its text as the head, the text as the body."""
    with explained():
        reading = read_as(Kind(**asked["kind"]), Path(asked["path"]), asked["name"], Limits(**asked["limits"]))
    head = {"title": reading.title, "pages": reading.pages, "metadata": reading.metadata, "warnings": reading.warnings}
    return head, reading.text.encode()


def _opened(kind: Kind, path: Path, name: str, limits: Limits) -> Kind:
    """Look into containers; nothing is parsed before."""
    if kind == ZIP:
        return archives.inspect(path, limits)
    if kind == OLE:
        with ParsedFile(path) as file:
            return ole_kind(file, name)
    return kind


def _readers(kind: Kind, limits: Limits) -> tuple[Reader, ...]:
    """Name who reads this kind, and who tries after that."""
    if kind.plain:
        return (PlainReader(kind, limits),)
    if kind.mime == HTML.mime:
        return (PageReader(limits, main=kind == FETCHED),)
    if kind == MAIL:
        return (MailReader(limits),)
    if kind == NOTEBOOK:
        return (NotebookReader(limits),)
    if kind == ODP:
        return (SlideReader(kind),)
    if kind == PPTX:
        return (DocumentReader(kind, limits), SlideReader(kind))
    return (DocumentReader(kind, limits),)
