"""Reads presentations that kreuzberg cannot: OpenDocument files, and PowerPoint files with a broken picture.

Only the words are read. `archives.inspect_zip` has checked the container, so its XML is small and declares no entities.
"""

from __future__ import annotations

import re
import zipfile
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from holdfast.content import errors
from holdfast.content.readers.base import ExtractedText
from holdfast.content.readers.cleaning import clean, has_words
from holdfast.content.readers.files import BoundedFile
from holdfast.content.readers.formats import ODP, FileFormat

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from holdfast.content.readers.base import ReadLimits

SLIDE = re.compile(r"ppt/slides/slide(\d+)\.xml")
DRAWING = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
ODF_PAGE = "{urn:oasis:names:tc:opendocument:xmlns:drawing:1.0}page"
ODF_PARAGRAPH = "{urn:oasis:names:tc:opendocument:xmlns:text:1.0}p"


def read_slides(path: Path, format_: FileFormat, _limits: ReadLimits) -> ExtractedText:
    try:
        with BoundedFile(path) as file, zipfile.ZipFile(file) as archive:
            slides = _opendocument_slides(archive) if format_ == ODP else _powerpoint_slides(archive)
    except (zipfile.BadZipFile, KeyError, ValueError, ET.ParseError):
        raise errors.unreadable() from None
    starts, text = [], ""
    for slide in slides:
        text += "\n\n" if text and slide else ""
        starts.append(len(text))
        text += slide
    if not has_words(text):
        raise errors.no_text()
    return ExtractedText(text=text, pages=tuple(starts), metadata=format_.metadata)


def _powerpoint_slides(archive: zipfile.ZipFile) -> list[str]:
    found = [slide for slide in map(SLIDE.fullmatch, archive.namelist()) if slide]
    entries = [slide[0] for slide in sorted(found, key=lambda slide: int(slide[1]))]
    return [
        _joined(_words(part, f"{DRAWING}t") for part in _parsed(archive, entry, f"{DRAWING}p")) for entry in entries
    ]


def _opendocument_slides(archive: zipfile.ZipFile) -> list[str]:
    pages = _parsed(archive, "content.xml", ODF_PAGE)
    return [_joined("".join(paragraph.itertext()) for paragraph in page.iter(ODF_PARAGRAPH)) for page in pages]


def _parsed(archive: zipfile.ZipFile, entry: str, tag: str) -> Iterable[ET.Element]:
    return ET.fromstring(archive.read(entry)).iter(tag)  # noqa: S314 - `archives` refuses entities


def _words(part: ET.Element, tag: str) -> str:
    return "".join(run.text or "" for run in part.iter(tag))


def _joined(paragraphs: Iterable[str]) -> str:
    return clean("\n\n".join(filter(str.strip, paragraphs)))
