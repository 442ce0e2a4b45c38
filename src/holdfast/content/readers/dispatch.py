"""Picks the reader for a kind, and answers in the cage."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.content import errors
from holdfast.content.readers import archives
from holdfast.content.readers.base import ExtractedText, Reader, ReadLimits
from holdfast.content.readers.documents import HtmlReader, KreuzbergReader, find_pdfium_fault
from holdfast.content.readers.files import BoundedFile, translate_os_errors
from holdfast.content.readers.formats import (
    FETCHED_HTML,
    HTML,
    MAIL,
    NOTEBOOK,
    ODP,
    OLE,
    PPTX,
    ZIP,
    FileFormat,
    identify_ole,
)
from holdfast.content.readers.mail import MailReader
from holdfast.content.readers.notebooks import NotebookReader
from holdfast.content.readers.plain import PlainReader
from holdfast.content.readers.slides import SlideReader
from holdfast.errors import Permanent

if TYPE_CHECKING:
    from collections.abc import Mapping


def read_in_process(kind: FileFormat, path: Path, name: str, limits: ReadLimits) -> ExtractedText:
    """Read a file of a known kind, in this process."""
    kind = _resolve_container(kind, path, name, limits)
    first, *others = _choose_readers(kind, limits)
    try:
        reading = first.read(path, name)
    except Permanent as refused:
        if refused.code not in {"unreadable", "reader_failed"} or not others:
            raise
        reading = replace(others[0].read(path, name), warnings=("The file is damaged; only its words were read.",))
    if len(reading.text) > limits.text:
        raise errors.too_much_text(limits.text)
    return reading


def build_request(kind: FileFormat, path: Path, name: str, limits: ReadLimits) -> dict[str, Any]:
    """Put into words what the cage shall read."""
    return {"kind": asdict(kind), "path": str(path.absolute()), "name": name, "limits": asdict(limits)}


def load_pdfium() -> None:
    """Load PDFium, which unpacks itself into the temporary folder. If that fails, only PDF files are not read."""
    find_pdfium_fault()


def serve_request(asked: Mapping[str, Any]) -> tuple[dict[str, Any], bytes]:
    """Read in the cage: everything about the reading but its text as the head, the text as the body."""
    with translate_os_errors():
        reading = read_in_process(
            FileFormat(**asked["kind"]), Path(asked["path"]), asked["name"], ReadLimits(**asked["limits"])
        )
    head = {"title": reading.title, "pages": reading.pages, "metadata": reading.metadata, "warnings": reading.warnings}
    return head, reading.text.encode()


def _resolve_container(kind: FileFormat, path: Path, name: str, limits: ReadLimits) -> FileFormat:
    """Look into containers; nothing is parsed before."""
    if kind == ZIP:
        return archives.inspect_zip(path, limits)
    if kind == OLE:
        with BoundedFile(path) as file:
            return identify_ole(file, name)
    return kind


def _choose_readers(kind: FileFormat, limits: ReadLimits) -> tuple[Reader, ...]:
    """Name who reads this kind, and who tries after that."""
    if kind.plain:
        return (PlainReader(kind, limits),)
    if kind.mime == HTML.mime:
        return (HtmlReader(limits, main=kind == FETCHED_HTML),)
    if kind == MAIL:
        return (MailReader(limits),)
    if kind == NOTEBOOK:
        return (NotebookReader(limits),)
    if kind == ODP:
        return (SlideReader(kind),)
    if kind == PPTX:
        return (KreuzbergReader(kind, limits), SlideReader(kind))
    return (KreuzbergReader(kind, limits),)


# Names by which the sandbox process finds the functions.
TARGET = f"{__name__}:{serve_request.__name__}"
PREPARE = f"{__name__}:{load_pdfium.__name__}"
