"""Chooses the reader for a format, and reads files inside the sandbox process."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.content import errors
from holdfast.content.readers import archives
from holdfast.content.readers.base import ExtractedText, ReadLimits
from holdfast.content.readers.documents import find_pdfium_fault, read_html, read_with_kreuzberg
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
from holdfast.content.readers.mail import read_mail
from holdfast.content.readers.notebooks import read_notebook
from holdfast.content.readers.plain import read_plain
from holdfast.content.readers.slides import read_slides
from holdfast.errors import Permanent

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Reader = Callable[[Path, FileFormat, ReadLimits], ExtractedText]

# The second reader is used if the first one fails. Formats that are not listed are plain or go to kreuzberg.
READERS: dict[FileFormat, tuple[Reader, ...]] = {
    HTML: (read_html,),
    FETCHED_HTML: (read_html,),
    MAIL: (read_mail,),
    NOTEBOOK: (read_notebook,),
    ODP: (read_slides,),
    PPTX: (read_with_kreuzberg, read_slides),
}


def read_in_process(format_: FileFormat, path: Path, name: str, limits: ReadLimits) -> ExtractedText:
    """Read a file of a known format in this process."""
    format_ = _resolve_container(format_, path, name, limits)
    first, *others = (read_plain,) if format_.plain else READERS.get(format_, (read_with_kreuzberg,))
    try:
        reading = first(path, format_, limits)
    except Permanent as refused:
        if refused.code not in {"unreadable", "reader_failed"} or not others:
            raise
        reading = replace(
            others[0](path, format_, limits), warnings=("The file is damaged; only its words were read.",)
        )
    if len(reading.text) > limits.text:
        raise errors.too_much_text(limits.text)
    return reading


def build_request(format_: FileFormat, path: Path, name: str, limits: ReadLimits) -> dict[str, Any]:
    """Build the JSON request that `serve_request` answers in the sandbox."""
    return {"kind": asdict(format_), "path": str(path.absolute()), "name": name, "limits": asdict(limits)}


def load_pdfium() -> None:
    """Load PDFium, which unpacks itself into the temporary folder. If that fails, only PDF files cannot be read."""
    find_pdfium_fault()


def serve_request(request: Mapping[str, Any]) -> tuple[dict[str, Any], bytes]:
    """Read a file inside the sandbox; return the text as the body and everything else as the head."""
    with translate_os_errors():
        reading = read_in_process(
            FileFormat(**request["kind"]), Path(request["path"]), request["name"], ReadLimits(**request["limits"])
        )
    head = {"title": reading.title, "pages": reading.pages, "metadata": reading.metadata, "warnings": reading.warnings}
    return head, reading.text.encode()


def _resolve_container(format_: FileFormat, path: Path, name: str, limits: ReadLimits) -> FileFormat:
    """Check a container and return the format of its content. No parser runs before this check."""
    if format_ == ZIP:
        return archives.inspect_zip(path, limits)
    if format_ == OLE:
        with BoundedFile(path) as file:
            return identify_ole(file, name)
    return format_


# Names by which the sandbox process finds the functions.
TARGET = f"{__name__}:{serve_request.__name__}"
PREPARE = f"{__name__}:{load_pdfium.__name__}"
